"""Take a stream back to a checkpoint that is picked in the trigger form."""

from penstock.airflow import restart_dag

dag = restart_dag(__file__)
