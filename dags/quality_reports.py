"""Report on windows when streams have published some, and on demand."""

from penstock.airflow import report_dag

dag = report_dag(__file__)
