"""Advance event time: pure functions from what a batch read to the watermarks of the next (SEMANTICS 2.1 to 2.5).

A watermark W says that every row with event time < W has been seen.
None is the beginning of time, END_OF_TIME its end; all times are microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.checkpoint.log.entries import END_OF_TIME, PartitionProgress

__all__ = ["behind_by", "idle_due", "later", "progressed", "source_watermark", "step_watermark"]


def progressed(
    before: Mapping[str, PartitionProgress],
    partitions: Iterable[str],
    highest: Mapping[str, int],
    rows: Mapping[str, int],
    *,
    time: int,
    idle_after: int | None,
    since: int | None = None,
    held_back: Collection[str] = (),
    gone: Collection[str] = (),
) -> dict[str, PartitionProgress]:
    """Return the progress of a source's partitions after a batch at batch time `time`.

    `highest` and `rows` are what the batch read, by partition.
    A partition becomes idle only by time in which the driver could have read it (SEMANTICS 2.4). That excludes the
    time before `since`, when the driver began to read, and while a limit `held_back` its rows. An idle partition stays
    idle until it has a row. Partitions that are `gone` stop counting at once.
    """
    after: dict[str, PartitionProgress] = {}
    for name in {**dict.fromkeys(before), **dict.fromkeys(partitions)}:
        old = before.get(name) or PartitionProgress(highest=None, seen_at=None, idle=False)
        reached = [t for t in (old.highest, highest.get(name)) if t is not None]
        came_back = old.gone and name not in gone
        fresh = rows.get(name, 0) > 0 or name in held_back or came_back
        # A partition counts as seen when it is first known: it holds the watermark until idle_after from then.
        seen = time if fresh or old.seen_at is None else old.seen_at
        counted = seen if old.idle else later(seen, since)
        idle = idle_after is not None and not fresh and counted is not None and time - counted >= idle_after
        highest_yet = max(reached) if reached else None
        after[name] = PartitionProgress(highest=highest_yet, seen_at=seen, idle=idle, gone=name in gone)
    return after


def source_watermark(
    partitions: Mapping[str, PartitionProgress],
    *,
    max_out_of_order: int,
    closes_at_end: bool = False,
    said: int | None = None,
    ended: bool = False,
) -> tuple[int | None, bool]:
    """Return a source's watermark, and whether it counts: idle and ended sources do not hold others back.

    `said` is a watermark that the source itself reports, which then stands for its rows' times.
    """
    if ended:
        return (END_OF_TIME, True) if closes_at_end else (None, False)
    if said is not None:
        return said, True
    active = [p for p in partitions.values() if not (p.idle or p.gone)]
    if not active:
        return None, not partitions
    if any(p.highest is None for p in active):
        return None, True
    return min(p.highest for p in active if p.highest is not None) - max_out_of_order, True


def step_watermark(before: int | None, sources: Iterable[tuple[int | None, bool]]) -> int | None:
    """Return a step's watermark from those of its sources; it never decreases, and stays where all are idle."""
    counting = [mark for mark, counts in sources if counts]
    if not counting or any(mark is None for mark in counting):
        return before
    return later(before, min(mark for mark in counting if mark is not None))


def behind_by(source: tuple[int | None, bool], lag: int) -> tuple[int | None, bool]:
    """Return the watermark of a source for steps behind windows with a lag; the end of time stays the end."""
    mark, counts = source
    return (mark if mark is None or mark == END_OF_TIME else max(mark, -(2**63) + lag) - lag), counts


def later(a: int | None, b: int | None) -> int | None:
    """Return the later of two watermarks."""
    known = [t for t in (a, b) if t is not None]
    return max(known) if known else None


def idle_due(
    partitions: Mapping[str, PartitionProgress], idle_after: int | None, since: int | None = None
) -> int | None:
    """Return the batch time at which a partition with nothing new becomes idle, None where none can.

    `since` is as in `progressed`.
    """
    if idle_after is None:
        return None
    counted = [later(p.seen_at, since) for p in partitions.values() if not (p.idle or p.gone) and p.seen_at is not None]
    return min((at + idle_after for at in counted if at is not None), default=None)
