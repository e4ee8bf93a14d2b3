"""Plan the next batch: what it reads, its time, and the watermarks it judges and closes by. Reads, writes nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import structlog

from penstock.checkpoint.log.entries import END_OF_TIME, HELD_BACK, Commit, Offsets, SourceProgress, StepWatermarks
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.graph.graph import JobGraph
from penstock.graph.nodes import SourceNode
from penstock.graph.steps import StepNode
from penstock.runtime.driver.admission import Admitted, Backlogs, held_back_of
from penstock.runtime.driver.engine import Engine
from penstock.runtime.driver.settings import DriverSettings
from penstock.runtime.driver.source_alignment import ahead_of, held_at, ruled
from penstock.runtime.driver.table_versions import TABLES, tables_of
from penstock.runtime.driver.watermarks import idle_due
from penstock.runtime.snapshots.scheduler import DataCheckpoints
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.sources.backlog import Ends, Waiting, clamp
from penstock.sources.base import Span
from penstock.time.clock import Clock
from penstock.time.triggers import Trigger, multiple_from

__all__ = [
    "DRAIN",
    "GONE",
    "REQUEUE",
    "REQUEUES",
    "NextBatch",
    "TickClock",
    "available",
    "facts_of",
    "next_batch",
    "reached",
    "requeues_of",
    "rows_of",
    "spans_of",
]

log = structlog.get_logger()

DRAIN = "drain"
"""The setting of a batch that ends all sources."""
GONE = "gone"
"""What the ranges of a source say of its partitions that are gone; HELD_BACK names those with rows that it leaves."""
REQUEUE = "requeue"
"""What the ranges of a source say of rows of its quarantine that the batch sends through again (decision 134)."""
REQUEUES = "requeued"
"""The folder below the checkpoint that has the files of such rows."""
_POLL = 50_000
"""How long to wait for new rows, microseconds."""


@dataclass(frozen=True, slots=True)
class NextBatch:
    """Hold the Offsets of the next batch, or None to wait; `wait` is in microseconds.

    `since` is the time from which the driver could read. `follows`: not just because time has passed. Of a wait,
    `limits` are those in force, as Offsets have them, and `held_back` the partitions that they keep rows in, by source.
    """

    offsets: Offsets | None
    since: int
    wait: int = 0
    follows: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict)
    held_back: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def tell_wait(self, listener: Listener) -> None:
        """Tell a listener that there is no batch to run now."""
        listener.on_waiting(self.limits, self.held_back)


def next_batch(
    engine: Engine,
    commit: Commit | None,
    *,
    batch: int,
    zero: int,
    last_time: int | None,
    trigger: Trigger,
    now: int,
    target: Mapping[str, Ends] | None,
    drain: bool = False,
    weigh: bool = False,
    admit: Callable[[Backlogs, Backlogs, int | None], Admitted],
    epoch: int,
    writer: str,
    since: int | None = None,
) -> NextBatch | None:
    """Return the next batch, a wait, or None when nothing will ever come.

    `zero` is the job's zero time, and `last_time` the newest batch time in the log, None before the first batch:
    batch times continue from it, whatever was restored.
    `target` bounds what is read, for `available_now`; with `drain` the sources end there, and all windows close.
    With `weigh` sources are asked for the bytes that wait, which a limit in bytes needs.
    `admit` returns how far the batch reads each source, from what it may read, all that waits, and the microseconds
    since the last batch. By which limits is said in the Offsets.
    `since` is the time from which this driver could read, None where this batch is the first (SEMANTICS 2.4).
    """
    graph = engine.graph
    tick = trigger.next(zero, last_time, now)
    since = tick.time if since is None else since
    backlogs = _backlogs(engine, commit)
    if weigh:
        backlogs = {name: engine.source(name).weighed(backlog) for name, backlog in backlogs.items()}
    within = backlogs if target is None else {name: clamp(b, target[name]) for name, b in backlogs.items()}
    ahead = ahead_of(graph, commit, None if target is None else within)
    admitted = admit(held_at(within, ahead), backlogs, None if last_time is None else tick.time - last_time)
    admitted = ruled(admitted, within, ahead)
    ranges = {s.name: _range(engine, s, commit, backlogs.get(s.name), admitted) for s in graph.sources}
    for name, rows in ({} if admitted.paused else engine.requeue(commit, batch)).items():
        ranges[name][REQUEUE] = rows
    fresh = any(r["span"] is not None or REQUEUE in r for r in ranges.values())
    ending = False
    ended = {name for name, r in ranges.items() if engine.source(name).ended(r["end"])}
    going = [name for name in ranges if name not in ended and not _has_ended(commit, name)]
    timed = None if target is not None or not going else commit
    by_time = timed is not None and _due_by_time(graph, timed, tick.time, trigger, zero, since)
    # A source has ended, or is dropped, and no Commit says so yet: that is due as well.
    due = (
        _due(graph, commit, tick.time, since, ranges, waits=bool(ahead))
        or any(not _has_ended(commit, name) for name in ended)
        or (commit is not None and not commit.sources.keys() <= ranges.keys())
    )
    if not (fresh or by_time or due):
        waits = NextBatch(None, since, max(_POLL, tick.wait), limits=admitted.limits, held_back=held_back_of(ranges))
        if admitted.paused and target is not None and any(w.rows for b in within.values() for w in b.values()):
            return waits  # it ends when all is read, and not before
        left_open = drain and _is_open(commit)  # also by sources whose end closes nothing
        ends = not (going or left_open) or (target is not None and not drain)
        if ends or not drain:
            return None if ends else waits
        ending = True
    settings: dict[str, Any] = {
        "zero": zero,
        "interval": trigger.interval,
        "merged_ticks": tick.merged,
        "partitions": {step.name: step.partitions for step in graph.steps},
        "since": since,
        # A batch means the same however often it is run: that it ends the sources is fixed with its ranges.
        **({DRAIN: True} if ending else {}),
        **({TABLES: versions} if (versions := engine.tables(commit, batch)) else {}),
    }
    offsets = Offsets(
        epoch=epoch,
        writer=writer,
        batch=batch,
        time=tick.time,
        ranges=ranges,
        watermarks=_watermarks(graph, commit),
        limits=admitted.limits,
        settings=settings,
    )
    # Time passes by itself; what a watermark has made due follows at once (SEMANTICS 2.2).
    return NextBatch(offsets, since=since, wait=tick.wait, follows=not by_time or due)


def _backlogs(engine: Engine, commit: Commit | None) -> dict[str, Mapping[str, Waiting]]:
    """Return what waits in each source that has not ended."""
    known = {node.name: _progress(commit, node.name) for node in engine.graph.sources}
    positions = {name: None if of is None else of.position for name, of in known.items() if of is None or not of.ended}
    return {name: engine.source(name).backlog(position) for name, position in positions.items()}


def _range(
    engine: Engine,
    node: SourceNode,
    commit: Commit | None,
    backlog: Mapping[str, Waiting] | None,
    admitted: Admitted,
) -> dict[str, Any]:
    """Return what a batch reads of a source, as the Offsets have it; `span` is None where nothing is new."""
    known = _progress(commit, node.name)
    start = known.position if known is not None else None
    if known is not None and known.ended:
        return {"start": start, "end": dict(known.position), "span": None}
    assert backlog is not None
    reader, ends = engine.source(node.name), admitted.ends[node.name]
    end = dict(reader.position(start, ends))
    span = None if start is not None and end == start else dict(reader.span(start, end))
    return {"start": start, "end": end, "span": span, **_unread(node, backlog, admitted, known)}


def _unread(
    node: SourceNode, backlog: Mapping[str, Waiting], admitted: Admitted, known: SourceProgress | None
) -> dict[str, list[str]]:
    """Return the partitions that a batch leaves rows in, and those that are gone, where there are any (SEMANTICS 2.4).

    A pause holds back all of them, because no row that came could have been read.

    They stand in the Offsets, so that every run of the batch decides the same on idleness.
    """
    if node.event_time is None:
        return {}
    ends = admitted.ends[node.name]
    held_back = sorted(
        name
        for name, waiting in backlog.items()
        if admitted.paused or (waiting.rows and ends.get(name, waiting.next) < waiting.latest)
    )
    gone = sorted((known.partitions if known is not None else {}).keys() - backlog.keys())
    return {word: names for word, names in ((HELD_BACK, held_back), (GONE, gone)) if names}


def _due(
    graph: JobGraph,
    commit: Commit | None,
    time: int,
    since: int,
    ranges: Mapping[str, Mapping[str, Any]],
    *,
    waits: bool,
) -> bool:
    """Return whether a window closes, or a partition becomes idle or is gone, without a row (SEMANTICS 1.4, 2.2).

    Idleness matters to open windows, and to a source that `waits` for a slower one.
    """
    if commit is None:
        return False
    for step, end in commit.due.items():
        mark = commit.watermarks_out.get(step)
        if end is not None and mark is not None and mark >= end:
            return True
    if not (waits or _is_open(commit)):
        return False
    for source in graph.sources:
        progress = commit.sources.get(source.name)
        if progress is None or progress.ended:
            continue
        unread = ranges[source.name]
        waiting = {n: p for n, p in progress.partitions.items() if n not in unread.get(HELD_BACK, ())}
        at = idle_due(waiting, source.idle_after, since)
        if (at is not None and at <= time) or any(not progress.partitions[n].gone for n in unread.get(GONE, ())):
            return True
    return False


def _due_by_time(graph: JobGraph, commit: Commit, time: int, trigger: Trigger, zero: int, since: int) -> bool:
    """Return whether a timeout, a timer or an early pane is due by batch time (SEMANTICS 1.4, 3.2, 7.2, 7.5).

    A step that is called for every key in every batch is due at each tick; without ticks, with rows only.
    """
    waits = {step.name for step in graph.steps if step.spec.every_batch and trigger.interval is None}
    due = {step: at for step, at in commit.due_time.items() if at is not None and step not in waits}
    # A Commit of a driver before this one may be of a job whose panes had another period, or none.
    timed = graph.steps if commit.time < since else ()
    for name, every in ((step.name, step.spec.early_every) for step in timed):
        if every is not None and (name in due or commit.due.get(name) is not None):
            due[name] = multiple_from(commit.time + 1, every, zero)
    return any(at <= time for at in due.values())


def _is_open(commit: Commit | None) -> bool:
    """Return whether windows are open."""
    return commit is not None and any(end is not None for end in commit.due.values())


def _has_ended(commit: Commit | None, source: str) -> bool:
    """Return whether a Commit says that nothing of the source is read any more, after its end or a drain."""
    known = _progress(commit, source)
    return known is not None and known.ended


def _progress(commit: Commit | None, source: str) -> SourceProgress | None:
    return None if commit is None else commit.sources.get(source)


def _watermarks(graph: JobGraph, commit: Commit | None) -> dict[str, StepWatermarks]:
    """Return what each step judges lateness by and closes by, and what functions without state get to know.

    A chained step judges by the watermark of the batch before: the rows it gets were made by closing up to this one.
    """
    marks: dict[str, StepWatermarks] = {}
    for step in graph.steps:
        chained = any(isinstance(node, StepNode) and node is not step for node in graph.upstream(step))
        close = commit.watermarks_out.get(step.name) if commit is not None else None
        late = commit.watermarks_in.get(step.name) if commit is not None and chained else close
        marks[step.name] = StepWatermarks(late=late, close=close)
    for function in graph.functions:
        mark = commit.watermarks_out.get(function.name) if commit is not None else None
        marks[function.name] = StepWatermarks(late=mark, close=mark)
    return marks


def facts_of(
    engine: Engine,
    offsets: Offsets,
    before: Commit | None,
    *,
    epoch: int,
    state_folder: CheckpointFolder,
    data: DataCheckpoints,
    settings: DriverSettings,
) -> BatchContext:
    """Return the context of a batch for its tasks; `before` is the Commit from which it continues."""
    known = before.state.items() if before is not None else ()
    zero = int(str(offsets.settings["zero"]))
    return BatchContext(
        batch=offsets.batch,
        time=offsets.time,
        epoch=epoch,
        run=uuid.uuid4().hex[:12],
        spans=spans_of(offsets),
        tables=engine.table_files(tables_of(offsets)),
        requeued={
            source: {**sent, "file": (state_folder.parent / REQUEUES / str(sent["file"])).address}
            for source, sent in requeues_of(offsets).items()
        },
        late={step: marks.late for step, marks in offsets.watermarks.items()},
        close={step: marks.close for step, marks in offsets.watermarks.items()},
        manifests={step: {p: ref.model_dump() for p, ref in refs.items()} for step, refs in known},
        state_folder=state_folder.address,
        staging={sink.name: engine.sink(sink.name).staging.address for sink in engine.graph.sinks},
        forms={} if settings.stage_rows else engine.graph.task_forms,
        zero=zero,
        interval=cast("int | None", offsets.settings.get("interval")),
        before=None if before is None else before.time,
        begins=zero if before is None else None,
        reached=reached(engine.graph, before),
        row_cap=settings.row_cap,
        debug=settings.debug,
        behind=data.behind,
        bases=data.bases,
        apart=settings.gates.get(offsets.batch) == "drop",
    )


def reached(graph: JobGraph, commit: Commit | None) -> dict[str, int | None]:
    """Return, for each step, the event time of what no single row has caused; None where none is known.

    It is the step's watermark; before there is one, and at the end of time, the highest event time that its sources
    have shown. All partitions of a batch have the same.
    """
    highest_times: dict[str, int | None] = {}
    if commit is None:
        return highest_times
    for step in graph.steps:
        mark = commit.watermarks_out.get(step.name)
        shown = [commit.sources[source.name] for source in graph.sources_of(step) if source.name in commit.sources]
        highest = [p.highest for progress in shown for p in progress.partitions.values() if p.highest is not None]
        highest_times[step.name] = mark if mark not in (None, END_OF_TIME) else max(highest, default=None)
    return highest_times


def spans_of(offsets: Offsets) -> dict[str, Span | None]:
    """Return what the tasks of a batch read of each source, None for nothing."""
    return {name: cast("Span | None", ranges["span"]) for name, ranges in offsets.ranges.items()}


def requeues_of(offsets: Offsets) -> dict[str, dict[str, Any]]:
    """Return what a batch sends through again of the quarantines of sources."""
    sent = {name: cast("dict[str, Any]", of[REQUEUE]) for name, of in offsets.ranges.items() if REQUEUE in of}
    return {name: rows for name, rows in sent.items() if rows["count"]}


def rows_of(engine: Engine, offsets: Offsets) -> dict[str, int | None]:
    """Return how many rows a batch reads of each source; None where the source does not know."""
    return {name: engine.source(name).rows(span) if span is not None else 0 for name, span in spans_of(offsets).items()}


def available(engine: Engine, commit: Commit | None) -> dict[str, Ends]:
    """Return how far each source can be read now, for a run that ends there; each is asked once (SEMANTICS 1.5)."""
    waits = _backlogs(engine, commit)
    return {source: {name: of.latest for name, of in backlog.items()} for source, backlog in waits.items()}


@dataclass
class TickClock:
    """The time in microseconds by which a job's batches are cut.

    Without ticks it is the wall clock's: there batch times advance slowly until that has caught up. With ticks the
    driver would wait a day after one batch under a clock that was a day ahead, because batch times never decrease.
    After `patience` microseconds time continues from that batch instead, at the pace of the clock, until it has caught
    up.
    """

    patience: int
    ahead: int = 0
    _seen: int = 0

    def now(self, clock: Clock, trigger: Trigger, last: int | None) -> int:
        """Return the time, where `last` is that of the last batch."""
        wall = clock.wall()
        if last is None or wall >= last or trigger.interval is None:
            self.ahead = 0
        elif self.ahead and wall - self._seen > self.patience:
            self.ahead = last - wall  # set right in part: what it has caught up is no time that has passed
        elif last - (wall + self.ahead) > self.patience:
            self.ahead = last - wall
            log.warning("clock.behind", seconds=round(self.ahead / 1_000_000, 1), last_batch=last)
        self._seen = wall
        return wall + self.ahead
