"""Add up: integers and decimals exactly and with an inverse, floating numbers in double without one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import IntegerOverflow
from penstock.operators.aggregates.cells import Ids, Partials, Rows, add_doubles_at, valid_mask, values_of
from penstock.operators.aggregates.wide import Wide, group_sum

__all__ = ["DecimalSum", "FloatSum", "IntegerSum", "doubles_of"]

_DIGITS = 38


def doubles_of(array: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a numeric array as doubles, nulls as 0."""
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    return values_of(array).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class IntegerSum:
    """Add up integers in 128 bits: the sum is `column` + `carry` * 2**64, and `carry` is 0 where the sum is a bigint.

    So a sum overflows only where the rows of a whole window do, in whatever order they came, were merged or left.
    """

    column: str
    carry: str
    input: str

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return two bigints."""
        return (pa.field(self.column, pa.int64()), pa.field(self.carry, pa.int64()))

    def reduce(self, rows: Rows, ids: Ids, groups: int) -> Partials:
        """Add rows up by group; nulls are 0."""
        numbers = values_of(rows.inputs[self.input]).astype(np.int64, copy=False)
        return self._partials(group_sum(Wide(numbers), ids, groups))

    def merge(self, partials: Partials, ids: Ids, groups: int, sign: Ids | None = None) -> Partials:
        """Add sums up, or subtract them."""
        numbers = Wide.from_carry(partials[self.column], partials[self.carry])
        return self._partials(group_sum(numbers, ids, groups, sign))

    def _partials(self, total: Wide) -> Partials:
        return {self.column: total.low, self.carry: total.carry}


@dataclass(frozen=True, slots=True)
class DecimalSum:
    """Add up decimals of one scale exactly, in up to 38 digits."""

    column: str
    input: str
    scale: int

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return one decimal of 38 digits."""
        return (pa.field(self.column, pa.decimal128(_DIGITS, self.scale)),)

    def reduce(self, rows: Rows, ids: Ids, groups: int) -> Partials:
        """Add rows up by group; nulls are left out."""
        decimals = rows.inputs[self.input]
        numbers, valid = Wide.from_decimals(decimals), valid_mask(decimals)
        if valid is not None:
            numbers = Wide(numbers.low[valid], None if numbers.high is None else numbers.high[valid])
            ids = ids[valid]
        return self._partials(group_sum(numbers, ids, groups))

    def merge(self, partials: Partials, ids: Ids, groups: int, sign: Ids | None = None) -> Partials:
        """Add sums up, or subtract them."""
        return self._partials(group_sum(Wide.from_decimals(partials[self.column]), ids, groups, sign))

    def _partials(self, total: Wide) -> Partials:
        if total.high is not None and total.reaches(10**_DIGITS).any():
            raise IntegerOverflow(f"a sum of decimals has more than {_DIGITS} digits", where=self.column)
        return {self.column: total.to_decimals(pa.decimal128(_DIGITS, self.scale))}


@dataclass(frozen=True, slots=True)
class FloatSum:
    """Add up in double, as Spark does for floating sums and for means of numbers that are not decimals.

    There is no inverse: inf - inf and 1e17 + 1 - 1e17 are wrong for ever.
    """

    column: str
    input: str

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return one double."""
        return (pa.field(self.column, pa.float64()),)

    def reduce(self, rows: Rows, ids: Ids, groups: int) -> Partials:
        """Add rows up by group; nulls are 0."""
        return {self.column: add_doubles_at(ids, groups, doubles_of(rows.inputs[self.input]))}

    def merge(self, partials: Partials, ids: Ids, groups: int) -> Partials:
        """Add sums up."""
        return {self.column: add_doubles_at(ids, groups, partials[self.column])}
