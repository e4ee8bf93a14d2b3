"""Fit the time of batches as a fixed cost and a cost per row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from math import inf, sqrt

__all__ = ["CostFit", "Sample"]

_SETTLED = 0.25
"""A spread of this part of the mean settles what a row costs."""
_CLEAR = 0.9
"""A batch that takes less than this part of the time there is has room for rows."""
_OUTLIER = 4.0
"""How many median errors a batch is off that is called an outlier."""
_LEAST_ERROR = 0.02
"""The part of a batch's time that counts as error in any case, or the least would be an outlier in a series without."""
_CHANGED = 3
"""So many outliers at the end, all too slow or all too fast, are no accidents: costs have changed."""

Sample = tuple[float, float]
"""The rows of a batch, above 0, and its milliseconds, above 0."""


@dataclass(frozen=True, slots=True)
class CostFit:
    """What batches cost, by the newest of them.

    The cost per row is the median of the slopes between all pairs of batches (Theil 1950, Sen 1968), weighted by the
    root of their distance. The fixed cost is the median of the rest, in which the weight of a batch is `fade` to the
    power of its age. So a pause of a garbage collector in one batch of five changes little, and rows that hardly vary
    leave the cost per row as it was. Where the last batches are all outliers on one side, costs have changed, and only
    those batches count.

    Attributes:
        fixed_ms: What a batch costs whatever it reads, milliseconds.
        row_ms: What each row adds, milliseconds.
        settled: Whether row counts have differed enough to separate the two. Otherwise the split is a guess.
        median_rows: The weighted median of the rows.
        median_ms: The weighted median of the milliseconds.
    """

    fixed_ms: float
    row_ms: float
    settled: bool
    median_rows: float
    median_ms: float

    @classmethod
    def of(cls, batches: Iterable[Sample], fade: float) -> CostFit:
        """Return the fit of batches, oldest first, at least one."""
        samples = list(batches)
        fit = cls._of(samples, fade)
        changed = _outliers_at_end(samples, fit)
        return cls._of(samples[-changed:], fade) if _CHANGED <= changed < len(samples) else fit

    @classmethod
    def _of(cls, samples: Sequence[Sample], fade: float) -> CostFit:
        weighted = [(fade**age, *sample) for age, sample in zip(reversed(range(len(samples))), samples, strict=True)]
        mean = sum(rows for rows, _ in samples) / len(samples)
        spread = sqrt(sum((rows - mean) ** 2 for rows, _ in samples) / len(samples))
        median_rows = _median((rows, weight) for weight, rows, _ in weighted)
        median_ms = _median((ms, weight) for weight, _, ms in weighted)
        slopes = [
            ((ms - other_ms) / (rows - other_rows), sqrt(abs(rows - other_rows)))
            for (rows, ms), (other_rows, other_ms) in combinations(samples, 2)
            if rows != other_rows
        ]
        row_ms = min(max(_median(slopes), 0.0), median_ms / median_rows) if slopes else 0.0
        fixed_ms = max(0.0, _median((ms - row_ms * rows, weight) for weight, rows, ms in weighted))
        return cls(fixed_ms, row_ms, spread > _SETTLED * mean, median_rows, median_ms)

    def expected_ms(self, rows: float) -> float:
        """Return the time that a batch of so many rows should take."""
        return self.fixed_ms + self.row_ms * rows

    def rows_in(self, ms: float) -> float:
        """Return how many rows a batch can process in that time: infinity where rows cost nothing.

        While the split is a guess, rows cost nothing where batches are clearly shorter, so that a larger one settles
        it. Otherwise they cost all of the time: that many rows are sure to fit.
        """
        if not self.settled:
            return inf if self.median_ms < _CLEAR * ms else self.median_rows * max(0.0, ms) / self.median_ms
        left = ms - self.fixed_ms
        if left <= 0:
            return 0.0
        return left / self.row_ms if self.row_ms > 0 else inf


def _outliers_at_end(samples: Sequence[Sample], fit: CostFit) -> int:
    """Return how many of the last batches are outliers, all too slow or all too fast."""
    errors = [ms - fit.expected_ms(rows) for rows, ms in samples]
    usual = _median((abs(error), 1.0) for error in errors)
    count = 0
    for (rows, _), error in zip(reversed(samples), reversed(errors), strict=True):
        bound = _OUTLIER * max(usual, _LEAST_ERROR * fit.expected_ms(rows))
        if abs(error) <= bound or (error > 0) is not (errors[-1] > 0):
            break
        count += 1
    return count


def _median(values: Iterable[tuple[float, float]]) -> float:
    """Return the weighted median of values with their weights, at least one."""
    ordered = sorted(values)
    sums = list(accumulate(weight for _, weight in ordered))
    return next(value for (value, _), so_far in zip(ordered, sums, strict=True) if 2 * so_far >= sums[-1])
