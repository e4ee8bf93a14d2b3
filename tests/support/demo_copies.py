"""Run demos in copies of the project, so that nobody loses the results of a demo of their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from penstock.runtime.process.os_processes import argv_of

__all__ = ["copy_project", "running_in"]

_ROOT = Path(__file__).resolve().parents[2]


def copy_project(to: Path) -> None:
    """Copy what a demo needs; the jars are those of the clone."""
    for name in ("conf", "dags", "jobs", "tools"):
        shutil.copytree(_ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    (to / ".jars").symlink_to(_ROOT / ".jars")


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
