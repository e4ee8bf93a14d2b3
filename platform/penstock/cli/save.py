"""Run `penstock save JOB NAME`: name the newest checkpoint, by the driver that runs or in its place."""

from __future__ import annotations

import json as jsonlib
from functools import partial
from pathlib import Path

from penstock.checkpoint.entries import Commit
from penstock.checkpoint.log import Log
from penstock.checkpoint.mirror import shown
from penstock.checkpoint.recovery import Damage, recover
from penstock.checkpoint.takeover import survey
from penstock.cli.outcome import outcome
from penstock.errors import CannotSave, Fenced, HolderAlive
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
_AGAIN = 5.0
"""Seconds after which it is asked again: what nobody asks for any more is not done (`runtime.orders.FRESH`)."""


def save_command(job: str, name: str, *, json: bool, project: Path | None, debug: bool) -> None:
    """Print which batch the name stands for, once the log says so."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        log = job_log(settings.root / job)
        if log is None:
            raise CannotSave(f"{job} has no checkpoint yet", where=shown(settings.root))
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
    records = StreamRecords(control, job)
    clock = SystemClock()
    asked: tuple[int, float] | None = None
    try:
        while (found := recover(log, Damage.LIST).saves.get(name)) is None:
            # A new one each time: who has given signs of life for a while may give none any more.
            watch = HolderWatch(
                look=lambda: survey(log), heartbeats=StatusRecords(control, job), clock=clock, patience=patience
            )
            me = Identity(holder=holder_name(), code_version="penstock save")
            try:
                return save_at_rest(log, name, me, watch.may_take_over).commit
            except HolderAlive:
                if asked is None or clock.monotonic() - asked[1] > _AGAIN:
                    asked = clock.wall(), clock.monotonic()
                    records.update(partial(_asking, name=name, at=asked[0]))
                clock.sleep(_POLL)  # until the batch that runs is done
            except (CannotSave, Fenced):
                if name not in recover(log, Damage.LIST).saves:
                    raise
        return found
    finally:
        if asked is not None:
            records.update(partial(_asking, name=name, at=None))


def _asking(stream: Stream, *, name: str, at: int | None) -> tuple[Stream, None]:
    others = {known: asked for known, asked in stream.saves.items() if known != name}
    return stream.having(saves=others if at is None else {**others, name: at}), None
