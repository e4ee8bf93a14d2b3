"""Find the least and the greatest value of a group, for every type that has an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.aggregates.cells import Cell, Partials, Rows, as_arrow, valid_mask, values_of
from penstock.operators.aggregates.one_cell import OneCell
from penstock.state.keys import Bools, Ints

__all__ = ["GREATEST", "LEAST", "Greatest", "Least", "has_order", "ranks_of"]

_MAGNITUDE = np.int64(2**63 - 1)


def has_order(kind: pa.DataType) -> bool:
    """Return whether values of this type can be compared here: numbers, text, bytes, booleans, dates and times."""
    t = pa.types
    tests = (t.is_string, t.is_large_string, t.is_binary, t.is_large_binary, t.is_decimal, _is_numeric)
    return any(test(kind) for test in tests)


@dataclass(frozen=True, slots=True)
class Least(Cell):
    """The least value that is not null, or null.

    Floating numbers have the order of IEEE 754 totalOrder: NaN is greatest, as in Spark.
    The number -0.0 is less than 0.0. For Spark the two are equal and the first one wins, which no batch can know.
    Text and bytes compare byte by byte, unsigned.
    """

    nothing_is_null = True
    greatest: ClassVar[bool] = False

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Find the extreme of the rows of each group."""
        return {self.columns[0]: self._extremes(self.read(rows), ids, groups)}

    def merge(self, partials: Partials, ids: Ints, groups: int) -> Partials:
        """Find the extreme of the partials of each group."""
        return {self.columns[0]: self._extremes(as_arrow(partials[self.columns[0]]), ids, groups)}

    def _extremes(self, column: pa.Array, ids: Ints, groups: int) -> pa.Array:
        valid = valid_mask(column)
        if _is_numeric(self.kind):
            best, missing = self._best(_ranks(column), valid, ids, groups)
            return _unranked(best, missing, self.kind)
        ranks, words, order = _ranks_of_words(column)
        best, missing = self._best(ranks, valid, ids, groups)
        return words.take(order.take(pa.array(np.where(missing, 0, best), mask=missing)))

    def _best(self, ranks: Ints, valid: Bools | None, ids: Ints, groups: int) -> tuple[Ints, Bools]:
        if valid is not None:
            ranks, ids = ranks[valid], ids[valid]
        limits = np.iinfo(np.int64)
        best = np.full(groups, limits.min if self.greatest else limits.max, dtype=np.int64)
        (np.maximum if self.greatest else np.minimum).at(best, ids, ranks)
        missing = np.ones(groups, dtype=np.bool_)
        missing[ids] = False
        return best, missing


@dataclass(frozen=True, slots=True)
class Greatest(Least):
    """The greatest value that is not null, or null."""

    greatest = True


_REFUSED = "whose values have no order here"
LEAST = OneCell(part="min", cell=Least, accepts=has_order, refused=_REFUSED)
GREATEST = OneCell(part="max", cell=Greatest, accepts=has_order, refused=_REFUSED)


def ranks_of(column: pa.Array) -> Ints:
    """Return integers in the order of the values, of a type that `has_order`; the item of a null is anything."""
    return _ranks(column) if _is_numeric(column.type) else _ranks_of_words(column)[0]


def _ranks_of_words(column: pa.Array) -> tuple[Ints, pa.Array, pa.Array]:
    """Return the rank of each value among the different ones, these, and their order."""
    coded = column.dictionary_encode()
    words = coded.dictionary
    order = pc.sort_indices(words)
    rank = np.empty(len(words), dtype=np.int64)
    rank[order.to_numpy()] = np.arange(len(words))
    codes = values_of(coded.indices)
    return (rank[codes] if len(words) else np.zeros(len(codes), dtype=np.int64)), words, order


def _is_numeric(kind: pa.DataType) -> bool:
    t = pa.types
    return any(test(kind) for test in (t.is_integer, t.is_floating, t.is_boolean, _is_time))


def _is_time(kind: pa.DataType) -> bool:
    t = pa.types
    return any(test(kind) for test in (t.is_date, t.is_timestamp, t.is_time, t.is_duration))


def _ranks(column: pa.Array) -> Ints:
    """Return integers in the order of the values; the item of a null is anything."""
    kind = column.type
    if pa.types.is_floating(kind):
        doubles = values_of(column).astype(np.float64)
        doubles[np.isnan(doubles)] = np.nan
        return _flipped(doubles.view(np.int64))
    if _is_time(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())  # noqa: PLR2004
    return values_of(column, fill=False if pa.types.is_boolean(kind) else 0).astype(np.int64, copy=False)


def _unranked(ranks: Ints, missing: Bools, kind: pa.DataType) -> pa.Array:
    """Return the values of ranks."""
    mask = missing if missing.any() else None
    if pa.types.is_floating(kind):
        doubles = np.where(missing, 0.0, _flipped(ranks).view(np.float64))
        return pa.array(doubles.astype(kind.to_pandas_dtype()), type=kind, mask=mask)
    ranks = np.where(missing, 0, ranks)
    if pa.types.is_boolean(kind):
        return pa.array(ranks.astype(np.bool_), mask=mask)
    if _is_time(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004
        return pa.array(ranks.astype(whole.to_pandas_dtype()), type=whole, mask=mask).view(kind)
    return pa.array(ranks.astype(kind.to_pandas_dtype()), type=kind, mask=mask)


def _flipped(bits: Ints) -> Ints:
    """Turn the bits of doubles into integers of the same order, and back."""
    return bits ^ ((bits >> 63) & _MAGNITUDE)
