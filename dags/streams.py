"""A DAG for each job in conf/jobs: deploy it, see it healthy, follow it to its end."""

from penstock.airflow import stream_dags

globals().update(stream_dags(__file__))
