"""A supervisor that a task starts: on its own, with what it says in a file, and without Airflow's settings."""

from __future__ import annotations

import os
import signal

import pytest
from project_samples import make_project

from penstock.checkpoint.roots import control_store
from penstock.runtime.process.os_processes import environment_of, kill_session, process_runs, process_start
from penstock.supervise.autostart import start_supervisor
from penstock.supervise.control import StreamControl
from penstock.time.clock import SystemClock
from tools.waiting import until


@pytest.mark.slow
def test_a_supervisor_outlives_who_started_it(tmp_path, monkeypatch):
    """It is in a session of its own, supervises, and leaves when it is told to."""
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "a secret")
    monkeypatch.setattr("penstock.supervise.autostart._STARTED", started := [])
    project = make_project(tmp_path / "project", rows=10)
    root = project / "checkpoints"
    control_store(root)
    pid = start_supervisor(project, root)
    start = process_start(pid)
    try:
        control = StreamControl(root, "orders", SystemClock())
        until(control.is_supervised, "the supervisor")
        assert os.getsid(pid) == pid
        assert "a secret" not in environment_of(pid).values()
        os.kill(pid, signal.SIGTERM)
        until(lambda: not process_runs(pid, start), "its end")
        assert not control.is_supervised()
    finally:
        kill_session(pid, start, within=20.0)
        for process in started:
            process.wait()
    assert "supervisor.leads" in (root / "_logs" / "supervisor.jsonl").read_text()
