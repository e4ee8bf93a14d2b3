"""Command streams from Airflow: operators, a DAG for each job, and the form that starts it (DESIGN 11).

Airflow commands and observes; the supervisor keeps streams running. The only folder that imports airflow.
"""

from __future__ import annotations

from penstock.airflow.factory import report_dag, restart_dag, stream_dags, upkeep_dag, windows_asset
from penstock.airflow.operators import DrainStream, RestartStream, StartStream, StopStream, WaitStream
from penstock.airflow.upkeep import CheckpointUpkeep, QualityReport

__all__ = [
    "CheckpointUpkeep",
    "DrainStream",
    "QualityReport",
    "RestartStream",
    "StartStream",
    "StopStream",
    "WaitStream",
    "report_dag",
    "restart_dag",
    "stream_dags",
    "upkeep_dag",
    "windows_asset",
]
