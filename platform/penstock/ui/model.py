"""The content of a job's pages as values, made from its records and its log. Pure, and without any layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import Any

from penstock.checkpoint.log.batch_report import BatchReport
from penstock.checkpoint.log.entries import END_OF_TIME, Commit
from penstock.errors import PenstockError
from penstock.rates.limits import Limits, SourceLimits
from penstock.runtime.inspect.job_status import JobState, JobStatus, KeptCheckpoint
from penstock.runtime.inspect.open_windows import StepWaits
from penstock.supervise.ended import is_outdated
from penstock.supervise.stream import Phase, Stream, why_rolled_back
from penstock.ui.commits import SinkEnd, SourceEnd, sinks_of, sources_of
from penstock.ui.flow import Flow, flow_of
from penstock.ui.formatting import finite, total
from penstock.ui.receiver_lines import ReceiverLine, receivers_of

__all__ = ["JobView", "Judged", "Reading", "Step", "Tone", "Trouble", "Unit", "view_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An error for a page: what is wrong, where, and what to do about it."""

    what: str
    code: str | None = None
    where: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        """Return what an error says; one that nobody foresaw is named as such."""
        if isinstance(error, PenstockError):
            return cls(what=error.what, code=error.code, where=error.where, remedy=error.remedy)
        if isinstance(error, OSError):
            remedy = "Look whether the folder is there and can be read by the user of this process."
            return cls(what=str(error), remedy=remedy)
        return cls(what=f"{type(error).__name__}: {error}", code="PEN-000", remedy="This is an error in Penstock.")

    @classmethod
    def told(cls, record: Mapping[str, Any] | None) -> Trouble | None:
        """Return what a status record says of an error."""
        if record is None:
            return None
        words = {name: str(record[name]) for name in ("code", "where", "remedy") if record.get(name)}
        return cls(what=str(record.get("what")), **words)


_HOUR = 3_600_000_000
_OLD = 48 * _HOUR  # of delay: beyond it a job reads old data, and its delay says nothing
_NEWEST_UNITS = 20
_NEWEST_CHANGES = 20
_FINE = ("passed", "empty")


class Tone(Enum):
    """How a state is to be taken; a page shows it by a sign and a word, and by colour as well."""

    GOOD = "good"
    WAITS = "waits"
    BAD = "bad"
    QUIET = "quiet"


_TONES = {
    Phase.RUNNING: Tone.GOOD,
    Phase.FAILED: Tone.BAD,
    Phase.STOPPED: Tone.QUIET,
    Phase.SUSPENDED: Tone.QUIET,
    Phase.FINISHED: Tone.QUIET,
}
_STATE_TONES = {
    JobState.RUNNING: Tone.GOOD,
    JobState.SILENT: Tone.WAITS,
    JobState.ARRIVING: Tone.WAITS,
    JobState.DIED: Tone.BAD,
    JobState.GONE: Tone.BAD,
    JobState.FAILED: Tone.BAD,
    JobState.NEEDS_PERSON: Tone.BAD,
}
_LIMITS = {
    "rows": "rows a batch",
    "bytes": "bytes a batch",
    "files": "files a batch",
    "max_rate": "rows a second",
    "max_rate_per_partition": "rows a second and partition",
    "paused": "pause",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The facts of one job, read by the functions that the commands use.

    `asked` says whether anybody ever asked anything of the stream. `history` are its kept records, and `kept` the kept
    batches, oldest first. `in_force` is the Commit that the job resumes from, `waits` what waits in the state of its
    steps, and `published` the newest batch that each sink is known to show.
    """

    job: str
    now: int
    asked: bool
    supervised: bool
    stream: Stream
    status: JobStatus
    limits: Limits
    history: Sequence[tuple[int, Stream]] = ()
    kept: Sequence[KeptCheckpoint] = ()
    in_force: Commit | None = None
    waits: Sequence[StepWaits] = ()
    published: Mapping[str, int] = field(default_factory=dict)
    saves: Mapping[str, int] = field(default_factory=dict)
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One thing that a check has judged in a batch: a closed window, by its `end`, or where that is None the batch."""

    batch: int
    check: str
    end: int | None
    status: str
    action: str
    rows: int
    failed: tuple[str, ...]

    @property
    def fine(self) -> bool:
        """Return whether no rule that decides has failed."""
        return self.status in _FINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step with state as the newest Commit tells it.

    `due` is the watermark at which something happens next: the end of the first window that is open, a timer, a
    deadline. `due_time` is the batch time at which something does. `rows`, `counted` and `late` are those of the kept
    batches together; a function takes all rows. `waits_for` says what holds the watermark back.
    """

    name: str
    watermark: int | None
    due: int | None
    due_time: int | None
    rows: int
    counted: int
    late: int
    state_bytes: int | None
    waits_for: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The newest batch that a check has judged, and how many of its units came out how."""

    batch: int
    verdicts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The rate of a batch, rows a second, and by source the rule that left rows of it that waited."""

    rate: int | None = None
    bound: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, record: object) -> Admission:
        """Read what a record says; what makes no sense counts as not there (F77)."""
        limits = record if isinstance(record, Mapping) else {}
        rate, bound = finite(limits.get("rate")), limits.get("bound")
        return cls(
            rate=None if rate is None else round(rate),
            bound={str(s): str(rule) for s, rule in bound.items()} if isinstance(bound, Mapping) else {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """The content of a job's pages. Times are microseconds since 1970, durations microseconds.

    `since` is when the stream came into its state, None where the state is what its driver and its log say.
    `rows_left` is None where a source does not know what it still has. `delay` is now minus the lowest watermark of a
    step, None without one. `changes` are the records of the stream that people see a change in, newest first.
    """

    reading: Reading
    state: str
    tone: Tone
    since: int | None
    newest: BatchReport | None
    rate: float | None
    rows_left: int | None
    idle_for: int | None
    watermark: int | None
    delay: int | None
    judged: Judged | None
    failures: int
    error: Trouble | None
    batches: tuple[KeptCheckpoint, ...]
    steps: tuple[Step, ...]
    units: tuple[Unit, ...]
    changes: tuple[Stream, ...]
    sources: tuple[SourceEnd, ...]
    sinks: tuple[SinkEnd, ...]
    receivers: tuple[ReceiverLine, ...]
    flow: Flow | None

    @property
    def job(self) -> str:
        """Return the name of the job."""
        return self.reading.job

    @property
    def stream(self) -> Stream:
        """Return what is wanted of the stream and what became of it."""
        return self.reading.stream

    @property
    def is_replay(self) -> bool:
        """Return whether event time lies so far back that its distance from now says nothing: old data are read."""
        return self.delay is not None and self.delay > _OLD

    @property
    def runs(self) -> bool:
        """Return whether a driver is at work."""
        return self.reading.status.state is JobState.RUNNING

    @property
    def rolled_back_for(self) -> str | None:
        """Return why the version was rolled back, None where the kept records no longer tell."""
        version = self.stream.rolled_back
        return None if version is None else why_rolled_back(version, (stream for _, stream in self.reading.history))

    @property
    def has_ended(self) -> bool:
        """Return whether a start would read nothing, because all sources have ended and no driver runs."""
        return not self.runs and bool(self.sources) and all(source.ended for source in self.sources)

    @property
    def limits(self) -> Limits:
        """Return the hard limits in force: those that were set, over those of the configuration."""
        return (self.stream.limits or Limits()).over(self.reading.limits)

    @property
    def limited_sources(self) -> tuple[str, ...]:
        """Return the sources that may have limits of their own, and those that are gone and have some still."""
        return tuple(dict.fromkeys([*(source.name for source in self.sources), *self.limits.sources]))

    def limits_of(self, source: str | None) -> SourceLimits:
        """Return the limits in force that are of one source alone; for None those of each."""
        return self.limits if source is None else self.limits.sources.get(source, SourceLimits())

    @property
    def set_limits(self) -> tuple[str, ...]:
        """Return the limits that a form or a command has set, as forms call them."""
        limits = self.stream.limits or Limits()
        of_each = [_LIMITS[name] for name in limits.set_limits() if name in _LIMITS]
        return (*of_each, *(f"those of {source}" for source in limits.sources))

    @property
    def admitted(self) -> Admission:
        """Return what the newest batch could read, as its driver says."""
        return Admission.of(self.reading.status.record.get("limits"))


def view_of(reading: Reading) -> JobView:
    """Return what the pages show of what was read."""
    status, stream = reading.status, reading.stream
    newest = status.last
    watermark, delay = _watermark(status.watermarks, reading.now)
    runs = status.state is JobState.RUNNING
    rate = status.record.get("rows_per_second")
    # Beside a stream that somebody ended, or that finished, a driver that runs was started by hand.
    by_hand = runs and stream.is_over and not status.record.get("generation")
    outdated = is_outdated(stream, status.state, supervised=reading.supervised)
    of_stream = reading.asked and not outdated and not (by_hand and stream.phase is not Phase.FAILED)
    return JobView(
        reading=reading,
        state=stream.phase.value if of_stream else status.state.value,
        tone=_TONES.get(stream.phase, Tone.WAITS)
        if of_stream and status.state is not JobState.GONE
        else _STATE_TONES.get(status.state, Tone.QUIET),
        since=stream.since if of_stream else None,
        newest=newest,
        rate=finite(rate) if runs else None,
        rows_left=total(status.left),
        idle_for=None if newest is None else reading.now - newest.time,
        watermark=watermark,
        delay=delay,
        judged=_judged(reading.kept, status.record.get("judged")),
        failures=sum(at > reading.now - _HOUR for at in stream.failures),
        error=Trouble.told(status.error),
        batches=tuple(reading.kept),
        steps=tuple(_steps(reading)),
        units=tuple(_newest_units(reading.kept)),
        changes=tuple(_changes(reading.history)),
        sources=sources_of(reading.in_force, status.left),
        sinks=sinks_of(reading.in_force, reading.published, status.record.get("sinks") or status.record.get("tables")),
        receivers=receivers_of(status.record.get("receivers")) if runs else (),
        flow=flow_of(status.record.get("graph")),
    )


def _watermark(marks: Mapping[str, int | None], now: int) -> tuple[int | None, int | None]:
    known = [mark for mark in marks.values() if mark is not None]
    if not known or len(known) < len(marks):
        return None, None
    least = min(known)
    return least, None if least >= END_OF_TIME else now - least


def _judged(batches: Sequence[KeptCheckpoint], record: object) -> Judged | None:
    """Return the newest verdicts of the batches that were read; else those that the driver's record tells of."""
    for batch in reversed(batches):
        if batch.report.verdicts:
            return Judged(batch.report.batch, batch.report.verdicts)
    if not isinstance(record, Mapping) or not isinstance(record.get("batch"), int):
        return None
    verdicts = record.get("verdicts")
    counts = {str(k): n for k, n in verdicts.items() if isinstance(n, int)} if isinstance(verdicts, Mapping) else {}
    return Judged(record["batch"], counts) if counts else None


def units_of(commit: Commit) -> Iterator[Unit]:
    """Yield what the checks have judged in a batch."""
    for verdict in commit.verdicts:
        results = verdict.get("results")
        rules = [r for r in results if isinstance(r, Mapping)] if isinstance(results, list) else []
        end = verdict.get("unit")
        rows = verdict.get("rows")
        yield Unit(
            batch=commit.batch,
            check=str(verdict.get("check")),
            end=end if isinstance(end, int) else None,
            status=str(verdict.get("status")),
            action=str(verdict.get("action")),
            rows=rows if isinstance(rows, int) else 0,
            failed=tuple(str(r.get("rule")) for r in rules if r.get("success") is False),
        )


def _newest_units(batches: Sequence[KeptCheckpoint]) -> list[Unit]:
    """Return the units judged last, newest first: by batch, and in one by the end of the window."""
    units: list[Unit] = []
    for batch in reversed(batches):
        units += sorted(units_of(batch.commit), key=lambda unit: -1 if unit.end is None else unit.end, reverse=True)
        if len(units) >= _NEWEST_UNITS:
            break
    return units[:_NEWEST_UNITS]


_NO_STEPS = frozenset({"source", "requeue", "filter", "check", "batches"})
"""What is accounted for beside the steps that keep state, each under the word of its operator."""


def _steps(reading: Reading) -> Iterator[Step]:
    if not reading.kept:
        return
    newest = reading.kept[-1].commit
    totals: Counter[tuple[str, str]] = Counter()
    for batch in reading.kept:
        for name, counts in batch.commit.accounting.items():
            kind, _, step = name.partition(":")
            if kind not in _NO_STEPS:
                totals.update({(step, count): n for count, n in counts.items()})
    waits = {mark.name: mark.waits_for for mark in reading.status.marks}
    for name, mark in reading.status.watermarks.items():
        yield Step(
            name=name,
            watermark=mark,
            due=newest.due.get(name),
            due_time=newest.due_time.get(name),
            rows=totals[name, "rows"],
            counted=totals[name, "counted"] or totals[name, "merged"],
            late=totals[name, "late"],
            state_bytes=newest.written.get(f"state:{name}"),
            waits_for=waits.get(name),
        )


def _changes(history: Sequence[tuple[int, Stream]]) -> list[Stream]:
    """Return the records in which phase, generation or reason changed, or who asked, newest first."""
    shown = attrgetter("since", "phase", "generation", "reason", "asked_by")
    changes = [next(same) for _, same in groupby((stream for _, stream in history), key=shown)]
    return changes[: -_NEWEST_CHANGES - 1 : -1]
