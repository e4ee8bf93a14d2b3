"""Partial aggregates: a cell owns some columns, fills them from rows, and merges them by group.

Every cell is commutative and associative: rows may be merged in any order and any grouping.
Cells know neither keys nor windows.
A group is a number from 0 to `groups` - 1, given for each row or partial by `ids` (int64).
Here are counts, sums and variances; `extremes` and `edges` have the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import IntegerOverflow
from penstock.operators.aggregates.wide import Wide, group_sum
from penstock.state.keys import Bools, Ints

__all__ = [
    "DIGITS",
    "ORDER",
    "Cell",
    "Column",
    "DecimalSum",
    "Doubles",
    "FloatSum",
    "IntegerSum",
    "InvertibleCell",
    "Moments",
    "Partials",
    "Rows",
    "ValueCount",
    "as_arrow",
    "doubles_of",
    "valid_mask",
    "values_of",
    "without_nulls",
]

Doubles = npt.NDArray[np.float64]
Column: TypeAlias = npt.NDArray[Any] | pa.Array
"""A column of partials: numpy for bigints and doubles without nulls, Arrow for everything else."""
Partials = dict[str, Column]

ORDER = ("batch", "source", "partition", "position")
"""What arrival order is made of (SEMANTICS 1.6), greatest first."""
DIGITS = 38
"""Those of a sum of decimals."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to aggregate.

    Attributes:
        inputs: The columns that aggregates read, by name, of any Arrow type.
        times: Event times, int64 microseconds.
        order: The columns of ORDER, int64; empty where no aggregate asks for order.
    """

    inputs: Mapping[str, pa.Array]
    times: Ints
    order: tuple[Ints, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell(ABC):
    """Partial aggregates of one kind over one input, None for the rows themselves.

    `columns` have the types of the class, and one column has the type `kind` where the class says none.
    """

    columns: tuple[str, ...]
    input: str | None
    kind: pa.DataType
    types: ClassVar[tuple[pa.DataType, ...]] = ()
    nothing_is_null: ClassVar[bool] = False
    """Whether the partial of no values is null, and not 0: what a group has from before the aggregate was added."""

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return the columns this cell owns, with their Arrow types."""
        return tuple(map(pa.field, self.columns, self.types or (self.kind,)))

    @abstractmethod
    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Aggregate rows into one partial a group; that of a group without rows merges as nothing.

        `ids` is the group of each row (int64, from 0), `groups` how many groups there are.
        """

    @abstractmethod
    def merge(self, partials: Partials, ids: Ints, groups: int) -> Partials:
        """Merge partials into one a group; `ids` is the group of each partial (int64, from 0).

        One that is alone in its group gives the same results as before: who has nothing to merge need not call this.
        """

    def read(self, rows: Rows) -> pa.Array:
        """Return the input."""
        assert self.input is not None
        return rows.inputs[self.input]


class InvertibleCell(Cell):
    """A cell with an exact inverse: rows can leave without a trace (SEMANTICS 3.3)."""

    __slots__ = ()

    @abstractmethod
    def merge(self, partials: Partials, ids: Ints, groups: int, sign: Ints | None = None) -> Partials:
        """Merge as every cell does; `sign` is 1 or -1 for each partial (int64), and those of -1 are subtracted."""


def as_arrow(column: Column) -> pa.Array:
    """Return a column as an Arrow array, without a copy."""
    return pa.array(column) if isinstance(column, np.ndarray) else column


def valid_mask(array: pa.Array) -> Bools | None:
    """Return which items are not null, or None where all are."""
    if not array.null_count:
        return None
    mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def without_nulls(column: pa.Array, ids: Ints) -> tuple[pa.Array, Ints]:
    """Return the values of a column that are not null, and of each its group."""
    valid = valid_mask(column)
    return (column, ids) if valid is None else (column.filter(pa.array(valid)), ids[valid])


def values_of(array: pa.Array, fill: object = 0) -> npt.NDArray[np.generic]:
    """Return the items of an array of a numeric type as numpy, nulls replaced."""
    filled = array.fill_null(fill) if array.null_count else array
    values: npt.NDArray[np.generic] = filled.to_numpy(zero_copy_only=False)
    return values


def _add_at(ids: Ints, groups: int, numbers: Ints, sign: Ints | None = None) -> Ints:
    """Add up by group numbers whose sums fit into 64 bits: counts of rows."""
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, ids, numbers if sign is None else numbers * sign)
    return total


def _add_doubles_at(ids: Ints, groups: int, numbers: Doubles) -> Doubles:
    """Add up doubles by group."""
    # Without rows bincount forgets the type of its weights.
    return np.bincount(ids, numbers, minlength=groups).astype(np.float64, copy=False)


def doubles_of(array: pa.Array) -> Doubles:
    """Return a numeric array as doubles, nulls as 0."""
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    return values_of(array).astype(np.float64, copy=False)


class ValueCount(InvertibleCell):
    """Count rows, or the values of an input that are not null."""

    __slots__ = ()
    types = (pa.int64(),)

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Count by group."""
        valid = None if self.input is None else valid_mask(self.read(rows))
        counts = np.bincount(ids if valid is None else ids[valid], minlength=groups)
        return {self.columns[0]: counts.astype(np.int64)}

    def merge(self, partials: Partials, ids: Ints, groups: int, sign: Ints | None = None) -> Partials:
        """Add counts up, or subtract them."""
        return {self.columns[0]: _add_at(ids, groups, partials[self.columns[0]], sign)}


class IntegerSum(InvertibleCell):
    """Add up integers in 128 bits: the sum is low + carry * 2**64, and the carry is 0 where the sum is a bigint.

    So a sum overflows only where the rows of a whole window do, in whatever order they came, were merged or left.
    """

    __slots__ = ()
    types = (pa.int64(), pa.int64())

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Add rows up by group; nulls are 0."""
        numbers = values_of(self.read(rows)).astype(np.int64, copy=False)
        return self._partials(group_sum(Wide(numbers), ids, groups))

    def merge(self, partials: Partials, ids: Ints, groups: int, sign: Ints | None = None) -> Partials:
        """Add sums up, or subtract them."""
        numbers = Wide.from_carry(*(partials[column] for column in self.columns))
        return self._partials(group_sum(numbers, ids, groups, sign))

    def _partials(self, total: Wide) -> Partials:
        return dict(zip(self.columns, (total.low, total.carry), strict=True))


class DecimalSum(InvertibleCell):
    """Add up decimals of one scale exactly, in up to 38 digits."""

    __slots__ = ()

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Add rows up by group; nulls are left out."""
        decimals = self.read(rows)
        numbers, valid = Wide.from_decimals(decimals), valid_mask(decimals)
        if valid is not None:
            numbers = Wide(numbers.low[valid], None if numbers.high is None else numbers.high[valid])
            ids = ids[valid]
        return self._partials(group_sum(numbers, ids, groups))

    def merge(self, partials: Partials, ids: Ints, groups: int, sign: Ints | None = None) -> Partials:
        """Add sums up, or subtract them."""
        return self._partials(group_sum(Wide.from_decimals(partials[self.columns[0]]), ids, groups, sign))

    def _partials(self, total: Wide) -> Partials:
        if total.high is not None and total.reaches(10**DIGITS).any():
            raise IntegerOverflow(f"a sum of decimals has more than {DIGITS} digits", where=self.columns[0])
        return {self.columns[0]: total.to_decimals(self.kind)}


class FloatSum(Cell):
    """Add up in double, as Spark does for floating sums and for means of numbers that are not decimals.

    There is no inverse: inf - inf and 1e17 + 1 - 1e17 are wrong for ever.
    """

    __slots__ = ()
    types = (pa.float64(),)

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Add rows up by group; nulls are 0."""
        return {self.columns[0]: _add_doubles_at(ids, groups, doubles_of(self.read(rows)))}

    def merge(self, partials: Partials, ids: Ints, groups: int) -> Partials:
        """Add sums up."""
        return {self.columns[0]: _add_doubles_at(ids, groups, partials[self.columns[0]])}


class Moments(Cell):
    """Keep the count, the mean and the sum of squared distances from it; 0, 0, 0 of no values.

    Partials are merged as in Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances" (1979), for any number of partials at once. Rows are reduced in two passes.
    Sums of squares are never subtracted from each other, so nothing cancels.
    Infinities, NaN, and values too far from each other for a mean make the squared distances NaN, as in Spark.
    """

    __slots__ = ()
    types = (pa.int64(), pa.float64(), pa.float64())

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Reduce rows by group; nulls are left out."""
        column = self.read(rows)
        values, valid = doubles_of(column), valid_mask(column)
        if valid is not None:
            values, ids = values[valid], ids[valid]
        ones = np.ones(len(values), dtype=np.int64)
        return self._merged(ones, values, None, ids, groups)

    def merge(self, partials: Partials, ids: Ints, groups: int) -> Partials:
        """Merge partials by group."""
        counts, means, squares = (partials[column] for column in self.columns)
        some = counts > 0
        return self._merged(counts[some], means[some], squares[some], ids[some], groups)

    def _merged(self, counts: Ints, means: Doubles, squares: Doubles | None, ids: Ints, groups: int) -> Partials:
        total = _add_at(ids, groups, counts)
        # Distances from one mean of the group instead of from 0 keep large means from swallowing small distances.
        anchor = np.zeros(groups)
        anchor[ids] = means
        with np.errstate(invalid="ignore", over="ignore"):
            weighted = (means - anchor[ids]) * counts
            mean = anchor + _add_doubles_at(ids, groups, weighted) / np.maximum(total, 1)
            mean[np.isinf(mean)] = np.nan  # as it would be once merged again, and as Spark has it
            spread = counts * (means - mean[ids]) ** 2
            if squares is not None:
                spread += squares
        return dict(zip(self.columns, (total, mean, _add_doubles_at(ids, groups, spread)), strict=True))
