"""Errors point at the user's file wherever Penstock and the job are installed (DESIGN 3)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.graph import source_location

PACKAGE = Path(penstock.__file__).resolve().parent
JOB = """from penstock import Job, agg, seconds
from penstock.errors import JobError
from penstock.windows import LatenessRule, Tumbling, drop_late

assert __import__("penstock").__file__.startswith({root!r}), __import__("penstock").__file__


def say(build):
    try:
        build()
    except JobError as error:
        print(error.where)


say(lambda: Job("no name"))
say(lambda: agg.sum(""))
strict = Tumbling(seconds(5)).lateness_rule(LatenessRule.WATERMARK)
say(lambda: strict.update_late(within=seconds(5), then=drop_late()))
"""


def said_by(job: Path, root: Path) -> list[str]:
    """Run a job with the package found below `root`, and return where it says its errors are."""
    job.parent.mkdir(parents=True, exist_ok=True)
    job.write_text(JOB.format(root=str(root)))
    environ = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, str(job)], capture_output=True, text=True, check=True, env=environ)
    return ran.stdout.split()


def test_a_folder_whose_name_begins_like_the_packages_is_outside(tmp_path: Path) -> None:
    """F-lines of a job in .../penstock_jobs are the user's."""
    shutil.copytree(PACKAGE, tmp_path / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    job = tmp_path / "penstock_jobs" / "flights.py"
    assert said_by(job, tmp_path) == [f"{job}:15", f"{job}:16", f"{job}:18"]


def test_a_package_that_is_reached_by_a_link_is_inside(tmp_path: Path) -> None:
    """A checkout behind a symbolic link names the job, not Penstock's own files."""
    (tmp_path / "link").symlink_to(PACKAGE.parent, target_is_directory=True)
    job = tmp_path / "jobs" / "flights.py"
    assert said_by(job, tmp_path / "link") == [f"{job}:15", f"{job}:16", f"{job}:18"]


@pytest.mark.parametrize("file", ["<stdin>", "<ipython-input-1>", "job.py", "/nowhere/penstock/graph/job.py"])
def test_what_has_no_file_in_the_package_is_outside(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the program was started, the package's own folder included."""
    monkeypatch.chdir(PACKAGE.parent)
    assert not source_location._is_inside(file)


def test_a_file_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step asks for its line, and looking at the disk each time would cost more than the step."""
    source_location._is_inside.cache_clear()
    for _ in range(3):
        source_location.user_site()
    assert source_location._is_inside.cache_info().misses == 1
