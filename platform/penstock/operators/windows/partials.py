"""Keep partial aggregates as Arrow tables: one row a slice and key, sorted by slice, then hash.

Columns: `_group` (int64, the start of the slice), `_hash` (int64), the key columns, the partials of the plan.
The same tables travel through the shuffle, lie in the state and are merged there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.errors import JobError
from penstock.operators.aggregates import ROWS, AggregatePlan, Partials
from penstock.operators.aggregates.custom import naming_keys
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import ascending, group_rows
from penstock.state.group_ranges import distinct
from penstock.state.keys import Ints
from penstock.state.row_layout import GROUP, HASH

__all__ = ["FROM", "NEW_ROWS", "SLICE_START", "WINDOW_END", "PartialLayout", "slices_in"]

FROM = "_from"
SLICE_START = "slice_start"
WINDOW_END = "window_end"
NEW_ROWS = "_new_rows"
"""How many rows of a key and window no pane has had, where windows have early panes."""
_TAKEN = frozenset({GROUP, HASH, FROM, "_deleted", "_expires", "_state_partition", SLICE_START})
"""Columns that the state has or may have beside keys and partials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialLayout:
    """The layout of a step's partials; merges tables of it.

    `keys` are the key columns; there may be none.
    `schema` is all columns: slice, hash, keys, partials.
    """

    plan: AggregatePlan
    keys: pa.Schema
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        own = {name.lower() for name in (*_TAKEN, *(f.name for f in self.plan.fields))}
        if taken := [name for name in self.keys.names if name.lower() in own]:
            raise JobError(f"a key column has the name {min(taken)!r}, which Penstock uses for itself")
        schema = pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys, *self.plan.fields])
        object.__setattr__(self, "schema", schema)

    def empty(self) -> pa.Table:
        """Return a table without rows."""
        return self.schema.empty_table()

    def aligned(self, table: pa.Table) -> pa.Table:
        """Return a table with the columns of the layout, in order and type; others are left out."""
        if table.schema.equals(self.schema):
            return table
        return table.select(self.schema.names).cast(self.schema)

    def readable(self, rows: pa.Table) -> pa.Table:
        """Return rows for people and other engines: keys, partials and `slice_start`, a UTC timestamp."""
        kept = self.aligned(rows).drop_columns([GROUP, HASH])
        return kept.append_column(SLICE_START, rows[GROUP].cast(pa.timestamp("us", tz="UTC")))

    def combine(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge the rows of equal slice and key, of any number of tables in any order; sorted by slice, then hash."""
        return self._merged(tables, None, by_slice=True)

    def merge(self, tables: Sequence[pa.Table], signs: Sequence[int] | None = None) -> pa.Table:
        """Merge the rows of equal key whatever their slice; `_group` is 0, sorted by hash.

        `signs` holds 1 or -1 for each table: those of -1 are subtracted, and keys left without rows are gone.
        """
        merged = self._merged(tables, signs, by_slice=False)
        if signs is None or min(signs, default=1) > 0:
            return merged
        held = integers(merged, ROWS) > 0
        return merged if held.all() else merged.filter(pa.array(held))

    def _merged(self, tables: Sequence[pa.Table], signs: Sequence[int] | None, *, by_slice: bool) -> pa.Table:
        filled = [self.aligned(table) for table in tables if table.num_rows]
        if not filled:
            return self.empty()
        if by_slice and (in_order := _in_order(filled)) is not None:
            return in_order
        table = pa.concat_tables(filled)
        keys = [column_array(table, name) for name in self.keys.names]
        hashes = integers(table, HASH)
        slices = integers(table, GROUP) if by_slice else None
        grouping = group_rows(keys, hashes, slices)
        sign = None
        if signs is not None:
            sign = np.repeat(np.array(signs, dtype=np.int64), [delta.num_rows for delta in tables])
        with naming_keys(keys, grouping.first):
            partials = self.plan.merge(self.plan.partials_of(table), grouping.ids, grouping.groups, sign)
        at = np.zeros(grouping.groups, dtype=np.int64) if slices is None else slices[grouping.first]
        return self.table_of(at, hashes, keys, grouping.first, partials)

    def table_of(
        self, slices: Ints, hashes: Ints, keys: Sequence[pa.Array], rows: Ints, partials: Partials
    ) -> pa.Table:
        """Make a table of `slices` and `partials`, with the hashes and keys that stand at the index `rows`."""
        index = pa.array(rows)
        columns = [pa.array(slices), pa.array(hashes[rows]), *(key.take(index) for key in keys)]
        return pa.table([*columns, *self.plan.arrays_of(partials)], schema=self.schema)


def _in_order(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Return the rows of all tables, where these have nothing to merge and need no sorting; else None.

    So it is with runs of the state: each has slices of its own, where rows are not late.
    """
    bounds = [(groups[0], groups[-1], at) for at, table in enumerate(tables) for groups in [integers(table, GROUP)]]
    bounds.sort()
    if any(last >= following for (_, last, _), (following, _, _) in pairwise(bounds)):
        return None
    whole = pa.concat_tables(tables[at] for _, _, at in bounds)
    if not ascending(integers(whole, HASH), integers(whole, GROUP)):
        return None
    return whole.combine_chunks() if len(tables) > 1 else whole


def slices_in(table: pa.Table) -> Ints:
    """Return the distinct groups of a table sorted by group, ascending."""
    return distinct(integers(table, GROUP))
