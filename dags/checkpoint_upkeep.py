"""Read and check, once a day, all that streams can go back to."""

from penstock.airflow import upkeep_dag

dag = upkeep_dag(__file__)
