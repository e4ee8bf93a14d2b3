"""Find what the forms of a project can offer, within one budget for a DAG file, whatever its stores do.

A thread of its own asks the stores, so that parsing never waits longer than the budget for a disk or a NameNode that
does not answer. A file of this machine keeps the values. A job whose store does not answer in time has the values of
before, so its DAG neither vanishes nor changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from penstock.checkpoint.log.queries import Recent, newest_commits, newest_saves
from penstock.checkpoint.roots import control_store, job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import PenstockError, StorageUnavailable
from penstock.runtime.process.project import Project
from penstock.supervise.records import StreamRecords

__all__ = ["BUDGET", "offered"]

BUDGET = 2.0
"""Seconds that a DAG file waits for all its stores together: Airflow drops the DAGs of a file that takes long."""
_OFFERED = 20
_PRIVATE = 0o700

Starts = dict[str, str]
_KNOWN = TypeAdapter(dict[str, Starts])


def offered(project: Project, jobs: list[str], *, budget: float = BUDGET) -> dict[str, Starts]:
    """Return, for each job, what its stream can start from and how a form says it.

    Forms offer saved checkpoints always, and kept batches only of streams at rest. Each batch of a running stream would
    change its DAG, and Airflow keeps every version of a DAG.
    """
    file = _cache(project)
    before = _read(file)
    starts: dict[str, Starts] = {}
    asking = threading.Thread(target=_ask, args=(project, jobs, starts, budget), daemon=True, name="penstock-offers")
    asking.start()
    asking.join(budget)
    known = {job: dict(starts[job]) if job in starts else before.get(job, {}) for job in jobs}
    if known != before:
        _write(file, known)
    return {job: {"last": "where it left off", **kept, "empty": "nothing: start over"} for job, kept in known.items()}


def _ask(project: Project, jobs: list[str], starts: dict[str, Starts], budget: float) -> None:
    """Ask the stores of all jobs, each root until it fails to answer once; a log in trouble offers less.

    They are asked in any order, so that no job is always the one that the budget does not reach.
    """
    silent: set[CheckpointFolder] = set()
    ends = time.monotonic() + budget
    for job in random.sample(jobs, len(jobs)):
        left = ends - time.monotonic()
        if left <= 0:
            return
        root = None
        try:
            root = project.settings(job).root
            if root in silent:
                continue
            starts[job] = _kept(root.hurried(left), job)
        except (StorageUnavailable, OSError):
            if root is not None:
                silent.add(root)
        except PenstockError:
            starts[job] = {}


def _kept(root: CheckpointFolder, job: str) -> Starts:
    log = job_log(root / job)
    if log is None:
        return {}
    newest_named = list(newest_saves(log).items())[:_OFFERED]
    kept = {f"saved={name}": f"saved as {name}: {_said(commit)}" for name, commit in newest_named}
    stream = StreamRecords(control_store(root, make=False), job).newest()
    if stream.driver is not None or stream.wants_driver:
        return kept
    return {**kept, **{f"batch={commit.batch}": _said(commit) for commit in newest_commits(log, _OFFERED)}}


def _said(commit: Recent) -> str:
    return f"batch {commit.batch}, {datetime.fromtimestamp(commit.time / 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


# --- what was found before -------------------------------------------------------------------------
def _cache(project: Project) -> Path:
    folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    return folder / f"offers-{hashlib.sha256(str(project.root).encode()).hexdigest()[:32]}.json"


def _read(file: Path) -> dict[str, Starts]:
    """Return what was found before; nothing where the folder is not ours, because others could have written it."""
    try:
        state = file.parent.stat()
        if state.st_uid != os.getuid() or state.st_mode & 0o022:
            return {}
        return _KNOWN.validate_json(file.read_bytes())
    except (OSError, ValueError):
        return {}


def _write(file: Path, known: dict[str, Starts]) -> None:
    with suppress(OSError):
        file.parent.mkdir(mode=_PRIVATE, exist_ok=True)
        if file.parent.stat().st_uid != os.getuid():
            return
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as made:
            json.dump(known, made)
        Path(made.name).replace(file)
