"""Estimate a rate from what a batch costs whatever it reads, and what each row costs (SEMANTICS 8.4)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil, inf, isfinite

from penstock.errors import ConfigError
from penstock.rates.cost_fit import CostFit, Sample
from penstock.rates.quantities import at_least, fraction_of_one, positive

__all__ = ["CostModel", "IntervalAdvice"]

_SLACK = 1.25
"""A longer interval is left when the shorter one would have this much room: otherwise it would come and go."""
_ROWS, _MS = 1e18, 1e15
"""No batch has so many rows or takes so long; their squares are far below what a double holds."""
_WINDOW = 50
"""How many batches are remembered; with the default memory the oldest weighs less than a hundredth."""


@dataclass(frozen=True, slots=True)
class IntervalAdvice:
    """The batch interval that the costs of a job call for.

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

    Where the fixed cost leaves no room for `min_rate`, no rate helps. The rate is then `min_rate`, and `advice` names a
    longer interval. A driver that adopts it sets `interval_ms`, and the rates that follow are for that interval.

    Batches without rows teach nothing: time made them due, and what they did is no part of a batch with rows.

    Args:
        batch_interval_ms: The job's own batch interval, milliseconds, above 0.
        headroom: The part of the interval that a batch aims to take, above 0 and at most 1.
        growth: How many times larger than any batch before a batch may be, 1 or more.
        min_rate: The floor of rates, rows a second, above 0.
        memory: After how many batches the weight of one has faded to about a third, 1 or more.
        pause_share: The part of a batch that garbage collection and spilling may take before growth ends.
        longest_interval_ms: The longest interval that `advice` names; None for 60 times the job's own.

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
        self._interval_ms = self.batch_interval_ms
        self._fade = 1 - 1 / (self.memory + 1)
        self._samples: deque[Sample] = deque(maxlen=_WINDOW)
        self._fit: CostFit | None = None
        self._multiple = 1
        self._paused = False

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
        """
        if not (0 < rows < _ROWS and 0 < processing_ms < _MS):
            return None
        self._samples.append((float(rows), float(processing_ms)))
        self._fit = CostFit.of(self._samples, self._fade)
        self._paused = pause_ms > self.pause_share * processing_ms
        self._choose_interval()
        return self.rate(scheduling_ms)

    def rate(self, scheduling_ms: float = 0.0) -> float | None:
        """Return the rate for the interval in force after a batch of that delay; None before the first batch."""
        if self._fit is None:
            return None
        delay = scheduling_ms if isfinite(scheduling_ms) and scheduling_ms > 0 else 0.0
        rows = self._fit.rows_in(self.headroom * self._interval_ms - delay)
        most = self._samples[-1][0] if self._paused else self.growth * self._largest()
        return max(min(rows, most) * 1000 / self._interval_ms, self.min_rate)

    def advice(self) -> IntervalAdvice:
        """Return the interval for the batches that follow; the job's own before the first batch."""
        interval = self._multiple * self.batch_interval_ms
        return IntervalAdvice(interval, self._needed_ms(), self.fixed_ms, self.row_ms)

    def _largest(self) -> float:
        """Return the rows of the largest batch that is remembered; how far they count fades with its weight."""
        return max(rows * self._fade**age for age, (rows, _) in enumerate(reversed(self._samples)))

    def _needed_ms(self) -> float:
        """Return the interval whose headroom is the fixed cost and that of the rows that `min_rate` gives in it.

        While the two costs cannot be separated, all of the time counts as fixed. A longer interval has more rows, and
        their cost shows.
        """
        if self._fit is None:
            return 0.0
        if not self._fit.settled:
            return self._fit.median_ms / self.headroom
        left = self.headroom - self._fit.row_ms * self.min_rate / 1000
        return self._fit.fixed_ms / left if left > 0 else inf

    def _choose_interval(self) -> None:
        """Grow to the multiple that is needed; shrink to one that leaves some room.

        Where no interval is enough, because rows cost more than they bring, the job's own has the shortest delays.
        """
        needed = self._needed_ms() / self.batch_interval_ms
        longest = int(self.longest_interval_ms // self.batch_interval_ms)
        if needed == inf:
            self._multiple = 1
            return
        roomy = min(self._multiple, ceil(min(needed * _SLACK, longest)))
        self._multiple = max(1, ceil(min(needed, longest)), roomy)
