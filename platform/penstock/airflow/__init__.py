"""Command streams from Airflow: operators, a DAG for each job, and the form that starts it (DESIGN 11).

Airflow commands and observes; the supervisor keeps streams running. The only folder that imports airflow.
"""

from __future__ import annotations

from penstock.airflow.factory import restart_dag, stream_dags
from penstock.airflow.operators import DrainStream, RestartStream, StartStream, StopStream, WaitStream

__all__ = ["DrainStream", "RestartStream", "StartStream", "StopStream", "WaitStream", "restart_dag", "stream_dags"]
