"""Keep rows of a group as they are: all of them in the order of arrival, or the greatest few.

A partial is a list of values, each with its place in the order of arrival (SEMANTICS 1.6), so partials merge in any
order. The list is bounded. All rows of a group beyond the bound raise, the greatest few drop the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import AccumulatorTooLarge
from penstock.operators.aggregates.cells import ORDER, Cell, Column, Partials, Rows, as_arrow
from penstock.operators.aggregates.extremes import ranks_of
from penstock.state.hashing import normalise
from penstock.state.keys import Ints

__all__ = [
    "BY",
    "VALUE",
    "Items",
    "TopItems",
    "all_nullable",
    "flattened",
    "item_positions",
    "values_of_items",
    "with_positions",
]

BY, VALUE = "by", "value"
"""The fields of the input of `top_k`."""


@dataclass(frozen=True, slots=True)
class Items(Cell):
    """The values that are not null, in the order of arrival; more than `most` of a group raise AccumulatorTooLarge.

    `kind` is the type of the input.
    """

    nothing_is_null = True
    most: int = 0

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return one list of values with their places."""
        return (
            pa.field(self.columns[0], pa.list_(pa.struct([*((p, pa.int64()) for p in ORDER), (VALUE, self.kind)]))),
        )

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Take the rows of each group."""
        if len(rows.order) != len(ORDER):
            raise ValueError(f"collect and top_k need the columns of arrival order: {', '.join(ORDER)}")
        column = self.read(rows)
        kept = self._counts(column).to_numpy(zero_copy_only=False)
        places = [pa.array(place[kept]) for place in rows.order]
        items = pa.StructArray.from_arrays([*places, column.filter(pa.array(kept))], names=[*ORDER, VALUE])
        return {self.columns[0]: self._lists(items, ids[kept], groups)}

    def merge(self, partials: Partials, ids: Ints, groups: int) -> Partials:
        """Take the items of all partials of a group."""
        items, parents = flattened(partials[self.columns[0]])
        return {self.columns[0]: self._lists(items, ids[parents], groups)}

    def _counts(self, column: pa.Array) -> pa.Array:
        """Return which rows count."""
        return column.is_valid()

    def _order(self, items: pa.Array, ids: Ints) -> Ints:
        """Return the items by group, and in a group as the result has them."""
        return np.lexsort((*_places(items), ids))

    def _bounded(self, order: Ints, within: Ints) -> Ints:
        """Return the order without what is too much; `within` is the place of each in its group."""
        if len(within) and int(within.max()) >= self.most:
            what = f"a list of one key and window has {int(within.max()) + 1} values, and its limit is {self.most}"
            raise AccumulatorTooLarge(what, where=self.columns[0])
        return order

    def _lists(self, items: pa.Array, ids: Ints, groups: int) -> pa.Array:
        order = self._order(items, ids)
        owners = ids[order]
        order = self._bounded(order, np.arange(len(owners)) - np.searchsorted(owners, owners))
        offsets = np.searchsorted(ids[order], np.arange(groups + 1)).astype(np.int32)
        kept = items.take(pa.array(order))
        return pa.ListArray.from_arrays(pa.array(offsets), kept).cast(self.fields[0].type)


@dataclass(frozen=True, slots=True)
class TopItems(Items):
    """The `most` rows with the greatest `by`, greatest first, and of equal ones those that came first.

    The input is a struct of `by` and `value`. Rows whose `by` is null do not count. NaN is greatest, and zero is one
    number.
    """

    def _counts(self, column: pa.Array) -> pa.Array:
        return pc.struct_field(column, BY).is_valid()

    def _order(self, items: pa.Array, ids: Ints) -> Ints:
        greatest = -ranks_of(normalise(pc.struct_field(items, [VALUE, BY])))
        return np.lexsort((*_places(items), greatest, ids))

    def _bounded(self, order: Ints, within: Ints) -> Ints:
        return order[within < self.most]


def all_nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type whose fields may all be null: Spark says so or not by the expression, not by the values."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, all_nullable(field.type)) for field in kind])
    return pa.list_(all_nullable(kind.value_type)) if pa.types.is_list(kind) else kind


def values_of_items(lists: Column, kind: pa.DataType, limit: int, *, top: bool, what: str) -> pa.Array:
    """Return the values of lists as lists of type `kind`; more than `limit` raise, or of `top` are left out."""
    items, parents = flattened(lists)
    within = np.arange(len(parents)) - np.searchsorted(parents, parents)
    if not top and len(within) and int(within.max()) >= limit:
        raise AccumulatorTooLarge(f"{what} of one key and window has more than {limit} values")
    kept = within < limit
    offsets = np.searchsorted(parents[kept], np.arange(len(lists) + 1)).astype(np.int32)
    values = pc.struct_field(items.filter(pa.array(kept)), [VALUE, VALUE] if top else [VALUE])
    return pa.ListArray.from_arrays(pa.array(offsets), values).cast(kind)


def item_positions(lists: Column) -> Ints:
    """Return the last part of the places of all items of lists."""
    positions: Ints = pc.struct_field(flattened(lists)[0], ORDER[-1]).to_numpy()
    return positions


def with_positions(lists: pa.Array, positions: Ints) -> pa.Array:
    """Return lists of items with other last parts of their places."""
    items, parents = flattened(lists)
    columns = [pc.struct_field(items, field.name) for field in items.type]
    columns[ORDER.index(ORDER[-1])] = pa.array(positions)
    changed = pa.StructArray.from_arrays(columns, names=[field.name for field in items.type])
    offsets = np.searchsorted(parents, np.arange(len(lists) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), changed).cast(lists.type)


def flattened(lists: Column) -> tuple[pa.Array, Ints]:
    """Return the items of lists, and for each the number of its list."""
    column = as_arrow(lists)
    return pc.list_flatten(column), pc.list_parent_indices(column).to_numpy().astype(np.int64)


def _places(items: pa.Array) -> list[Ints]:
    """Return the columns of the order of arrival, least first."""
    return [pc.struct_field(items, place).to_numpy() for place in reversed(ORDER)]
