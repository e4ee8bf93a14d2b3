"""Tell people and Airflow what happens to streams."""
