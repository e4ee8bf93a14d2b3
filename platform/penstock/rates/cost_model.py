"""Estimate a rate from what a batch costs whatever it reads, and what each row costs (SEMANTICS 8.4)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from math import ceil, inf, isfinite

from penstock.errors import ConfigError
from penstock.rates.cost_fit import CostFit, Sample
from penstock.rates.quantities import at_least, fraction_of_one, positive

__all__ = ["CostModel", "IntervalAdvice", "Pacing"]

_FIXED_SHARE = 0.15
"""The part of a batch that the fixed cost may take: longer batches hardly process more rows a second."""
_FULL = 0.9
"""A batch that has this part of its rows, or more, has left rows that wait."""
_LASTING = 2
"""So many full batches in a row are a backlog that lasts."""
_SMALL = 2.0
"""Batches of at most so many times the rows of `min_rate` are as small as they get."""
_SLACK = 1.25
"""A longer interval is left when the shorter one would have this much room: otherwise it would come and go."""
_ROWS, _MS = 1e18, 1e15
"""No batch has so many rows or takes so long; their squares are far below what a double holds."""
_WINDOW = 50
"""How many batches are remembered; with the default memory the oldest weighs less than a hundredth."""


class Pacing(Enum):
    """When the next batch begins."""

    TICKS = "ticks"
    """At the next tick of the interval; at once where that has passed."""
    AT_ONCE = "at_once"
    """When the one before is done."""


@dataclass(frozen=True, slots=True)
class IntervalAdvice:
    """The batch interval that the costs and the backlog of a job call for.

    Attributes:
        interval_ms: A multiple of the job's own interval, milliseconds; the interval itself where that suffices, or
            where no interval does.
        needed_ms: The shortest interval in which the job keeps up with `min_rate`; infinity where none does.
        fixed_ms: What a batch costs whatever it reads, milliseconds.
        row_ms: What each row adds, milliseconds.
    """

    interval_ms: float
    needed_ms: float
    fixed_ms: float
    row_ms: float


class CostModel:
    """An estimator that aims at a batch time: a fixed cost, plus the cost per row times the rows.

    The next batch gets as many rows as fit into `headroom` of the interval, less the delay of the batch before. It gets
    at most `growth` times the rows of the largest batch that is remembered, because costs are not proven beyond that.

    A longer interval has room for more rows a second, because each batch pays the fixed cost. `advice` names one, in
    multiples of the job's own, in two cases:

    - The fixed cost leaves no room for `min_rate`. No rate helps then.
    - A backlog lasts: batches are full, and rows wait. The interval then doubles until the fixed cost takes 15 percent
      of a batch or less. Rows wait in any case, and fewer of them do for long.

    A driver follows the advice by `adopt` after each batch; the interval doubles only there. Its ticks stay those of
    the job's own interval: batches take several of them, which merge (SEMANTICS 1.3). Such a batch begins when the one
    before is done, so its delay of less than a tick takes nothing off the next. The advice returns to the job's own
    interval as batches get smaller.

    Batches without rows teach nothing: time made them due, and what they did is no part of a batch with rows.

    Args:
        batch_interval_ms: The job's own batch interval, milliseconds, above 0.
        headroom: The part of the interval that a batch aims to take, above 0 and at most 1.
        growth: How many times larger than any batch before a batch may be, 1 or more.
        min_rate: The floor of rates, rows a second, above 0.
        memory: After how many batches the weight of one has faded to about a third, 1 or more.
        pause_share: The part of a batch that garbage collection and spilling may take before growth ends.
        longest_interval_ms: The longest interval that `advice` names; None for 60 times the job's own.

    Attributes:
        pacing: When batches begin, `TICKS` unless it is set. At `AT_ONCE` a batch that is done early leaves no time
            unused, so a small fixed cost is no reason for a longer interval.

    Raises:
        ConfigError: An argument is out of range, or not a finite number.
    """

    def __init__(
        self,
        batch_interval_ms: float = 1000,
        *,
        headroom: float = 0.85,
        growth: float = 4.0,
        min_rate: float = 100.0,
        memory: float = 10.0,
        pause_share: float = 0.2,
        longest_interval_ms: float | None = None,
    ) -> None:
        self.batch_interval_ms = positive("batch_interval_ms", batch_interval_ms)
        self.headroom = fraction_of_one("headroom", headroom)
        self.growth = at_least("growth", growth, 1)
        self.min_rate = positive("min_rate", min_rate)
        self.memory = at_least("memory", memory, 1)
        self.pause_share = fraction_of_one("pause_share", pause_share)
        longest = 60 * self.batch_interval_ms if longest_interval_ms is None else longest_interval_ms
        self.longest_interval_ms = positive("longest_interval_ms", longest)
        if self.longest_interval_ms < self.batch_interval_ms:
            raise ConfigError(
                f"longest_interval_ms is {self.longest_interval_ms:g}, below batch_interval_ms of "
                f"{self.batch_interval_ms:g}"
            )
        self.pacing = Pacing.TICKS
        self._interval_ms = self.batch_interval_ms
        self._fade = 1 - 1 / (self.memory + 1)
        self._samples: deque[Sample] = deque(maxlen=_WINDOW)
        self._fit: CostFit | None = None
        self._multiple = 1
        self._paused = False
        self._late_ms = 0.0
        self._is_full = False
        self._full = 0

    @property
    def interval_ms(self) -> float:
        """The interval in force, for which rates are: the job's own, until a driver sets another."""
        return self._interval_ms

    @interval_ms.setter
    def interval_ms(self, value: float) -> None:
        self._interval_ms = positive("interval_ms", value)

    @property
    def fixed_ms(self) -> float:
        """What a batch costs whatever it reads, milliseconds; 0 before the first batch."""
        return 0.0 if self._fit is None else self._fit.fixed_ms

    @property
    def row_ms(self) -> float:
        """What each row adds, milliseconds; 0 before the first batch."""
        return 0.0 if self._fit is None else self._fit.row_ms

    def compute(
        self, time_ms: float, rows: int, processing_ms: float, scheduling_ms: float, *, pause_ms: float = 0.0
    ) -> float | None:
        """Return the new rate; None for a batch without rows, and for numbers that no batch can have.

        Args:
            time_ms: When the batch was finished; not used.
            rows: The rows that the batch has read.
            processing_ms: From the begin of the batch to its commit, milliseconds.
            scheduling_ms: How much later than its batch time the batch began, milliseconds.
            pause_ms: Milliseconds of the batch that went into garbage collection and spilling, where it is known.
                The driver measures those of garbage collection, and estimates those of spilling by bytes.
        """
        if not (0 < rows < _ROWS and 0 < processing_ms < _MS):
            return None
        self._is_full = self._was_full(rows)
        self._samples.append((float(rows), float(processing_ms)))
        self._fit = CostFit.of(self._samples, self._fade)
        self._paused = pause_ms > self.pause_share * processing_ms
        self._late_ms = scheduling_ms if isfinite(scheduling_ms) and scheduling_ms > 0 else 0.0
        self._choose_interval()
        return self.rate(self._late_ms)

    def rate(self, scheduling_ms: float = 0.0) -> float | None:
        """Return the rate for the interval in force after a batch of that delay; None before the first batch."""
        if self._fit is None:
            return None
        delay = scheduling_ms if isfinite(scheduling_ms) and scheduling_ms > 0 else 0.0
        rows = self._fit.rows_in(self._target_ms(delay))
        most = self._samples[-1][0] if self._paused else self.growth * self._largest()
        return max(min(rows, most) * 1000 / self._interval_ms, self.min_rate)

    def advice(self) -> IntervalAdvice:
        """Return the interval for the batches that follow; the job's own before the first batch."""
        interval = self._multiple * self.batch_interval_ms
        return IntervalAdvice(interval, self._needed_ms(), self.fixed_ms, self.row_ms)

    def adopt(self) -> float | None:
        """Put the advice into force, as a driver does after each batch; return the rate for it, None before the first.

        Where the last batches were full the interval is doubled first.
        """
        self._full = self._full + 1 if self._is_full else 0
        if self._full >= _LASTING:
            self._full = 0
            self._multiple = max(self._multiple, ceil(min(2 * self._multiple, self._useful())))
        self._interval_ms = self._multiple * self.batch_interval_ms
        return self.rate(self._late_ms)

    def _target_ms(self, delay_ms: float) -> float:
        """Return how long a batch may take. One of several ticks may begin late by all but one of them."""
        return self.headroom * self._interval_ms - max(0.0, delay_ms - (self._interval_ms - self.batch_interval_ms))

    def _was_full(self, rows: float) -> bool:
        """Return whether a batch had the rows that costs allowed; a limit of another kind is no backlog of ours."""
        if self._fit is None:
            return False
        floor = self.min_rate * self._interval_ms / 1000
        return rows >= _FULL * max(floor, self._fit.rows_in(self._target_ms(self._late_ms)))

    def _largest(self) -> float:
        """Return the rows of the largest batch that is remembered; how far they count fades with its weight."""
        return max(rows * self._fade**age for age, (rows, _) in enumerate(reversed(self._samples)))

    def _needed_ms(self) -> float:
        """Return the interval whose headroom is the fixed cost and that of the rows that `min_rate` gives in it.

        While the two costs cannot be separated, smaller batches show what rows cost. Where they are as small as they
        get all of the time counts as fixed: a longer interval has more rows, which show it too.
        """
        if self._fit is None:
            return 0.0
        if not self._fit.settled:
            floor = self.min_rate * self._interval_ms / 1000
            return self._fit.median_ms / self.headroom if self._fit.median_rows <= _SMALL * floor else 0.0
        left = self.headroom - self._fit.row_ms * self.min_rate / 1000
        return self._fit.fixed_ms / left if left > 0 else inf

    def _choose_interval(self) -> None:
        """Grow to the multiple that is needed; shrink to one that leaves some room for the batches of late.

        Where no interval is enough, because rows cost more than they bring, the job's own has the shortest delays.
        """
        assert self._fit is not None
        needed, longest = self._multiples(self._needed_ms()), self._longest()
        if needed == inf:
            self._multiple = 1
            return
        recent = max(needed, self._multiples(self._fit.expected_ms(self._largest()) / self.headroom))
        roomy = min(self._multiple, ceil(min(recent * _SLACK, self._useful())))
        self._multiple = max(1, ceil(min(needed, longest)), roomy)

    def _useful(self) -> float:
        """Return the multiple beyond which batches hardly process more rows a second, or the longest that may be."""
        # With ticks two are the least: a batch of one waits for the next when it is done.
        least = 2 if self.pacing is Pacing.TICKS else 1
        useful = self._multiples(self.fixed_ms / (_FIXED_SHARE * self.headroom))
        return min(self._longest(), max(least, useful))

    def _longest(self) -> int:
        return int(self.longest_interval_ms // self.batch_interval_ms)

    def _multiples(self, ms: float) -> float:
        return ms / self.batch_interval_ms
