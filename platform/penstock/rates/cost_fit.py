"""Fit the time of batches as a fixed cost and a cost per row, with weights that fade. Pure."""

from __future__ import annotations

from math import sqrt

__all__ = ["CostFit"]

_SPREAD = 0.05
"""Row counts that differ by less than this part of their mean say little of the cost per row."""
_OUTLIER = 3.0
"""How many mean errors a batch may be off before the rest of its time is taken for an accident."""
_TRUSTED = 5
"""Batches after which errors are known well enough to call one an outlier."""
_IN_A_ROW = 3
"""So many outliers one after the other are no accidents: costs have changed."""


class CostFit:
    """Weighted least squares of batch time over rows, updated batch by batch (Welford's means and moments).

    The weight of a batch is `fade` to the power of its age. Where the row counts hardly differ, two costs cannot be
    told apart: then the cost per row stays what it was, and the fixed cost takes the rest. At first the whole time
    counts as cost of rows, which is the careful guess; `settled` says that row counts have differed since.
    A batch far from what was expected counts as one that is `_OUTLIER` mean errors off, so that one pause of a garbage
    collector changes little. After `_IN_A_ROW` of them costs have changed, and older batches no longer count.
    """

    def __init__(self, fade: float) -> None:
        self.fixed_ms = 0.0
        self.row_ms = 0.0
        self.batches = 0
        self.settled = False
        self._fade = fade
        self._weight = self._rows = self._ms = 0.0
        self._square = self._product = 0.0
        self._error = 0.0
        self._outliers = 0

    def add(self, rows: float, ms: float) -> None:
        """Add a batch of `rows` above 0 that took `ms` above 0."""
        ms = self._without_accident(rows, ms)
        self.batches += 1
        self._weight = self._weight * self._fade + 1
        by_rows, by_ms = rows - self._rows, ms - self._ms
        self._rows += by_rows / self._weight
        self._ms += by_ms / self._weight
        self._square = self._square * self._fade + by_rows * (rows - self._rows)
        self._product = self._product * self._fade + by_rows * (ms - self._ms)
        most = self._ms / self._rows  # with this cost per row nothing is fixed
        known = self.row_ms if self.batches > 1 else most
        doubt = self._weight * (_SPREAD * self._rows) ** 2
        slope = (self._product + doubt * known) / (self._square + doubt)
        self.settled = self.settled or self._square > doubt
        self.row_ms = min(max(slope, 0.0), most)
        self.fixed_ms = max(0.0, self._ms - self.row_ms * self._rows)

    def expected_ms(self, rows: float) -> float:
        """Return the time that a batch of so many rows should take."""
        return self.fixed_ms + self.row_ms * rows

    def rows_in(self, ms: float) -> float:
        """Return how many rows a batch can process in that time: infinity where rows cost nothing."""
        left = ms - self.fixed_ms
        if left <= 0:
            return 0.0
        return left / self.row_ms if self.row_ms > 0 else float("inf")

    def _without_accident(self, rows: float, ms: float) -> float:
        """Return the time that counts, and note how far expectations are off."""
        if self.batches == 0:
            return ms
        expected = self.expected_ms(rows)
        # Never less than a part of the time itself: a series without any noise would make an outlier of the least.
        bound = _OUTLIER * max(self._error, 0.02 * expected)
        is_outlier = self.batches >= _TRUSTED and abs(ms - expected) > bound
        self._outliers = self._outliers + 1 if is_outlier else 0
        if self._outliers == _IN_A_ROW:
            self._forget()
        counted = ms
        if is_outlier and self._outliers < _IN_A_ROW:
            # Too fast, it counts as no longer than others were: what is expected of many rows may be far off.
            counted = min(max(ms, min(expected - bound, self._ms)), expected + bound)
        self._error = sqrt(self._fade * self._error**2 + (1 - self._fade) * (counted - expected) ** 2)
        return counted

    def _forget(self) -> None:
        """Start over, with the cost per row as it was."""
        self._weight = self._square = self._product = 0.0
