"""Read the status of a job from its log and its status record alone: no Spark, no job code, nothing written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

from penstock.checkpoint.log.batch_report import BatchReport, Totals, moment
from penstock.checkpoint.log.entries import END_OF_TIME, Arrival, Commit, ManifestRef, Moved, Release
from penstock.checkpoint.log.recovery import Damage, Recovered, recover
from penstock.checkpoint.log.takeover import View, survey
from penstock.checkpoint.roots import control_store, job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.settings import Settings
from penstock.errors import EXIT_RETRY, CheckpointCorrupt, PenstockError, StateMissing
from penstock.quality.held.decision_records import HeldRecords
from penstock.quality.held.release import undone_by_restore, waiting
from penstock.runtime.driver.ownership import FAILED, driver_left, is_of_last_driver
from penstock.runtime.inspect.watermark_report import StepMark, watermark_report
from penstock.runtime.process.heartbeat import StatusRecords, batches_in, former_checkpoint
from penstock.runtime.process.job_load import LoadReport, load_report
from penstock.runtime.process.takeover_policy import is_gone
from penstock.state.manifest import Manifest
from penstock.state.manifest import ManifestRef as StateRef
from penstock.time.clock import Clock

__all__ = [
    "JobState", "JobStatus", "KeptCheckpoint", "StepState", "StoredState", "StoredStates", "all_checkpoints",
    "kept_checkpoints", "read_status",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepState:
    """Hold what the state of one step takes.

    `rows` are those that its files hold: more than the keys, because what was superseded or removed counts until files
    are merged, and indexes count too. `size` is in bytes.
    """

    rows: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """Hold what the state of one Commit takes, by step; `trouble` is why it cannot be restored, None where it can."""

    steps: dict[str, StepState]
    trouble: str | None

    @property
    def rows(self) -> int:
        """Return the rows that its files hold, of all steps."""
        return sum(step.rows for step in self.steps.values())

    @property
    def size(self) -> int:
        """Return its bytes; what several Commits share counts in each."""
        return sum(step.size for step in self.steps.values())

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        steps = {name: {"stored_rows": step.rows, "bytes": step.size} for name, step in self.steps.items()}
        return {"stored_rows": self.rows, "bytes": self.size, "steps": steps}


class StoredStates:
    """Look at the states of several Commits, which share most of their files; `folder` is the job's checkpoint."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder
        self._manifests: dict[CheckpointFolder, Manifest | str] = {}
        self._is_there = (folder / "state").presence()

    def of(self, commit: Commit) -> StoredState:
        """Return what the state of a Commit takes. What cannot be read counts nothing, and is the trouble."""
        steps: dict[str, StepState] = {}
        trouble: str | None = None
        for step, refs in commit.state.items():
            state = StepState()
            for partition, ref in refs.items():
                place = self._folder / "state" / step / partition
                manifest = self._manifest(place / ref.path, ref)
                if isinstance(manifest, str):
                    trouble = trouble or manifest
                    continue
                state = StepState(state.rows + manifest.rows, state.size + manifest.size)
                gone = next((name for name in manifest.files() if not self._is_there(place / name)), None)
                if gone is not None:
                    trouble = trouble or f"{self._named(place / gone)} is gone"
            steps[step] = state
        return StoredState(steps=steps, trouble=trouble)

    def _manifest(self, path: CheckpointFolder, ref: ManifestRef) -> Manifest | str:
        """Return a manifest, or what is wrong with it."""
        if path not in self._manifests:
            try:
                self._manifests[path] = Manifest.read(path, StateRef(ref.path, ref.size, ref.checksum))
            except StateMissing:
                self._manifests[path] = f"{self._named(path)} is gone"
            except CheckpointCorrupt:
                self._manifests[path] = f"{self._named(path)} is damaged"
        return self._manifests[path]

    def _named(self, path: CheckpointFolder) -> str:
        return path.relative_to(self._folder).as_posix()


class JobState(Enum):
    """The state of a job, as far as storage tells."""

    NEW = "never run"
    GONE = "its checkpoint is gone"
    RUNNING = "running"
    SILENT = "silent: held by a driver that gives no sign of life"
    DIED = "stopped: its driver died without leaving"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed: the next start may succeed"
    NEEDS_PERSON = "needs a person"
    MOVED = "moved: it continues elsewhere"
    ARRIVING = "moved to here, and the move was not finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The status of one job. Times are microseconds since 1970.

    `last` is the newest Commit; `goes_on_from` the batch whose state is in force, which a restore may have changed,
    and `watermarks` and `totals` are that one's. `record` is the newest status record of the last driver, if it wrote
    one; `held` are undecided batches, and `undone` those of them that a restore has rewound past. `marks` say what
    holds each watermark back.
    """

    job: str
    state: JobState
    holder: str | None = None
    epoch: int | None = None
    last: BatchReport | None = None
    goes_on_from: int | None = None
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    totals: Totals | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    heartbeat_age: float | None = None
    next_batch: int = 0
    pending: bool = False
    held: tuple[int, ...] = ()
    undone: tuple[int, ...] = ()
    moved_to: str | None = None
    error: Mapping[str, Any] | None = None
    load: LoadReport = field(default_factory=LoadReport)
    marks: tuple[StepMark, ...] = ()

    @property
    def ms(self) -> float | None:
        """Return the milliseconds that the batch `last` took, None where the driver has not noted them."""
        # One that was killed after a commit has noted those of the batch before.
        noted = self.record.get("last") or {}
        return self.record.get("ms") if self.last is not None and noted.get("batch") == self.last.batch else None

    @property
    def publishable(self) -> tuple[int, ...]:
        """Return the held batches that a release can publish; those that a restore has undone can only be discarded."""
        return tuple(batch for batch in self.held if batch not in self.undone)

    @property
    def left(self) -> dict[str, Any]:
        """Return the rows that each source has left, None where it is not known.

        Of a source without an end they are those that a driver saw as it planned its newest batch. Without a driver
        nobody looks.
        """
        left, lag = self.record.get("left"), self.record.get("lag")
        seen = lag if isinstance(lag, Mapping) and self.state is JobState.RUNNING else {}
        rows = left if isinstance(left, Mapping) else {}
        return {name: seen.get(name) if known is None else known for name, known in rows.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return {
            "job": self.job,
            "state": self.state.name.lower(),
            "says": self.state.value,
            "holder": self.holder,
            "epoch": self.epoch,
            "next_batch": self.next_batch,
            "pending": self.pending,
            "last_batch": self.last.to_json() if self.last is not None else None,
            "goes_on_from": self.goes_on_from,
            "watermark": {step: moment(mark) for step, mark in self.watermarks.items()},
            "waits_for": {mark.name: mark.waits_for for mark in self.marks},
            "totals": None if self.totals is None else asdict(self.totals),
            "ms": self.ms,
            "rows_per_second": self.record.get("rows_per_second"),
            "rows_left": self.left,
            "limits": self.record.get("limits"),
            "receivers": self.record.get("receivers"),
            "stage": self.record.get("stage"),
            "data_checkpoint": self.record.get("data_checkpoint"),
            **self.load.to_json(),
            "heartbeat_age": self.heartbeat_age,
            "held": list(self.held),
            "undone": list(self.undone),
            "moved_to": self.moved_to,
            "error": dict(self.error) if self.error is not None else None,
        }


@dataclass(frozen=True, kw_only=True)
class KeptCheckpoint:
    """Hold one Commit that the log keeps.

    `missing` is a file that its state needs and that is gone, so that it cannot be restored; `undone` says that a
    restore to an earlier batch has superseded it. `stored` says what its state takes, None where nobody asked. With
    `kept` it can be named by its batch; else only by a name that it was saved under.
    """

    commit: Commit
    missing: str | None
    undone: bool
    saved: tuple[str, ...]
    stored: StoredState | None = None
    kept: bool = True

    @cached_property
    def report(self) -> BatchReport:
        """Return the report on its batch."""
        return BatchReport.of(self.commit)

    @property
    def restorable(self) -> bool:
        """Return whether a restore to it can succeed."""
        return self.trouble is None

    @property
    def trouble(self) -> str | None:
        """Return why it cannot be restored, None where it can."""
        if self.stored is not None and self.stored.trouble is not None:
            return self.stored.trouble
        return None if self.missing is None else f"{self.missing} is gone"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            **self.report.to_json(),
            "restorable": self.restorable,
            "missing": self.missing,
            "undone": self.undone,
            "saved": list(self.saved),
            "written_bytes": dict(self.commit.written),
            "trouble": self.trouble,
            "kept": self.kept,
            "state": None if self.stored is None else self.stored.to_json(),
        }


def read_status(settings: Settings, job: str, clock: Clock, *, recovered: Recovered | None = None) -> JobStatus:
    """Return the status of a job; damage in the log is part of the answer, not an error.

    `recovered` is what was read of the log just before, if it was: reading it is most of the work.
    """
    log = job_log(settings.root / job)
    if log is None:
        gone = former_checkpoint(settings.root / job)
        return JobStatus(job=job, state=JobState.GONE if gone else JobState.NEW, error=_told(gone) if gone else None)
    control = control_store(settings.root, make=False)
    view = survey(log)
    if recovered is None:
        recovered = recover(log, Damage.LIST)
    newest = StatusRecords(control, job).newest()
    record: Mapping[str, Any] = newest.body if newest is not None else {}
    if view.takeover is not None and not is_of_last_driver(log, view.takeover, record.get("writer")):
        record = {}  # of a driver before, or of one that was fenced and does not know it
    at = record.get("at")
    age = (clock.wall() - at) / 1_000_000 if isinstance(at, int | float) and abs(at) <= END_OF_TIME else None
    problem = recovered.problems[0] if recovered.problems else None
    last_error = record.get("error")
    error = last_error if isinstance(last_error, Mapping) else None
    if problem is not None:
        error = _told(problem)
    rulings = HeldRecords(control, job)
    held = {*waiting(rulings, recovered)} | _held_before(record, rulings, recovered)
    undone = recovered.held.undone | (batches_in(record, "undone") - {*recovered.held})
    return JobStatus(
        job=job,
        state=JobState.NEEDS_PERSON
        if problem is not None
        else _state(view, driver_left(log, view), record, age, settings.run.takeover_after.seconds),
        holder=view.holder,
        epoch=view.epoch,
        last=BatchReport.of(recovered.kept[-1]) if recovered.kept else None,
        goes_on_from=recovered.commit.batch if recovered.commit is not None else None,
        watermarks=recovered.commit.watermarks_out if recovered.commit is not None else {},
        totals=Totals.of(recovered.commit),
        record=record,
        heartbeat_age=None if age is None else round(age, 1),
        next_batch=recovered.next_batch,
        pending=recovered.pending is not None,
        held=tuple(sorted(held)),
        undone=tuple(sorted(held & undone)),
        moved_to=view.last.to if isinstance(view.last, Moved) else None,
        error=error,
        load=load_report(recovered.kept),
        marks=watermark_report(recovered.commit, record)[0],
    )


def kept_checkpoints(
    settings: Settings, job: str, *, newest: int | None = None
) -> tuple[list[KeptCheckpoint], Recovered] | None:
    """Return the Commits that can be restored, oldest first, and what the log says; None without a checkpoint.

    With `newest` that of so many batches, at the price of reading those.
    """
    folder = settings.root / job
    log = job_log(folder)
    if log is None:
        return None
    recovered = recover(log, Damage.LIST, newest=newest)
    undone = undone_by_restore(recovered)
    saved: dict[int, list[str]] = {}
    for name, batch in recovered.saves.batches.items():
        saved.setdefault(batch, []).append(name)
    is_there = (folder / "state").presence()
    checkpoints = [
        KeptCheckpoint(
            commit=kept,
            missing=_missing(folder, kept, is_there),
            undone=kept.batch in undone,
            saved=tuple(saved.get(kept.batch, ())),
        )
        for kept in recovered.kept
    ]
    return checkpoints, recovered


def all_checkpoints(settings: Settings, job: str) -> tuple[list[KeptCheckpoint], Recovered] | None:
    """Return the same with what the state of each takes, and with the saved Commits of batches that are older.

    Every manifest is read for it.
    """
    known = kept_checkpoints(settings, job)
    if known is None:
        return None
    checkpoints, recovered = known
    states = StoredStates(settings.root / job)
    points = {point.commit.batch: replace(point, stored=states.of(point.commit)) for point in checkpoints}
    for name, commit in recovered.saves.readable().items():
        if commit.batch not in points:
            stored = states.of(commit)
            points[commit.batch] = KeptCheckpoint(
                commit=commit, missing=None, undone=False, saved=(), stored=stored, kept=False
            )
        if not points[commit.batch].kept:
            points[commit.batch] = replace(points[commit.batch], saved=(*points[commit.batch].saved, name))
    return [points[batch] for batch in sorted(points)], recovered


def _state(view: View, left: Release | None, record: Mapping[str, Any], age: float | None, patience: float) -> JobState:
    if view.tail < 0:
        return JobState.NEW
    if isinstance(view.last, Moved | Arrival):
        return JobState.MOVED if isinstance(view.last, Moved) else JobState.ARRIVING
    # What a driver that is told to stop gives up ends with an error too, and is no failure of the job.
    stopped = record.get("state") == "stopped"
    if left is not None and (left.reason != FAILED or stopped):
        return JobState.FINISHED if left.reason == "finished" else JobState.STOPPED
    if record.get("state") == "failed":
        return JobState.FAILED if record.get("exit_code") == EXIT_RETRY else JobState.NEEDS_PERSON
    if view.takeover is not None and is_gone(view.takeover.holder):
        return JobState.DIED
    # One look cannot tell whether a heartbeat stands still; the clocks of two machines are good enough for a picture.
    return JobState.RUNNING if age is not None and age < patience else JobState.SILENT


def _held_before(record: Mapping[str, Any], rulings: HeldRecords, recovered: Recovered) -> set[int]:
    """Return the undecided batches that the last driver knew of, and that stand before what was read of the log."""
    decided = ((batch, rulings.ruling(batch)) for batch in batches_in(record, "held") if batch < recovered.floor)
    return {batch for batch, ruling in decided if ruling is None or not ruling.done}


def _told(error: PenstockError) -> dict[str, Any]:
    return {"code": error.code, "what": error.what, "where": error.where, "remedy": error.remedy}


def _missing(folder: CheckpointFolder, commit: Commit, is_there: Callable[[CheckpointFolder], bool]) -> str | None:
    for step, refs in commit.state.items():
        for partition, ref in refs.items():
            path = f"state/{step}/{partition}/{ref.path}"
            if not is_there(folder / path):
                return path
    return None
