"""Compute variances from counts, means and sums of squared distances from the mean.

Partials are merged as in Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979), for any number of partials at once. Rows are reduced in two passes.
Sums of squares are never subtracted from each other, so nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregates.cells import Ids, Partials, Rows, add_at, add_doubles_at, valid_mask
from penstock.operators.aggregates.sums import doubles_of

__all__ = ["Moments"]

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Keep the count, the mean and the sum of squared distances from it; 0, 0, 0 of no values.

    Infinities and NaN make the squared distances NaN, as in Spark.
    """

    count: str
    mean: str
    squares: str
    input: str

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return a bigint and two doubles."""
        return (
            pa.field(self.count, pa.int64()),
            pa.field(self.mean, pa.float64()),
            pa.field(self.squares, pa.float64()),
        )

    def reduce(self, rows: Rows, ids: Ids, groups: int) -> Partials:
        """Reduce rows by group; nulls are left out."""
        column = rows.inputs[self.input]
        values, valid = doubles_of(column), valid_mask(column)
        if valid is not None:
            values, ids = values[valid], ids[valid]
        ones = np.ones(len(values), dtype=np.int64)
        return self._merged(ones, values, None, ids, groups)

    def merge(self, partials: Partials, ids: Ids, groups: int) -> Partials:
        """Merge partials by group."""
        counts: npt.NDArray[np.int64] = partials[self.count]
        some = counts > 0
        squares: Doubles = partials[self.squares][some]
        return self._merged(counts[some], partials[self.mean][some], squares, ids[some], groups)

    def _merged(
        self, counts: npt.NDArray[np.int64], means: Doubles, squares: Doubles | None, ids: Ids, groups: int
    ) -> Partials:
        total = add_at(ids, groups, counts)
        # Distances from one mean of the group instead of from 0 keep large means from swallowing small distances.
        anchor = np.zeros(groups)
        anchor[ids] = means
        with np.errstate(invalid="ignore", over="ignore"):
            weighted = (means - anchor[ids]) * counts
            mean = anchor + add_doubles_at(ids, groups, weighted) / np.maximum(total, 1)
            spread = counts * (means - mean[ids]) ** 2
            if squares is not None:
                spread += squares
        return {self.count: total, self.mean: mean, self.squares: add_doubles_at(ids, groups, spread)}
