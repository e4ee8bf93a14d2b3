"""Aggregate suffixes: for each slice and key, the rows of that slice and of all later ones.

This is the front stack of the two-stacks algorithm for sliding windows over aggregates that have no inverse
(Tangwongsan, Hirzel, Schneider, "Low-Latency Sliding-Window Aggregation in Worst-Case Constant Time", DEBS 2017,
section 2; first told by adamax on Stack Overflow in 2011), built for all keys at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregates import AggregatePlan, Partials
from penstock.operators.aggregates.cells import Column, as_arrow
from penstock.operators.grouping import group_rows
from penstock.operators.partial_tables import GROUP, HASH, PartialTables, column_array, integers
from penstock.operators.slices import BEGINNING_OF_TIME

__all__ = ["FROM", "front_schema", "front_table", "front_window"]

FROM = "_from"
"""The slice before this one in which the key has rows: from its departure on, this row stands for the key."""
_BLOCK = 128

Ints = npt.NDArray[np.int64]


def front_schema(layout: PartialTables) -> pa.Schema:
    """Return the columns of a front: those of partials, and `_from`."""
    return layout.schema.append(pa.field(FROM, pa.int64()))


def front_table(layout: PartialTables, slices: pa.Table) -> pa.Table:
    """Return the suffix aggregate of each row of `slices`: of its key, from its slice on.

    `slices` has one row a slice and key, sorted by slice, then hash; so has the answer.
    Each row is merged once, or once more for each factor of 128 in the number of slices.
    """
    keys = [column_array(slices, name) for name in layout.keys.names]
    starts = integers(slices, GROUP)
    ids = group_rows(keys, integers(slices, HASH)).ids
    newest_first = np.lexsort((-starts, ids))
    ids = ids[newest_first]
    sums = _running(layout.plan, _take(layout.plan.partials_of(slices), newest_first), ids)
    older = np.full(len(ids), BEGINNING_OF_TIME, dtype=np.int64)
    follows = ids[1:] == ids[:-1]
    older[:-1][follows] = starts[newest_first][1:][follows]
    back = np.empty(len(ids), dtype=np.int64)
    back[newest_first] = np.arange(len(ids))
    arrays = [slices.column(name) for name in (GROUP, HASH, *layout.keys.names)]
    arrays += layout.plan.arrays_of(_take(sums, back))
    return pa.table([*arrays, pa.array(older[back])], schema=front_schema(layout))


def front_window(front: pa.Table, start: int) -> pa.Table:
    """Return the rows of a front, of slices from `start` on, that stand for their keys in a window from `start`.

    For each key it is the row of its first slice there, whose suffix holds all of them.
    """
    return front.filter(pa.array(integers(front, FROM) < start)).drop_columns([FROM])


def _running(plan: AggregatePlan, partials: Partials, ids: Ints) -> Partials:
    """Merge each row with all rows before it of the same id; rows of one id stand together."""
    begins = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    counts = np.diff(np.r_[begins, len(ids)])
    place = np.arange(len(ids)) - np.repeat(begins, counts)
    if counts.max() <= _BLOCK:
        return _by_levels(plan, partials, begins, counts)
    # Blocks first, then the totals of blocks, then each row with the total of the blocks before its own.
    blocks = np.cumsum((place % _BLOCK == 0).astype(np.int64)) - 1
    block_begins = np.flatnonzero(place % _BLOCK == 0)
    block_counts = np.diff(np.r_[block_begins, len(ids)])
    within = _by_levels(plan, partials, block_begins, block_counts)
    totals = _running(plan, _take(within, block_begins + block_counts - 1), ids[block_begins])
    later = np.flatnonzero(place >= _BLOCK)
    pair = np.r_[np.arange(len(ids)), later]
    return plan.merge(_concat([within, _take(totals, blocks[later] - 1)]), pair, len(ids))


def _by_levels(plan: AggregatePlan, partials: Partials, begins: Ints, counts: Ints) -> Partials:
    """Merge each row with all before it of its run; level after level, all runs that are long enough at once."""
    longest_first = np.argsort(-counts, kind="stable")
    begins, counts = begins[longest_first], counts[longest_first]
    reach = np.searchsorted(-counts, -np.arange(int(counts[0])), side="left")
    levels: list[Partials] = []
    rows: list[Ints] = []
    for level, alive in enumerate(reach):
        index = begins[:alive] + level
        current = _take(partials, index)
        if levels:
            pair = np.tile(np.arange(alive), 2)
            before = {name: column[:alive] for name, column in levels[-1].items()}
            current = plan.merge(_concat([before, current]), pair, int(alive))
        levels.append(current)
        rows.append(index)
    order = np.concatenate(rows)
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return _take(_concat(levels), back)


def _take(partials: Partials, rows: Ints) -> Partials:
    index = pa.array(rows)
    return {
        name: column[rows] if isinstance(column, np.ndarray) else column.take(index)
        for name, column in partials.items()
    }


def _concat(parts: list[Partials]) -> Partials:
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(columns: list[Column]) -> Column:
    if all(isinstance(column, np.ndarray) for column in columns):
        return np.concatenate(columns)
    return pa.concat_arrays([as_arrow(column) for column in columns])
