"""Count what waits in the partitions of a source, and divide what one batch may read among them: pure functions.

A source says what it has (`Waiting`), and the engine says how far it reads (`Ends`). So limits, and the
end of a bounded run, mean the same for every source, and none has to mind them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from penstock.errors import ConfigError
from penstock.rates.division import bounded_shares, shares_within

__all__ = ["Ends", "ReadLimit", "Waiting", "WaitingFile", "clamp", "divide", "left_behind"]

Ends = Mapping[str, int]
"""By partition, the place up to which a batch or a run reads; exclusive."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """Bound what one batch may read of a source; None means no bound beside the source's own.

    The hard limits come first, the estimate second, and the division among partitions last (DESIGN 8).

    Attributes:
        rows: The most rows of the batch, a hard limit.
        bytes: The most bytes of the batch, a hard limit; it holds for the partitions that say how many wait.
        files: The most files of the batch, a hard limit; it holds for the partitions that say which wait.
        estimated: The rows that a rate gives in a batch; a floor of partitions goes before it (SEMANTICS 8.2).
        partition_most: The most rows of each partition.
        partition_least: The rows that each partition may read, whatever the others have, unless a hard limit is
            below the sum; at least 1, so that none starves.
    """

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    estimated: float | Fraction | None = None
    partition_most: int | None = None
    partition_least: int = 1

    def __post_init__(self) -> None:
        for name in ("rows", "bytes", "files", "partition_most", "partition_least"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is 1 or more in a limit, found {value}; to read nothing, pause the stream")
        if self.estimated is not None and not 0 <= self.estimated < float("inf"):
            raise ConfigError(f"estimated is a finite number of rows, found {self.estimated}")


class WaitingFile(NamedTuple):
    """A file that waits: `end` is the place after it, and `bytes` are those of it that wait."""

    end: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The backlog of one partition: `next` <= `batch_end` <= `latest`, places in a unit of the source's own.

    Attributes:
        next: The first place that was not read.
        latest: The place after the newest that can be read now.
        rows: How many rows lie between; where only reading tells, a guess. 0 for places that hold no row.
        batch_end: How far one batch may read by the source's own settings.
        bytes: How many bytes lie between; None where the source does not know.
        files: The files up to `batch_end`, in the order in which they are read. The first may be read in part, and then
            its bytes are those of the rest. Empty where places are in no files, or nothing waits.
    """

    next: int
    latest: int
    rows: int
    batch_end: int
    bytes: int | None = None
    files: Sequence[WaitingFile] = ()

    @classmethod
    def of_rows(cls, first: int, latest: int, *, at_most: int | None = None) -> Waiting:
        """Return what waits where each place is a row, and a batch takes no more than `at_most`."""
        batch_end = latest if at_most is None else min(first + at_most, latest)
        return cls(next=first, latest=latest, rows=latest - first, batch_end=batch_end)


def clamp(backlog: Mapping[str, Waiting], target: Ends) -> dict[str, Waiting]:
    """Return what waits up to a target, which stays where it is however the source grows (SEMANTICS 1.5).

    A partition that the target lacks is new since then: left out.
    """
    clamped = {}
    for name, waiting in backlog.items():
        if name not in target:
            continue
        latest = max(waiting.next, min(waiting.latest, target[name]))
        clamped[name] = replace(
            waiting,
            latest=latest,
            # A weight, and no promise.
            rows=_up_to(waiting, waiting.rows, latest),
            bytes=None if waiting.bytes is None else _up_to(waiting, waiting.bytes, latest),
            batch_end=min(waiting.batch_end, latest),
        )
    return clamped


def divide(backlog: Mapping[str, Waiting], limit: ReadLimit) -> dict[str, int]:
    """Return how far a batch reads each partition: its own `batch_end`, and no more than its share of each limit.

    A share is the partition's part of all rows that wait, in whole rows that sum up to the limit. Each partition with
    rows has at least one, also where the limit is below their count (SEMANTICS 8.2). Where a place is more than one
    row, at least one place is read.
    """
    rows = {name: waiting.rows for name, waiting in backlog.items()}
    allowed = rows
    if limit.estimated is not None:
        most, least = limit.partition_most, limit.partition_least
        allowed = bounded_shares(rows, limit.estimated, least=least, most=most)
    elif limit.partition_most is not None:
        allowed = dict.fromkeys(rows, limit.partition_most)
    allowed = {name: min(n, rows[name]) for name, n in allowed.items()}
    if limit.rows is not None and sum(allowed.values()) > limit.rows:
        allowed = shares_within(allowed, limit.rows, least=limit.partition_least)
    ends = {
        name: min(waiting.batch_end, _place(waiting, allowed[name], waiting.rows)) for name, waiting in backlog.items()
    }
    ends = ends if limit.files is None else _within_files(backlog, ends, limit.files)
    return ends if limit.bytes is None else _within_bytes(backlog, ends, limit.bytes)


def left_behind(backlog: Mapping[str, Waiting], ends: Ends) -> int:
    """Return how many rows a batch leaves that reads up to `ends`; a partition that these lack is not read."""
    return sum(
        waiting.rows - (_up_to(waiting, waiting.rows, ends.get(name, waiting.next)) if waiting.rows else 0)
        for name, waiting in backlog.items()
    )


def _within_files(backlog: Mapping[str, Waiting], ends: Ends, most: int) -> dict[str, int]:
    """Return the ends by which a batch reads no more than so many files; one that is read in part is one of them."""
    counts = {
        name: bisect_left(waiting.files, ends[name], key=lambda file: file.end) + 1 if ends[name] > waiting.next else 0
        for name, waiting in backlog.items()
        if waiting.files
    }
    if sum(counts.values()) <= most:
        return dict(ends)
    shares = shares_within(counts, most)
    bounds = {name: backlog[name].files[share - 1].end for name, share in shares.items() if share}
    return {name: min(end, bounds.get(name, end)) for name, end in ends.items()}


def _within_bytes(backlog: Mapping[str, Waiting], ends: Ends, most: int) -> dict[str, int]:
    """Return the ends by which a batch has no more than so many bytes, as if they lay evenly in what is no file."""
    sizes = {
        name: _bytes_up_to(waiting, ends[name]) for name, waiting in backlog.items() if waiting.bytes and waiting.rows
    }
    if sum(sizes.values()) <= most:
        return dict(ends)
    shares = shares_within(sizes, most)
    bounds = {name: _place_of_bytes(backlog[name], share) for name, share in shares.items()}
    return {name: min(end, bounds[name]) if name in bounds else end for name, end in ends.items()}


def _bytes_up_to(waiting: Waiting, place: int) -> int:
    """Return the bytes that wait before a place."""
    if not waiting.files:
        return _up_to(waiting, waiting.bytes or 0, place)
    total, first = 0, waiting.next
    for end, size in waiting.files:
        if place <= end:
            return total + -(-size * (place - first) // (end - first))
        total, first = total + size, end
    return total


def _place_of_bytes(waiting: Waiting, most: int) -> int:
    """Return the place after so many of the bytes that wait; one place is read at least."""
    if not waiting.files:
        return _place(waiting, most, waiting.bytes or 0)
    left, first = most, waiting.next
    for end, size in waiting.files:
        if size > left:
            return max(first + (end - first) * left // size, waiting.next + 1)
        left, first = left - size, end
    return first


def _up_to(waiting: Waiting, amount: int, place: int) -> int:
    """Return the part of the rows or bytes that wait which lies before a place, as if they lay evenly."""
    units = waiting.latest - waiting.next
    return amount * (place - waiting.next) // units if units else amount


def _place(waiting: Waiting, part: int, whole: int) -> int:
    """Return the place behind so many of all rows or bytes that wait, as if they lay evenly."""
    if whole == 0 or part >= whole:
        return waiting.latest
    return waiting.next + max(1, (waiting.latest - waiting.next) * part // whole)
