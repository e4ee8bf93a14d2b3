"""Check what a test asks a harness for: batch times, rows to feed, a checkpoint to restore, a point to crash at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any

from penstock.errors import UnknownName
from penstock.graph.graph import JobGraph
from penstock.graph.job import Job
from penstock.graph.nodes import QuarantineNode
from penstock.graph.source_location import job_error
from penstock.runtime.driver.engine import Engine
from penstock.runtime.driver.loop import Driver
from penstock.runtime.driver.stages import Hook, Stage
from penstock.runtime.restore.target import RestoreTarget
from penstock.sources.memory import MemoryReader, MemorySource
from penstock.time.triggers import AsFastAsPossible, FixedInterval, Tick

__all__ = [
    "AskedFor",
    "Crashed",
    "Marks",
    "Untimed",
    "checked_feed",
    "checked_hook",
    "checked_time",
    "memory_sources",
    "micros",
    "refuse_unknown",
    "start_from",
    "trigger_of",
]

Marks = float | datetime | Mapping[str, float | datetime] | None
"""A watermark that all memory sources report, or those of some; numbers are seconds since 1970."""
_AROUND = ("before", "after")
_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOOKS: dict[str, tuple[str, ...]] = {
    **{stage.value[0]: _AROUND for stage in Stage},
    "TakeOver": ("before", "surveyed", "claimed", "after", "done"),
    "Release": _AROUND,
    "Restore": _AROUND,
    "Truncate": _AROUND,
    "Wait": ("before",),
}
"""The points of the loop where a test may stop the driver dead (DESIGN 4)."""


@dataclass(frozen=True, slots=True)
class AskedFor(FixedInterval):
    """Take multiples of the interval, but the time `at` (microseconds since 1970) until a batch has had it."""

    at: int | None = None

    def next(self, zero: int, last: int | None, now: int) -> Tick:
        """Return the time that the test sets, or else the next multiple."""
        if self.at is None or (last is not None and last >= self.at):
            return FixedInterval.next(self, zero, last, now)
        behind = zero if last is None else last
        missed = (self.at - 1 - zero) // self.interval - (behind - zero) // self.interval
        return Tick(self.at, wait=max(0, self.at - now), merged=missed)


@dataclass(frozen=True, slots=True)
class Untimed(AsFastAsPossible):
    """Run a job without an interval: as fast as possible, at the times that the harness's clock gives (SEMANTICS 1.4).

    As in production no tick makes a batch due, and none is missed.
    """

    times: AskedFor

    def zero(self, now: int) -> int:
        """Return the zero time."""
        return self.times.zero(now)

    def next(self, zero: int, last: int | None, now: int) -> Tick:
        """Return the next time of the clock."""
        return replace(self.times.next(zero, last, now), merged=0)


def micros(at: float | datetime) -> int:
    """Return a datetime, UTC where it has no zone, or seconds since 1970, as microseconds. Raises JobError."""
    if isinstance(at, datetime):
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    if isinstance(at, bool) or not isinstance(at, Real | Decimal) or not isfinite(at):
        raise job_error(f"a time of the harness is {at!r}; write seconds since 1970, or a datetime")
    return round(at * 1_000_000)


def trigger_of(job: Job, given: int | None, zero: int, *, at: int | None) -> AskedFor | Untimed:
    """Return when batches run; `given` is the interval of the harness in microseconds, None where none was given.

    A job that says no interval runs as fast as possible, as in production. One that needs ticks takes those given.
    """
    needs = given is not None and any(step.spec.needs_ticks for step in job.graph().steps)
    interval = job.interval or (given if needs else None)
    times = AskedFor(interval or given or _SECOND, zero, at=at)
    return Untimed(times) if interval is None else times


def checked_time(at: int, driver: Driver, zero: int) -> int:
    """Return the batch time that a test sets; raises JobError where the driver cannot have it.

    `zero` is the zero time of a job that has had no batch.
    """
    interval = driver.trigger.interval
    zero = zero if driver.zero is None else driver.zero
    least, name = (zero, "zero time") if driver.last_time is None else (driver.last_time, "last one")
    if at <= least:
        raise job_error(f"the batch time {_seconds(at)} is not later than the {name}, {_seconds(least)}")
    if interval is not None and (at - zero) % interval:
        raise job_error(
            f"the batch time {_seconds(at)} is not the zero time {_seconds(zero)} plus a multiple of the job's "
            f"interval, {_seconds(interval)} s"
        )
    return at


def _seconds(at: int) -> str:
    """Write microseconds as seconds, with all digits that count."""
    return f"{at / 1_000_000:.6f}".rstrip("0").rstrip(".")


def memory_sources(graph: JobGraph) -> dict[str, MemorySource]:
    """Return the memory sources of a job by name."""
    return {node.name: node.source for node in graph.sources if isinstance(node.source, MemorySource)}


def checked_feed(
    engine: Engine, rows: Mapping[str, Sequence[Any]] | None, watermark: Marks
) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """Return the rows and the watermarks, in microseconds, that are to be fed, both by source.

    Raises UnknownName, and JobError for rows of no source or of one that has ended, for rows that are no dicts, and
    for a watermark that is no time. Also for a column that the source does not have, unless the job reads the
    quarantine, where such a row goes.
    """
    sources = memory_sources(engine.graph)
    if not isinstance(rows, Mapping | None):
        example = f"{{{next(iter(sources), 'orders')!r}: [row, …]}}"
        raise job_error(f"batch got {rows!r:.80}; it takes a dict that maps sources to rows, as {example}")
    watermarks = watermark if isinstance(watermark, Mapping) else dict.fromkeys(sources, watermark)
    fed = {name: _checked_rows(name, listed) for name, listed in (rows or {}).items()}
    refuse_unknown([*fed, *watermarks], sources)
    if over := sorted(name for name in fed if sources[name].ended):
        raise job_error(f"source {over[0]!r} has ended and takes no more rows")
    quarantines = {node.name for node in engine.graph.nodes if isinstance(node, QuarantineNode)}
    for name in fed.keys() - quarantines:
        reader = engine.source(name)
        if isinstance(reader, MemoryReader):
            _refuse_strange(name, fed[name], reader.schema.names)
    return fed, {name: micros(mark) for name, mark in watermarks.items() if mark is not None}


def _checked_rows(source: str, listed: object) -> list[Any]:
    """Return rows, or the rows of each partition, as a list."""
    if isinstance(listed, Mapping | str | bytes) or not isinstance(listed, Iterable):
        raise job_error(f"the rows of source {source!r} are {listed!r:.80}; give a list of dicts")
    rows = list(listed)
    partitioned = bool(rows) and all(isinstance(part, list | tuple) for part in rows)
    if odd := [row for part in (rows if partitioned else [rows]) for row in part if not isinstance(row, Mapping)]:
        raise job_error(f"a row of source {source!r} is {odd[0]!r:.80}; a row is a dict of column to value")
    return rows


def _refuse_strange(source: str, rows: list[Any], columns: list[str]) -> None:
    """Raise JobError for a row with a column that the source does not have."""
    for row in (row for part in rows for row in ([part] if isinstance(part, Mapping) else part)):
        if strange := [name for name in row if name not in columns]:
            raise job_error(
                f"a row of source {source!r} has the column {strange[0]!r}, and the source has {', '.join(columns)}: "
                "without job.quarantine(…) of the source the row would be gone"
            )


def refuse_unknown(names: Iterable[str], sources: Mapping[str, MemorySource]) -> None:
    """Raise UnknownName for what is no memory source."""
    if unknown := sorted(set(names) - sources.keys()):
        raise job_error(f"{unknown[0]!r} is not a MemorySource of the job; there is {list(sources)}", UnknownName)


def start_from(
    batch: int | None,
    saved: str | None,
    snapshot: str | None,
    *,
    empty: bool,
    partitions: int | None,
    state: Mapping[str, str | Path],
    truncate: bool,
) -> RestoreTarget:
    """Return where to start; raises JobError where that is said twice or not at all."""
    places = [place for place in (batch, saved, snapshot) if place is not None]
    if len(places) + empty > 1 or not (places or partitions is not None or state or empty):
        raise job_error('say what to restore: batch=N, saved="name", snapshot="N", or empty=True')
    start = RestoreTarget(restore=bool(places) or empty, batch=batch, saved=saved, snapshot=snapshot)
    tables = {step: str(table) for step, table in state.items()}
    return start.having(partitions=partitions, state=tables, truncate=truncate)


class Crashed(Exception):
    """The driver was stopped dead at the hook that the test had asked for."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        super().__init__(f"crashed {hook.when} {hook.stage} of batch {hook.batch}")


def checked_hook(stage: str, when: str) -> tuple[str, str]:
    """Return the hook's name. Raises UnknownName, a JobError, for one that the loop does not have."""
    if stage not in _HOOKS:
        raise job_error(f"{stage!r} is not a stage; there is {', '.join(_HOOKS)}", UnknownName)
    # Between two sinks: which there are is for the job of then to say.
    word = {"PublishSinks": "published", "Truncate": "truncated"}.get(stage)
    if when not in _HOOKS[stage] and not (word is not None and when.startswith(f"{word} ")):
        between = "" if word is None else f", {word} SINK"
        raise job_error(
            f"stage {stage!r} has no hook {when!r}; there is {', '.join(_HOOKS[stage])}{between}", UnknownName
        )
    return stage, when
