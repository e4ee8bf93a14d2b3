"""Command streams from Airflow: operators, a DAG for each job, and the forms that command it (DESIGN 11).

Airflow commands and observes; the supervisor keeps streams running. The only folder that imports airflow.
"""

from __future__ import annotations

from penstock.airflow.factory import report_dag, request_dags, restart_dag, stream_dags, upkeep_dag, windows_asset
from penstock.airflow.operators import RestartStream, StartStream, WaitStream
from penstock.airflow.request_operators import (
    DiscardHeld,
    DrainStream,
    LimitStream,
    RedoSink,
    ReleaseHeld,
    RequeueRows,
    ResumeStream,
    SaveCheckpoint,
    SkipSink,
    StopStream,
    SuspendStream,
)
from penstock.airflow.upkeep import CheckpointUpkeep, QualityReport

__all__ = [
    "CheckpointUpkeep",
    "DiscardHeld",
    "DrainStream",
    "LimitStream",
    "QualityReport",
    "RedoSink",
    "ReleaseHeld",
    "RequeueRows",
    "RestartStream",
    "ResumeStream",
    "SaveCheckpoint",
    "SkipSink",
    "StartStream",
    "StopStream",
    "SuspendStream",
    "WaitStream",
    "report_dag",
    "request_dags",
    "restart_dag",
    "stream_dags",
    "upkeep_dag",
    "windows_asset",
]
