"""Judge the ready-made triggers of many keys at once (SEMANTICS 6).

A machine is a trigger that is judged for the keys of a batch. It keeps some numbers for each key, its slots, in the
columns of one matrix that all machines of a window share: a row for each key, int64. The first slot of a machine that
can finish says whether it has. A batch asks `take` for its rows, then `ready`, then `fire` for the keys that fire.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.functions.key_index import NONE
from penstock.state.keys import Bools, Ints
from penstock.time.clock import END_OF_TIME

__all__ = [
    "CONTINUE",
    "FIRE",
    "PURGE",
    "Codes",
    "CountMachine",
    "DelayMachine",
    "DeltaMachine",
    "Dues",
    "EndMachine",
    "Machine",
    "NeverMachine",
    "PeriodMachine",
    "TriggerBatch",
]

Codes = npt.NDArray[np.int8]
CONTINUE, FIRE, PURGE = np.int8(0), np.int8(1), np.int8(2)
"""Decisions, of which the greater one wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerBatch:
    """The keys for which a trigger is judged, and their rows of the batch, without those after a finish.

    Attributes:
        total: How many keys there are. Other arrays refer to a key by its number.
        ids: int64: the key of each row, in the order of arrival.
        times: int64: the event time of each row, microseconds, NONE where it has none.
        held: int64: how many rows the window of each key has, those of the batch included.
        time: The batch time, microseconds.
        watermark: That of the step; None before there is one.
        late: That by which rows are late, of the batch before in a chained step.
        zero: The job's zero time.
        values: For each expression that a trigger reads its values for the rows.
        rows: Returns the rows as dicts, for triggers of the user's.
        names: Returns the keys as functions see them.
    """

    total: int
    ids: Ints
    times: Ints
    held: Ints
    time: int
    watermark: int | None = None
    late: int | None = None
    zero: int = 0
    values: Mapping[str, pa.Array] = field(default_factory=dict)
    rows: Callable[[], Sequence[Any]] = tuple
    names: Callable[[], Sequence[Any]] = tuple

    @property
    def counts(self) -> Ints:
        """Return how many rows each key has in the batch."""
        counts: Ints = np.bincount(self.ids, minlength=self.total).astype(np.int64, copy=False)
        return counts

    def first_rows(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the keys that some of the rows have, and the first of these rows of each."""
        keys, first = np.unique(self.ids[rows], return_index=True)
        return keys, rows[first]


class Dues(NamedTuple):
    """When each key wants to be judged though no row comes: a watermark and a batch time, END_OF_TIME for never.

    Moments that the clock has reached are not among them: what they make ready waits for something else.
    """

    watermark: Ints
    time: Ints

    @classmethod
    def of(cls, moments: Ints, batch: TriggerBatch, *, event: bool) -> Dues:
        """Return the moments of one clock that it has not reached, never for the others."""
        clock = batch.watermark if event else batch.time
        waiting = moments if clock is None else np.where(moments > clock, moments, END_OF_TIME)
        never = cls.never(len(moments))
        return never._replace(watermark=waiting) if event else never._replace(time=waiting)

    @classmethod
    def never(cls, total: int) -> Dues:
        """Return that no key does."""
        return cls(np.full(total, END_OF_TIME, dtype=np.int64), np.full(total, END_OF_TIME, dtype=np.int64))

    def earlier(self, other: Dues) -> Dues:
        """Return the earlier of both, for each key."""
        return Dues(np.minimum(self.watermark, other.watermark), np.minimum(self.time, other.time))

    def only(self, mask: Bools) -> Dues:
        """Return the same for some keys, and never for the others."""
        return Dues(np.where(mask, self.watermark, END_OF_TIME), np.where(mask, self.time, END_OF_TIME))


class Machine(ABC):
    """One trigger, at a place in the matrix of slots. `codes` are its decisions of the batch, after `ready`."""

    begin: Sequence[int] = (0,)
    """The slots of a machine that begins; the first says whether it has finished."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.codes: Codes = np.empty(0, dtype=np.int8)

    @property
    def width(self) -> int:
        """Return how many slots it has, with those of its parts."""
        return len(self.begin)

    def first(self) -> list[int]:
        """Return the slots of a key that is new."""
        return list(self.begin)

    def finished(self, slots: Ints) -> Bools:
        """Return which keys it has finished for."""
        over: Bools = slots[:, self.at] == 1
        return over

    @abstractmethod
    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Take the batch's rows of the keys in the mask."""

    def ready(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> Codes:
        """Return the decisions, CONTINUE for keys that are not in the mask."""
        wants = self.wants(slots, batch) & mask & ~self.finished(slots)
        self.codes = np.where(wants, FIRE, CONTINUE).astype(np.int8, copy=False)
        return self.codes

    def wants(self, slots: Ints, batch: TriggerBatch) -> Bools:
        """Return which keys it would fire for, if it has not finished: none, but compositions ask their parts."""
        return np.zeros(len(slots), dtype=np.bool_)

    @abstractmethod
    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Note that it fires for the keys in the mask."""

    def reset(self, slots: Ints, mask: Bools) -> None:
        """Begin again for the keys in the mask."""
        slots[mask, self.at : self.at + self.width] = self.first()

    def emptied(self, slots: Ints, mask: Bools) -> None:  # noqa: B027 - most have nothing to do
        """Note that the windows of the keys in the mask have no row any more."""

    def dues(self, slots: Ints, batch: TriggerBatch) -> Dues:
        """Return when it has to be judged though no row comes."""
        return Dues.never(len(slots))


class CountMachine(Machine):
    """At least so many rows since it began."""

    begin = (0, 0)

    def __init__(self, at: int, rows: int) -> None:
        super().__init__(at)
        self.rows = rows

    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Count the rows."""
        slots[:, self.at + 1] += np.where(mask & ~self.finished(slots), batch.counts, 0)

    def wants(self, slots: Ints, batch: TriggerBatch) -> Bools:
        """Return where there are enough."""
        enough: Bools = slots[:, self.at + 1] >= self.rows
        return enough

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Finish, and count from 0."""
        slots[mask, self.at : self.at + 2] = (1, 0)


class DelayMachine(Machine):
    """So long after the first row since it began: by batch time, or the watermark after the earliest event time."""

    begin = (0, END_OF_TIME)

    def __init__(self, at: int, delay: int, *, event: bool) -> None:
        super().__init__(at)
        self.delay, self.event = delay, event

    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Note the first time."""
        taken = mask & ~self.finished(slots)
        since = np.full(batch.total, END_OF_TIME, dtype=np.int64)
        if self.event:
            timed = np.flatnonzero(batch.times != NONE)
            np.minimum.at(since, batch.ids[timed], batch.times[timed])
        else:
            since[batch.ids] = batch.time
        slots[taken, self.at + 1] = np.minimum(slots[taken, self.at + 1], since[taken])

    def wants(self, slots: Ints, batch: TriggerBatch) -> Bools:
        """Return where the clock is there."""
        clock = batch.watermark if self.event else batch.time
        if clock is None:
            return np.zeros(len(slots), dtype=np.bool_)
        there: Bools = (slots[:, self.at + 1] != END_OF_TIME) & (self._moments(slots) <= clock)
        return there

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Finish."""
        slots[mask, self.at : self.at + 2] = (1, END_OF_TIME)

    def dues(self, slots: Ints, batch: TriggerBatch) -> Dues:
        """Return when the clock is there."""
        moments = np.where(slots[:, self.at + 1] == END_OF_TIME, END_OF_TIME, self._moments(slots))
        return Dues.of(moments, batch, event=self.event)

    def _moments(self, slots: Ints) -> Ints:
        last = END_OF_TIME - 1
        return np.where(slots[:, self.at + 1] > last - self.delay, last, slots[:, self.at + 1] + self.delay)


class DeltaMachine(Machine):
    """A value that is farther from the reference than the threshold.

    Slots: finished, whether there is a reference, the reference, whether a row was far enough, the last value. Values
    are the bits of doubles.
    """

    begin = (0, 0, 0, 0, 0)

    def __init__(self, at: int, value: str, threshold: float) -> None:
        super().__init__(at)
        self.value, self.threshold = value, threshold

    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Compare the rows with the reference, which the first row is where there is none."""
        column = pc.cast(batch.values[self.value], pa.float64())
        every: npt.NDArray[np.float64] = column.fill_null(np.nan).to_numpy()
        rows = np.flatnonzero(~np.isnan(every))
        rows = rows[(mask & ~self.finished(slots))[batch.ids[rows]]]
        if not len(rows):
            return
        known = slots[:, self.at + 1]
        reference = _doubles(slots, self.at + 2)
        keys, first = batch.first_rows(rows)
        new = known[keys] == 0
        reference[keys[new]] = every[first[new]]
        slots[keys, self.at + 1] = 1
        slots[:, self.at + 2] = reference.view(np.int64)
        far = np.abs(every[rows] - reference[batch.ids[rows]]) > self.threshold
        slots[batch.ids[rows[far]], self.at + 3] = 1
        backwards = rows[::-1]
        keys, last = np.unique(batch.ids[backwards], return_index=True)
        slots[keys, self.at + 4] = every[backwards[last]].view(np.int64)

    def wants(self, slots: Ints, batch: TriggerBatch) -> Bools:
        """Return where a row was far enough."""
        far: Bools = slots[:, self.at + 3] == 1
        return far

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Finish; the last value is the reference from now on."""
        slots[mask, self.at + 2] = slots[mask, self.at + 4]
        slots[mask, self.at + 3] = 0
        slots[mask, self.at] = 1

    def reset(self, slots: Ints, mask: Bools) -> None:
        """Begin again: with the reference that a firing has left, or else without one."""
        fired = mask & self.finished(slots)
        slots[mask & ~fired, self.at : self.at + 5] = 0
        slots[fired, self.at] = 0


class PeriodMachine(Machine):
    """Each multiple of a period, while the window has rows. Slots: 0, because it never finishes, and the next one."""

    begin = (0, END_OF_TIME)

    def __init__(self, at: int, period: int, *, event: bool) -> None:
        super().__init__(at)
        self.period, self.event = period, event

    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Note the earliest multiple that one of the rows waits for.

        It is the first that is not before the batch time, or that is after the row's event time. A late row waits for
        the next one. A row of a chained step is not late because the same batch has moved the watermark past it.
        """
        rows = np.flatnonzero(mask[batch.ids] & ((batch.times != NONE) | (not self.event)))
        if self.event:
            since = np.maximum(batch.times[rows], NONE if batch.late is None else batch.late)
        else:
            since = np.full(len(rows), batch.time - 1, dtype=np.int64)
        np.minimum.at(slots[:, self.at + 1], batch.ids[rows], self._after(since, batch))
        self.emptied(slots, batch.held == 0)

    def wants(self, slots: Ints, batch: TriggerBatch) -> Bools:
        """Return where the clock is there."""
        clock = batch.watermark if self.event else batch.time
        next_ones = slots[:, self.at + 1]
        there: Bools = (next_ones != END_OF_TIME) & (next_ones <= (NONE if clock is None else clock))
        return there

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Wait for the next multiple after the clock."""
        clock = batch.watermark if self.event else batch.time
        if clock is None:
            return  # nothing has fired
        slots[mask, self.at + 1] = self._after(np.full(int(mask.sum()), clock, dtype=np.int64), batch)

    def emptied(self, slots: Ints, mask: Bools) -> None:
        """Wait for nothing."""
        slots[mask, self.at + 1] = END_OF_TIME

    def dues(self, slots: Ints, batch: TriggerBatch) -> Dues:
        """Return the next multiples."""
        return Dues.of(slots[:, self.at + 1].copy(), batch, event=self.event)

    def _after(self, times: Ints, batch: TriggerBatch) -> Ints:
        zero = 0 if self.event else batch.zero % self.period
        last = END_OF_TIME - 1 - self.period
        inside = np.minimum(times, last)
        # At the end of time there is no next one.
        return np.where(times > last, END_OF_TIME, inside + self.period - (inside - zero) % self.period)


class EndMachine(Machine):
    """The end of time."""

    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Do nothing."""

    def wants(self, slots: Ints, batch: TriggerBatch) -> Bools:
        """Return all keys, then."""
        return np.full(len(slots), batch.watermark == END_OF_TIME, dtype=np.bool_)

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Finish."""
        slots[mask, self.at] = 1

    def dues(self, slots: Ints, batch: TriggerBatch) -> Dues:
        """Return the last moment before it: nothing is ever due at the end of time itself."""
        moments = np.where(self.finished(slots), END_OF_TIME, END_OF_TIME - 1)
        return Dues.of(moments, batch, event=True)


class NeverMachine(EndMachine):
    """No moment."""

    def wants(self, slots: Ints, batch: TriggerBatch) -> Bools:
        """Return no key."""
        return np.zeros(len(slots), dtype=np.bool_)

    def dues(self, slots: Ints, batch: TriggerBatch) -> Dues:
        """Return never."""
        return Dues.never(len(slots))


def _doubles(slots: Ints, at: int) -> npt.NDArray[np.float64]:
    return np.ascontiguousarray(slots[:, at]).view(np.float64).copy()
