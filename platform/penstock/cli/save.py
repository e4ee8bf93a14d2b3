"""Run `penstock save JOB NAME`: name the newest checkpoint, by the driver that runs or in its place."""

from __future__ import annotations

import json as jsonlib
import time
from pathlib import Path

from penstock.checkpoint.entries import Commit
from penstock.checkpoint.log import Log
from penstock.checkpoint.recovery import Damage, recover
from penstock.checkpoint.takeover import survey
from penstock.cli.outcome import outcome
from penstock.errors import CannotSave, HolderAlive
from penstock.runtime.batch_report import shown_moment
from penstock.runtime.events import configure_events
from penstock.runtime.holder import HolderWatch
from penstock.runtime.jobrun import holder_name
from penstock.runtime.project import find_project
from penstock.runtime.roots import control_store, job_log
from penstock.runtime.saving import refuse_save, save_at_rest
from penstock.runtime.settings import Identity
from penstock.runtime.status import StatusRecords
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Stream
from penstock.time.clock import SystemClock

__all__ = ["save_command"]

_POLL = 0.3


def save_command(job: str, name: str, *, json: bool, project: Path | None, debug: bool) -> None:
    """Print which batch the name stands for, once the log says so."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        log = job_log(settings.root / job)
        if log is None:
            raise CannotSave(f"{job} has no checkpoint yet", where=str(settings.root))
        commit = _saved(log, settings.root, job, name, patience=settings.takeover_after)
        if json:
            print(jsonlib.dumps({"job": job, "saved": name, "batch": commit.batch}))
        else:
            print(f"{job}: batch {commit.batch} of {shown_moment(commit.time)} is saved as {name}")


def _saved(log: Log, root: Path, job: str, name: str, *, patience: float) -> Commit:
    """Have the newest checkpoint named, and return its Commit."""
    recovered = recover(log, Damage.LIST)
    refuse_save(name, recovered.commit, {*recovered.saves, *recovered.lost_saves})
    control = control_store(root)
    watch = HolderWatch(
        look=lambda: survey(log), heartbeats=StatusRecords(control, job), clock=SystemClock(), patience=patience
    )
    records = StreamRecords(control, job)
    asked = False
    try:
        while (found := recover(log, Damage.LIST).saves.get(name)) is None:
            try:
                watch.may_take_over(survey(log))
            except HolderAlive:
                if not asked:
                    records.update(lambda stream: (_asking(stream, name), None))
                asked = True
                time.sleep(_POLL)  # until the batch that runs is done
            else:
                return save_at_rest(log, name, Identity(holder=holder_name(), code_version="penstock save")).commit
        return found
    finally:
        if asked:
            records.update(lambda stream: (stream.having(saves=tuple(s for s in stream.saves if s != name)), None))


def _asking(stream: Stream, name: str) -> Stream:
    return stream.having(saves=(*(s for s in stream.saves if s != name), name))
