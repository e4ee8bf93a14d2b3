"""Read what the pages show, with the functions of `penstock streams`, `status` and `checkpoints`; nothing is written.

One job's trouble is that job's: its row says what is wrong, and the others are shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import structlog

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.roots import control_store, is_there, job_log, reports_folder
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.settings import load_settings
from penstock.errors import PenstockError
from penstock.quality.held.decision_records import HeldRecords
from penstock.runtime.inspect.job_status import kept_checkpoints, read_status
from penstock.runtime.inspect.open_windows import StepWaits, what_waits
from penstock.runtime.process.project import Project
from penstock.supervise.control import StreamControl
from penstock.supervise.stream import Stream
from penstock.time.clock import Clock
from penstock.ui.commits import Gate, gates_of
from penstock.ui.model import JobView, Reading, Tone, Trouble, units_of, view_of
from penstock.ui.requests import HeldFacts
from penstock.ui.restarting import RestartFacts

__all__ = [
    "NEWEST", "Broken", "Remembered", "look", "read_gates", "read_held", "read_restart", "read_streams", "reports_of",
]  # fmt: skip

log = structlog.get_logger()

_TAIL = 8
"""Batches that are read of each job for the page of all streams, whatever its log keeps."""
NEWEST = 200
"""Batches that are read for the page of one job."""
_WINDOWS, _ENTRIES = 5, 100_000
"""How many open windows of a step a page lists, and how many rows of windows its state may have for that."""
_FRESH = 1.0
_SHARE = 5.0  # times the duration of a read: repeated reads take a sixth of a processor at most
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Broken:
    """A job that cannot be shown, and why."""

    job: str
    trouble: Trouble
    tone: ClassVar[Tone] = Tone.BAD


def read_streams(project: Project, clock: Clock) -> list[JobView | Broken]:
    """Return the state of each job of the project, by name; of each log only its end is read."""
    read = partial(_read, project, clock=clock, newest=_TAIL, history=False)
    return [_or_broken(job, partial(read, job)) for job in project.job_names()]


def look(project: Project, job: str, clock: Clock) -> JobView:
    """Return the state of one job, with the history of its stream."""
    return _read(project, job, clock=clock, newest=NEWEST, history=True)


def read_gates(project: Project, job: str, newest: int) -> list[Gate]:
    """Return the decisions of a job's gates in the newest batches."""
    log = job_log(project.settings(job).root / job)
    kept = () if log is None else recover(log, Damage.LIST, newest=newest).kept
    return gates_of(list(kept))


def reports_of(project: Project, job: str) -> Path:
    """Return where the reports of a job are, if there are any; raises as `Project.settings` does."""
    return reports_folder(project.settings(job).root, job)


class Remembered:
    """Keeps the result of a read for a moment, so that many readers cost as much as one.

    It is kept for a second, and for five times as long as the read took. So repeated reads take a sixth of a processor
    at most, however large a log is. A caller during a read waits for its result.
    """

    def __init__(self, tells: Callable[[], float] = time.monotonic) -> None:
        self._tells = tells
        self._locks: dict[Hashable, threading.Lock] = {}
        self._known: dict[Hashable, tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], Read]) -> Read:
        """Return what `read` returned a moment ago, or returns now; what it raises is not kept."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            until, known = self._known.get(key, (0.0, None))
            begun = self._tells()
            if begun < until:
                return known  # type: ignore[no-any-return]
            answer = read()
            ended = self._tells()
            self._known[key] = (ended + max(_FRESH, _SHARE * (ended - begun)), answer)
            return answer

    def of_job(self, project: Project, job: str, what: Hashable, read: Callable[[], Read]) -> Read | Broken:
        """Return what `read` returned of a job, or why that cannot be read; `what` tells the reads of a job apart."""
        return self.get((project.root, job, what), lambda: _or_broken(job, read))


def _or_broken(job: str, read: Callable[[], Read]) -> Read | Broken:
    try:
        return read()
    except Exception as why:  # noqa: BLE001 - a record that nobody foresaw is this job's trouble, not the page's
        if not isinstance(why, PenstockError | OSError):
            log.warning("ui.job_not_read", job=job, reason=f"{type(why).__name__}: {why}")
        return Broken(job, Trouble.of(why))


def read_restart(project: Project, job: str) -> RestartFacts:
    """Return what a restart of a job can begin from, and what it would undo."""
    settings = project.settings(job)
    _, conf = load_settings(project.root, job, code=project.code)
    facts = RestartFacts(job=job, folder=settings.root / job, recovered=None, tables=tuple(conf.tables))
    known = kept_checkpoints(settings, job)
    if known is None:
        return facts
    kept, recovered = known
    rulings = HeldRecords(control_store(settings.root, make=False), job)
    released = rulings.released_of(checkpoint.batch for checkpoint in recovered.kept if checkpoint.held)
    commit = recovered.commit
    steps, sources = ((), ()) if commit is None else (tuple(sorted(commit.state)), tuple(sorted(commit.sources)))
    return replace(facts, recovered=recovered, kept=kept, released=released, steps=steps, sources=sources)


def read_held(project: Project, job: str, batch: int) -> HeldFacts | None:
    """Return what a person decides on, None where no such batch is held; its Commit is kept until a decision."""
    log = job_log(project.settings(job).root / job)
    held = None if log is None else recover(log, Damage.LIST).held
    if held is None or batch not in held:
        return None
    commit = held[batch]
    return HeldFacts(
        time=commit.time,
        rows={sink: sum(file.rows for file in files) for sink, files in commit.held.items() if files},
        units=tuple(unit for unit in units_of(commit) if unit.action == "hold"),
        undone=batch in held.undone,
    )


def _read(project: Project, job: str, *, clock: Clock, newest: int, history: bool) -> JobView:
    settings = project.settings(job)
    known = kept_checkpoints(settings, job, newest=newest)
    kept, recovered = known if known is not None else ([], None)
    status = read_status(settings, job, clock, recovered=recovered)
    in_force = recovered.commit if recovered is not None else None
    stream, asked, supervised, changes = Stream(), False, False, list[tuple[int, Stream]]()
    if is_there(settings.root):
        control = StreamControl(settings.root, job, clock)
        asked = control.records.number() >= 0
        stream = control.newest()
        supervised = control.is_supervised()
        changes = control.records.history() if history else []
    return view_of(
        Reading(
            job=job,
            now=clock.wall(),
            asked=asked,
            supervised=supervised,
            stream=stream,
            status=status,
            limits=settings.limits.of_batches,
            history=changes,
            kept=kept,
            in_force=in_force,
            waits=_waits(settings.root / job / "state", in_force) if history and in_force is not None else (),
            published=recovered.known if recovered is not None else {},
            saves=recovered.saves.batches if recovered is not None else {},
            problems=[str(problem) for problem in recovered.problems] if recovered is not None else [],
        )
    )


def _waits(state: CheckpointFolder, commit: Commit) -> tuple[StepWaits, ...]:
    """Return what waits in the state of each step; a step whose state cannot be read says why, and others are shown."""
    return tuple(_waits_in(state, commit, step) for step in sorted(commit.state))


def _waits_in(state: CheckpointFolder, commit: Commit, step: str) -> StepWaits:
    try:
        return what_waits(state, commit, step, most=_WINDOWS, entries=_ENTRIES)
    except Exception as why:  # noqa: BLE001 - as for a whole job
        if not isinstance(why, PenstockError | OSError):
            log.warning("ui.state_not_read", step=step, reason=f"{type(why).__name__}: {why}")
        return StepWaits(step=step, windows=(), trouble=Trouble.of(why).what)
