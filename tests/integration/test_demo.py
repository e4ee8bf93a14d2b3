"""The demo, interrupted as a person does it: with Ctrl-C in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import PATIENCE

from penstock.runtime.process.os_processes import argv_of, session_members

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.sample(seconds=35)
def test_a_demo_that_is_interrupted_leaves_nothing_running(tmp_path):
    """In a copy of the project, so that nobody loses the results of a demo of their own."""
    for name in ("conf", "dags", "jobs", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".jars").symlink_to(ROOT / ".jars")
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


def running_in(folder: Path) -> list[int]:
    """Return the processes that have something of a folder among their words, or work in it."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            there = str((entry / "cwd").readlink())
        except OSError:
            continue
        if pid != os.getpid() and (there.startswith(str(folder)) or str(folder) in " ".join(argv_of(pid))):
            pids.append(pid)
    return pids
