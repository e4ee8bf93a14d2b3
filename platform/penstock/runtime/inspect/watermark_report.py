"""Show which source and partition holds a watermark back, from a Commit and what the last driver recorded. Pure.

Times are microseconds since 1970, None is the beginning of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from penstock.checkpoint.log.batch_report import moment, shown_moment
from penstock.checkpoint.log.entries import Commit, PartitionProgress, SourceProgress
from penstock.runtime.driver.admission import Bound
from penstock.runtime.driver.watermarks import source_watermark

__all__ = ["Holder", "PartitionMark", "Reading", "SourceMark", "StepMark", "watermark_report"]


_PAUSED = Bound.PAUSED.value


class Reading(Enum):
    """How a source partition takes part in the watermark; the value is said to people."""

    READ = "has rows"
    LIMITED = "limited: it has rows that the newest batch left"
    PAUSED = "paused: batches read nothing of it"
    WAITING = "nothing new"
    UNREAD = "never had a row"
    IDLE = "idle: holds nothing back"
    GONE = "gone: holds nothing back"
    ENDED = "ended: holds nothing back"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMark:
    """A partition of a source.

    `highest` is its highest event time, `watermark` that less the source's `max_out_of_order`, None where either is
    unknown. `since` is the time of the batch that last brought it a row, or held one back.
    """

    name: str
    reading: Reading
    highest: int | None
    watermark: int | None
    since: int | None

    @property
    def counts(self) -> bool:
        """Return whether it can hold the watermark back."""
        return self.reading not in (Reading.IDLE, Reading.GONE, Reading.ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMark:
    """A source: its watermark, whether it counts for the steps that read it, and its partitions, slowest first.

    `limit` is the rule that left rows of it in the newest batch, None where none did.
    """

    name: str
    watermark: int | None
    counts: bool
    limit: str | None
    partitions: tuple[PartitionMark, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, times as text."""
        parts = [_json_of(part) for part in self.partitions]
        known = {"source": self.name, "watermark": moment(self.watermark), "counts": self.counts, "limit": self.limit}
        return {**known, "partitions": parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The source that a step waits for, and its slowest partition, None where its partitions are unknown."""

    source: str
    watermark: int | None
    partition: PartitionMark | None
    limit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """A step: its watermark, the next time at which it has work, and what holds the watermark, None for nothing.

    With `all_idle` nothing moves it either: it stays until one of its sources has a row.
    """

    name: str
    watermark: int | None
    due: int | None
    held_by: Holder | None
    all_idle: bool = False

    @property
    def waits_for(self) -> str | None:
        """Return in words what holds the watermark back, None where nothing does."""
        holder = self.held_by
        if holder is None:
            return None
        if holder.partition is None:
            return f"{holder.source}, which has no partition yet"
        since = shown_moment(holder.partition.since)
        limit = f", limited by {holder.limit}" if holder.limit not in (None, _PAUSED) else ""
        return f"{holder.source} {holder.partition.name}: {holder.partition.reading.value}, since {since}{limit}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, times as text."""
        held = None
        if self.held_by is not None:
            part = self.held_by.partition
            held = {
                "source": self.held_by.source,
                "watermark": moment(self.held_by.watermark),
                "limit": self.held_by.limit,
                "partition": None if part is None else _json_of(part),
            }
        times = {"watermark": moment(self.watermark), "due": moment(self.due)}
        return {"step": self.name, **times, "held_by": held, "all_idle": self.all_idle}


def watermark_report(
    commit: Commit | None, record: Mapping[str, Any]
) -> tuple[tuple[StepMark, ...], tuple[SourceMark, ...]]:
    """Return the steps with event time of the Commit in force, and the sources that have partitions with event time.

    `record` is the status record of the last driver. Its `graph` says which step reads which source, and `event_time`
    how late rows of each source that has event time may be. `limits` and `held_back` say what the newest batch left.
    Without a graph each step reads all sources, and without `event_time` all that have partitions are listed.
    """
    if commit is None:
        return (), ()
    lateness = _mapping(record.get("event_time"))
    limits = _mapping(record.get("limits"))
    bound, held_back = _mapping(limits.get("bound")), _mapping(record.get("held_back"))
    sources = tuple(
        _source(
            name,
            progress,
            _mapping(lateness.get(name)),
            _PAUSED if limits.get(_PAUSED) is True else bound.get(name),
            commit.time,
            held_back.get(name) or (),
        )
        for name, progress in commit.sources.items()
        if (name in lateness if isinstance(record.get("event_time"), Mapping) else progress.partitions)
    )
    above = _sources_above(record.get("graph"))
    steps = []
    for step, mark in commit.watermarks_out.items():
        read = above.get(step)
        its = [source for source in sources if read is None or source.name in read]
        held = _holder(its)
        all_idle = held is None and any(part.reading is Reading.IDLE for source in its for part in source.partitions)
        steps.append(StepMark(name=step, watermark=mark, due=commit.due.get(step), held_by=held, all_idle=all_idle))
    return tuple(steps), sources


def _source(
    name: str,
    progress: SourceProgress,
    known: Mapping[str, Any],
    limit: object,
    time: int,
    held_back: Sequence[str],
) -> SourceMark:
    late = known.get("max_out_of_order")
    mark, counts = source_watermark(
        progress.partitions, max_out_of_order=late if isinstance(late, int) else 0, ended=progress.ended
    )
    said = progress.position.get("watermark")
    if isinstance(said, int):
        mark, counts = said, True
    partitions = [
        PartitionMark(
            name=part,
            reading=_reading(of, time, ended=progress.ended, limit=limit, left=part in held_back),
            highest=of.highest,
            watermark=None if of.highest is None or not isinstance(late, int) else of.highest - late,
            since=of.seen_at,
        )
        for part, of in progress.partitions.items()
    ]
    partitions.sort(key=lambda part: (not part.counts, part.highest is not None, part.highest or 0, part.name))
    return SourceMark(
        name=name,
        watermark=mark if isinstance(late, int) or isinstance(said, int) else None,
        counts=counts,
        limit=str(limit) if limit is not None else None,
        partitions=tuple(partitions),
    )


def _reading(partition: PartitionProgress, time: int, *, ended: bool, limit: object, left: bool) -> Reading:
    if ended:
        return Reading.ENDED
    if partition.gone:
        return Reading.GONE
    if partition.idle:
        return Reading.IDLE
    if left:
        return Reading.PAUSED if limit == _PAUSED else Reading.LIMITED
    if partition.highest is None:
        return Reading.UNREAD
    return Reading.READ if partition.seen_at == time else Reading.WAITING


def _holder(sources: Sequence[SourceMark]) -> Holder | None:
    """Return the slowest of the sources that count; one without a watermark is slower than any."""
    counting = [source for source in sources if source.counts]
    if not counting:
        return None
    slowest = min(counting, key=lambda source: (source.watermark is not None, source.watermark or 0))
    parts = [part for part in slowest.partitions if part.counts]
    return Holder(
        source=slowest.name,
        watermark=slowest.watermark,
        partition=parts[0] if parts else None,
        limit=slowest.limit,
    )


def _sources_above(graph: object) -> dict[str, set[str]]:
    """Return, for each node with a name, the sources that it reads; `graph` is a `JobGraph.shape`."""
    nodes = [node for node in graph if isinstance(node, Mapping)] if isinstance(graph, Sequence) else []

    def sources(place: int, seen: frozenset[int]) -> set[str]:
        if place in seen or place >= len(nodes):
            return set()
        node = nodes[place]
        if node.get("kind") == "source":
            return {str(node.get("name"))}
        return {name for above in node.get("reads", ()) for name in sources(above, seen | {place})}

    return {
        str(node.get("name")): sources(place, frozenset())
        for place, node in enumerate(nodes)
        if node.get("name") and node.get("kind") not in ("source", "sink")
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _json_of(part: PartitionMark) -> dict[str, Any]:
    times = {name: moment(getattr(part, name)) for name in ("highest", "watermark", "since")}
    return asdict(part) | {"reading": part.reading.name.lower(), **times}
