"""A DAG for each job in conf/jobs: start its stream, wait until it is healthy, follow it to its end."""

from penstock.airflow import stream_dags

globals().update(stream_dags(__file__))
