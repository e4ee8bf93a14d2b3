"""The demo, interrupted as a person does it: with Ctrl-C in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from cli_runner import PATIENCE
from demo_copies import copy_project, running_in

from penstock.runtime.process.os_processes import session_members

pytestmark = pytest.mark.timeout(600)


@pytest.mark.sample(seconds=35)
def test_a_demo_that_is_interrupted_leaves_nothing_running(tmp_path):
    """In a copy of the project, so that nobody loses the results of a demo of their own."""
    copy_project(tmp_path)
    demo = subprocess.Popen(
        [sys.executable, "-m", "tools.demo", "--engine"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert demo.stdout is not None
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if "batch " in line and " rows, " in line:
                break
        assert running_in(tmp_path), "".join(lines)
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
        lines.append(demo.communicate(timeout=PATIENCE)[0])
        assert demo.returncode == 130, "".join(lines)
        assert "interrupted; nothing is left running" in lines[-1]
        assert running_in(tmp_path) == []
    finally:
        for pid in {demo.pid, *running_in(tmp_path)}:
            for member in session_members(pid):
                os.kill(member, signal.SIGKILL)
