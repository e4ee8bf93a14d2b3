"""A DAG for each request of a stream: stop, drain, suspend, resume, limit, save, requeue, held batches."""

from penstock.airflow import request_dags

globals().update(request_dags(__file__))
