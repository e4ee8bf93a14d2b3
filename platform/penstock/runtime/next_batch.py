"""Plan the next batch: what it reads, its time, and the watermarks it judges and closes by. Reads, writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from penstock.checkpoint.entries import Commit, Offsets, StepWatermarks
from penstock.graph.graph import JobGraph
from penstock.graph.nodes import WindowNode
from penstock.runtime.engine import Engine
from penstock.runtime.triggers import Trigger
from penstock.sources.base import ReadLimit, Span
from penstock.time.watermarks import idle_due

__all__ = ["DRAIN", "NextBatch", "available", "chained_steps", "next_batch", "spans_of"]

DRAIN = "drain"
"""The setting of a batch that ends all sources."""
_POLL = 50_000
"""How long to wait for new rows, microseconds."""


@dataclass(frozen=True, slots=True)
class NextBatch:
    """Hold the Offsets of the next batch, or None to wait; `wait` is in microseconds."""

    offsets: Offsets | None
    wait: int = 0
    merged: int = 0


def next_batch(
    engine: Engine,
    commit: Commit | None,
    *,
    batch: int,
    zero: int | None,
    last_time: int | None,
    trigger: Trigger,
    now: int,
    target: Mapping[str, Any] | None,
    drain: bool = False,
    limit: ReadLimit,
    epoch: int,
    writer: str,
) -> NextBatch | None:
    """Return the next batch, a wait, or None when nothing will ever come.

    `zero` is the job's zero time and `last_time` the newest batch time in the log, None before the first batch:
    batch times go on from it, whatever was restored.
    `target` bounds what is read, for `available_now`; with `drain` the sources end there, and all windows close.
    `limit` bounds what one batch reads of each source; that it was in force is said in the Offsets.
    """
    graph = engine.graph
    zero = trigger.zero(now) if zero is None else zero
    tick = trigger.next(zero, last_time, now)
    ranges = {s.name: _range(engine, s.name, commit, target, limit) for s in graph.sources}
    fresh = any(r["span"] is not None for r in ranges.values())
    ending = False
    if not fresh and not _due(graph, commit, tick.time) and not _closing(engine, commit, ranges):
        going = [name for name, r in ranges.items() if not (_has_ended(commit, name) or engine.ended(name, r["end"]))]
        left_open = drain and _is_open(commit)  # also by sources whose end closes nothing
        if not (going or left_open) or (target is not None and not drain):
            return None
        if not drain:
            return NextBatch(None, wait=max(_POLL, tick.wait))
        ending = True
    settings: dict[str, Any] = {
        "zero": zero,
        "interval": trigger.interval,
        "merged_ticks": tick.merged,
        "partitions": {w.name: w.partitions for w in graph.windows},
        # A batch means the same however often it is run: that it ends the sources is fixed with its ranges.
        **({DRAIN: True} if ending else {}),
    }
    offsets = Offsets(
        epoch=epoch,
        writer=writer,
        batch=batch,
        time=tick.time,
        ranges=ranges,
        watermarks=_watermarks(graph, commit),
        limits={"rows": limit.rows} if limit.rows is not None else {},
        settings=settings,
    )
    return NextBatch(offsets, wait=tick.wait, merged=tick.merged)


def chained_steps(graph: JobGraph) -> frozenset[str]:
    """Return the window steps that read another window step's output."""
    return frozenset(
        w.name for w in graph.windows if any(isinstance(n, WindowNode) and n is not w for n in graph.upstream(w))
    )


def _range(
    engine: Engine, source: str, commit: Commit | None, target: Mapping[str, Any] | None, limit: ReadLimit
) -> dict[str, Any]:
    known = commit.sources.get(source) if commit is not None else None
    start = known.position if known is not None else None
    if known is not None and known.ended:
        return {"start": start, "end": dict(known.position), "span": None}
    end = engine.latest(source, start, limit)
    if target is not None and start is not None and start == target[source]:
        end = start
    if start is not None and end == start:
        return {"start": start, "end": dict(start), "span": None}
    return {"start": start, "end": dict(end), "span": dict(engine.span(source, start, end))}


def _due(graph: JobGraph, commit: Commit | None, time: int) -> bool:
    """Return whether a window closes, or a partition becomes idle, without any row (SEMANTICS 1.4, 2.2)."""
    if commit is None:
        return False
    for step, end in commit.due.items():
        mark = commit.watermarks_out.get(step)
        if end is not None and mark is not None and mark >= end:
            return True
    if not _is_open(commit):
        return False
    for source in graph.sources:
        progress = commit.sources.get(source.name)
        at = None if progress is None or progress.ended else idle_due(progress.partitions, source.idle_after)
        if at is not None and at <= time:
            return True
    return False


def _is_open(commit: Commit | None) -> bool:
    """Return whether windows are open."""
    return commit is not None and any(end is not None for end in commit.due.values())


def _has_ended(commit: Commit | None, source: str) -> bool:
    """Return whether a Commit says that nothing of the source is read any more, after its end or a drain."""
    known = commit.sources.get(source) if commit is not None else None
    return known is not None and known.ended


def _closing(engine: Engine, commit: Commit | None, ranges: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a source has ended and no Commit says so yet."""
    return any(engine.ended(name, r["end"]) and not _has_ended(commit, name) for name, r in ranges.items())


def _watermarks(graph: JobGraph, commit: Commit | None) -> dict[str, StepWatermarks]:
    """Return what each step judges lateness by and closes by.

    A chained step judges by the watermark of the batch before: the rows it gets were made by closing up to this one.
    """
    chained = chained_steps(graph)
    marks: dict[str, StepWatermarks] = {}
    for window in graph.windows:
        close = commit.watermarks_out.get(window.name) if commit is not None else None
        late = commit.watermarks_in.get(window.name) if commit is not None and window.name in chained else close
        marks[window.name] = StepWatermarks(late=late, close=close)
    return marks


def spans_of(offsets: Offsets) -> dict[str, Span | None]:
    """Return what the tasks of a batch read of each source, None for nothing."""
    return {name: cast("Span | None", ranges["span"]) for name, ranges in offsets.ranges.items()}


def available(engine: Engine, commit: Commit | None) -> dict[str, Any]:
    """Return how far each source can be read now, for a run that ends there."""
    found: dict[str, Any] = {}
    for source in engine.graph.sources:
        known = commit.sources.get(source.name) if commit is not None else None
        position = known.position if known is not None else None
        while (further := engine.latest(source.name, position, ReadLimit())) != position:
            position = dict(further)
        found[source.name] = position
    return found
