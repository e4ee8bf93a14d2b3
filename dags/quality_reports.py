"""Make quality reports when streams have published windows, and on demand."""

from penstock.airflow import report_dag

dag = report_dag(__file__)
