"""Start a supervisor from a task that found none, where the configuration allows it (`[supervise] autostart`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.checkpoint.storage.folder import CheckpointFolder

__all__ = ["start_supervisor", "without_airflow"]

_OF_AIRFLOW = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_")
_STARTED: list[subprocess.Popen[bytes]] = []
"""Kept, because Python warns when a Popen of a running process is collected; these are meant to outlive us."""


def without_airflow(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without Airflow's settings, connections and variables, which hold secrets."""
    return {name: value for name, value in environment.items() if not name.startswith(_OF_AIRFLOW)}


def start_supervisor(project: Path, root: CheckpointFolder) -> int:
    """Start `penstock supervise` in a session of its own, and return its process.

    It outlives the task, and says what it does in `<root>/_logs/supervisor.jsonl`. Two that are started at once do no
    harm: one stands by. Of the task's environment it gets all but Airflow's settings, connections and variables, which
    hold secrets.
    """
    logs = root.here / "_logs"
    logs.mkdir(exist_ok=True, mode=0o700)
    with (logs / "supervisor.jsonl").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-m", "penstock", "supervise", "--json", "--project", str(project)],
            cwd=project,
            env=without_airflow(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _STARTED.append(process)
    return process.pid
