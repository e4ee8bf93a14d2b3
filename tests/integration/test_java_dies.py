"""Spark's Java process is killed, as the kernel does when memory is short: while it starts, and later (F05)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from cli_runner import Shell
from project_samples import expected_totals, make_project

from penstock.runtime.process.os_processes import argv_of, session_members

pytestmark = pytest.mark.timeout(900)

RUN = ("run", "orders", "--available-now", "--json")


@pytest.fixture
def shell(tmp_path) -> Iterator[Shell]:
    """A project of 400 orders in forty batches."""
    project = Shell(make_project(tmp_path / "project", rows=400, rows_per_batch=10))
    yield project
    project.end()


def java_of(run: subprocess.Popen[str]) -> int:
    """Wait for the Java process of a command, and return its id."""
    while run.poll() is None:
        for pid in session_members(run.pid):
            if "org.apache.spark.deploy.SparkSubmit" in argv_of(pid):
                return pid
        time.sleep(0.02)
    raise AssertionError("it ended before Java was started")


def is_told(run: subprocess.Popen[str]) -> None:
    """See that it ends as what may go well next time, with its name, and what is to be done."""
    _, err = run.communicate(timeout=240)
    assert run.returncode == 75, err
    assert "PEN-OPR-003" in err
    assert "the Java process of Spark" in err
    assert "Start again" in err


@pytest.mark.sample(seconds=60)
@pytest.mark.remedy("PEN-OPR-003")
@pytest.mark.fault("F05")
def test_a_java_process_that_dies_ends_the_command_as_one_to_be_tried_again(shell: Shell) -> None:
    """At three moments of the start, and behind a commit; then the remedy gives each row once."""
    for after in (0.0, 1.0, 3.0):
        run = shell.start(*RUN)
        java = java_of(run)
        time.sleep(after)
        os.kill(java, signal.SIGKILL)
        is_told(run)
    run = shell.start(*RUN)
    assert run.stdout is not None
    assert any(json.loads(line)["event"] == "batch.committed" for line in run.stdout)
    os.kill(java_of(run), signal.SIGKILL)
    is_told(run)
    status = shell.json("status", "orders")
    assert (status["state"], status["error"]["code"]) == ("failed", "PEN-OPR-003")
    code, _, err = shell.run(*RUN)
    assert code == 0, err
    assert shell.totals() == expected_totals(400)
