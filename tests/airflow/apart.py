"""Run a script that loads Airflow in a process of its own: when Airflow is loaded, it configures the logging of all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from project_samples import make_project

from penstock.checkpoint.roots import control_store


def run_apart(script: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Run it with a new project as its word; return the project, and the JSON that it prints last."""
    project = make_project(folder / "project", rows=10)
    control_store(project / "checkpoints")
    ran = subprocess.run(
        [sys.executable, "-c", script, str(project)],
        env={**os.environ, "AIRFLOW_HOME": str(project / "airflow")},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3_000:]
    return project, json.loads(ran.stdout.splitlines()[-1])
