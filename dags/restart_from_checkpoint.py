"""Restart a stream from a checkpoint that you choose in the trigger form."""

from penstock.airflow import restart_dag

dag = restart_dag(__file__)
