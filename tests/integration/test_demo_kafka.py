"""The Kafka demo, to its end and interrupted: whatever ends it, nothing is left running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import PATIENCE
from demo_copies import copy_project, running_in

from penstock.runtime.process.os_processes import argv_of, session_members
from penstock.runtime.spark.jars import ensure
from tools import jars
from tools.waiting import free_port

pytestmark = pytest.mark.timeout(900)
FLIGHTS = 60_000
"""Two months of departures; all of them would take twice as long and show nothing else."""


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the demo in a copy of the project, on a port of its own."""
    assert not ensure(jars.KAFKA)
    copy_project(tmp_path)
    settings = tmp_path / "conf" / "jobs" / "departures.toml"
    settings.write_text(settings.read_text("utf-8").replace("127.0.0.1:19092", f"127.0.0.1:{free_port()}"), "utf-8")
    demo = subprocess.Popen(
        [sys.executable, "-m", "tools.demo_kafka", str(FLIGHTS)],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield demo
    finally:
        for pid in {demo.pid, *running_in(tmp_path)}:
            for member in session_members(pid):
                os.kill(member, signal.SIGKILL)


@pytest.mark.sample(seconds=90)
def test_the_demo_ends_with_all_equal(demo, tmp_path):
    """Driver and broker are killed, and each table, count and record of the topic is as pandas computes it."""
    output, _ = demo.communicate(timeout=2 * PATIENCE)
    assert demo.returncode == 0, output
    assert "All equal." in output
    assert re.search(r"kill -9 of the driver, its JVM and its workers: \d+ processes, all gone", output)
    assert re.search(r"batch ids: 0 to \d+, without a gap, by [23] drivers", output)
    assert running_in(tmp_path) + session_members(demo.pid) == []


@pytest.mark.sample(seconds=40)
def test_a_demo_that_is_interrupted_leaves_nothing_running(demo, tmp_path):
    """Supervisor, driver, producer, broker and database are there, and then they are not."""
    lines = []
    for line in demo.stdout:
        lines.append(line)
        if "Spark is up" in line:
            break
    assert len(running_in(tmp_path)) >= 4, "".join(lines)
    programs = [word for pid in session_members(demo.pid) for word in argv_of(pid)[:1]]
    assert any(program.endswith("bin/postgres") for program in programs), programs
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
    lines.append(demo.communicate(timeout=PATIENCE)[0])
    assert demo.returncode == 130, "".join(lines)
    assert "interrupted; nothing is left running" in lines[-1]
    assert running_in(tmp_path) + session_members(demo.pid) == []
