"""Verify once a day every checkpoint that streams can restore."""

from penstock.airflow import upkeep_dag

dag = upkeep_dag(__file__)
