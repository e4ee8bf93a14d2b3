"""Count what waits in the partitions of a source, and divide what one batch may read among them: pure functions.

A source says what it has (`Waiting`), and the engine says how far it reads (`Ends`). So limits, and the
end of a bounded run, mean the same for every source, and none has to mind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = ["Ends", "ReadLimit", "Waiting", "clamp", "divide"]

Ends = Mapping[str, int]
"""By partition, the place up to which a batch or a run reads; exclusive."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """Bound what one batch may read of a source; None means no bound beside the source's own."""

    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The backlog of one partition: `next` <= `batch_end` <= `latest`, places in a unit of the source's own.

    Attributes:
        next: The first place that was not read.
        latest: The place after the newest that can be read now.
        rows: How many rows lie between; where only reading tells, a guess. 0 for places that hold no row.
        batch_end: How far one batch may read by the source's own settings.
    """

    next: int
    latest: int
    rows: int
    batch_end: int

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
        # The rows up to there, as if they lay evenly: they are a weight, and no promise.
        units = waiting.latest - waiting.next
        rows = waiting.rows * (latest - waiting.next) // units if units else waiting.rows
        clamped[name] = replace(waiting, latest=latest, rows=rows, batch_end=min(waiting.batch_end, latest))
    return clamped


def divide(backlog: Mapping[str, Waiting], limit: ReadLimit) -> dict[str, int]:
    """Return how far a batch reads each partition: its own `batch_end`, and no more rows than its share of the limit.

    A share is the partition's part of all rows that wait, in whole rows that sum up to the limit. Each partition with
    rows has at least one, also where the limit is below their count (SEMANTICS 8.2). Where a place is more than one
    row, at least one place is read.
    """
    lag = sum(waiting.rows for waiting in backlog.values())
    if limit.rows is None or lag <= limit.rows:
        return {name: waiting.batch_end for name, waiting in backlog.items()}
    shares = _shares({name: waiting.rows for name, waiting in backlog.items()}, limit.rows)
    return {name: min(waiting.batch_end, _place(waiting, shares[name])) for name, waiting in backlog.items()}


def _shares(rows: Mapping[str, int], most: int) -> dict[str, int]:
    """Return whole shares of `most` by weight, by largest remainder; who has any rows gets one of the largest share."""
    lag = sum(rows.values())
    shares = {name: most * n // lag for name, n in rows.items()}
    left = most - sum(shares.values())
    for name in sorted(rows, key=lambda name: (-(most * rows[name] % lag), name))[:left]:
        shares[name] += 1
    for name in [name for name, share in shares.items() if share == 0 and rows[name]]:
        largest = max(shares, key=lambda name: shares[name])
        shares[largest] -= shares[largest] > 1  # where all have one row, the limit is below the partitions' count
        shares[name] = 1
    return shares


def _place(waiting: Waiting, rows: int) -> int:
    """Return the place behind so many rows, as if they lay evenly."""
    if waiting.rows == 0:
        return waiting.latest
    return waiting.next + max(1, (waiting.latest - waiting.next) * rows // waiting.rows)
