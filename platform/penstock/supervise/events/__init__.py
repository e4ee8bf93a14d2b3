"""Post the events of streams to people and to Airflow."""
