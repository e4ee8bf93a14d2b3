"""Count how often each value occurs in a group: the number of different values, and quantiles of bounded error.

A partial is a list of values in their order, and their counts. Rows that leave are subtracted exactly, and a count of 0
is dropped.
Quantiles count buckets instead of values: bucket i holds what lies in (g**(i-1), g**i], as in DDSketch (Masson, Rim and
Lee, VLDB 2019). So the result does not depend on the order of rows, and the state is readable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.aggregates.cells import (
    Column,
    Doubles,
    InvertibleCell,
    Partials,
    Rows,
    as_arrow,
    doubles_of,
    values_of,
    without_nulls,
)
from penstock.operators.aggregates.extremes import has_order
from penstock.operators.aggregates.one_cell import OneCell
from penstock.state.hashing import normalise
from penstock.state.keys import Bools, Ints

__all__ = ["DIFFERENT", "ERROR", "Buckets", "Tally", "quantile"]

ERROR = 0.01
"""The most by which a quantile is wrong, as a share of it."""
_LOG = np.log((1 + ERROR) / (1 - ERROR))
_SHIFT = 40_000
"""More than the number of any bucket of doubles: the logarithm of the least is -745."""
_INFINITE, _NAN = 100_000, 100_001
_ROUNDING = 4 * np.finfo(np.float64).eps
"""By how much of it the product of a share and a count is off, because the share is no exact double."""


@dataclass(frozen=True, slots=True)
class Tally(InvertibleCell):
    """The different values that are not null, each with its count; NaN is one value, and zero is."""

    nothing_is_null = True

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return one list of values and counts."""
        return (pa.field(self.columns[0], pa.list_(pa.struct([("value", self.kind), ("n", pa.int64())]))),)

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Count the values of each group."""
        column = self.read(rows)
        values, ids = without_nulls(column, ids)
        return {self.columns[0]: self._lists(self.counted(values), np.ones(len(ids), dtype=np.int64), ids, groups)}

    def merge(self, partials: Partials, ids: Ints, groups: int, sign: Ints | None = None) -> Partials:
        """Add counts up, or subtract them."""
        items, parents = _flattened(partials[self.columns[0]])
        values, counts = items.field(0), items.field(1).to_numpy()
        signed = counts if sign is None else counts * sign[parents]
        return {self.columns[0]: self._lists(values, signed, ids[parents], groups)}

    def counted(self, values: pa.Array) -> pa.Array:
        """Return what is counted of values that are not null."""
        return normalise(values)

    def _lists(self, values: pa.Array, counts: Ints, ids: Ints, groups: int) -> pa.Array:
        words, codes = _coded(values)
        width = max(1, len(words))
        pairs, place = np.unique(ids * width + codes, return_inverse=True)
        total = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(total, place, counts)
        pairs, total = pairs[total != 0], total[total != 0]
        items = pa.StructArray.from_arrays(
            [words.take(pa.array(pairs % width)).cast(self.kind), pa.array(total)], names=["value", "n"]
        )
        return pa.ListArray.from_arrays(_offsets(pairs // width, groups), items).cast(self.fields[0].type)


@dataclass(frozen=True, slots=True)
class Buckets(Tally):
    """The buckets of numbers, each with its count; `kind` is int32."""

    def counted(self, values: pa.Array) -> pa.Array:
        """Return the bucket of each number; buckets have the order of their numbers, and NaN is greatest."""
        numbers = doubles_of(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            places = (np.ceil(np.log(np.abs(numbers)) / _LOG) + _SHIFT) * np.sign(numbers)
        buckets = np.where(np.isfinite(numbers) & (numbers != 0), places, 0.0)
        buckets = np.where(np.isinf(numbers), _INFINITE * np.sign(numbers), buckets)
        return pa.array(np.where(np.isnan(numbers), _NAN, buckets).astype(np.int32))


def count_of_tally(tallies: Column) -> pa.Array:
    """Return how many different values there are."""
    return pc.list_value_length(tallies).fill_null(0).cast(pa.int64())


DIFFERENT = OneCell(
    part="tally",
    cell=Tally,
    accepts=has_order,
    refused="whose values cannot be compared here",
    result=pa.int64(),
    compute=count_of_tally,
    kept="{}",
)
"""`count_distinct`."""


def quantile(buckets: Column, share: float) -> pa.Array:
    """Return the least number that at least this share of the values does not exceed, null where there are none."""
    lists = as_arrow(buckets)
    groups = len(lists)
    items, parents = _flattened(lists)
    numbers, counts = items.field(0).to_numpy(), items.field(1).to_numpy()
    order = np.lexsort((numbers, parents))
    numbers, counts, parents = numbers[order], counts[order], parents[order]
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, parents, counts)
    before = np.cumsum(total) - total
    rank = before + np.clip(_ranks(share, total), 1, None)
    empty: Bools = total == 0
    at = np.searchsorted(np.cumsum(counts), np.where(empty, 0, rank))
    found = numbers[np.minimum(at, len(numbers) - 1)] if len(numbers) else np.zeros(groups, dtype=np.int64)
    return pa.array(_middle(found), mask=empty)


def _ranks(share: float, total: Ints) -> Ints:
    """Return share * total, rounded up; the double 0.07 times 100 is 7, although a little more as a product."""
    product = share * total
    nearest = np.rint(product)
    written = np.abs(product - nearest) <= _ROUNDING * nearest
    ranks: Ints = np.where(written, nearest, np.ceil(product)).astype(np.int64)
    return ranks


def _middle(buckets: Ints) -> Doubles:
    """Return the number in a bucket that no other is further from than ERROR."""
    size = np.abs(buckets).astype(np.float64)
    with np.errstate(over="ignore"):
        middle = np.exp((size - _SHIFT) * _LOG) * (2 / (np.exp(_LOG) + 1))
    # The last bucket reaches beyond the doubles, and its numbers do not.
    middle = np.minimum(middle, np.finfo(np.float64).max)
    middle = np.where(buckets == 0, 0.0, np.sign(buckets) * middle)
    middle = np.where(size == _INFINITE, np.copysign(np.inf, buckets), middle)
    return np.where(buckets == _NAN, np.nan, middle)


def _coded(values: pa.Array) -> tuple[pa.Array, Ints]:
    """Return the different values in their order, so that a list has one form, and the place of each value there."""
    coded = values.dictionary_encode()
    order: Ints = pc.sort_indices(coded.dictionary).to_numpy().astype(np.int64)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return coded.dictionary.take(pa.array(order)), rank[values_of(coded.indices)]


def _flattened(lists: Column) -> tuple[pa.Array, Ints]:
    """Return the items of lists, and for each the number of its list."""
    column = as_arrow(lists)
    return pc.list_flatten(column), pc.list_parent_indices(column).to_numpy().astype(np.int64)


def _offsets(owners: Ints, groups: int) -> pa.Array:
    """Return where the lists of so many groups begin and end; `owners` ascend."""
    return pa.array(np.searchsorted(owners, np.arange(groups + 1)).astype(np.int32))
