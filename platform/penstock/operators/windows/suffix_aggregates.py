"""Aggregate suffixes: for each slice and key, the rows of that slice and of all later ones.

This is the front stack of the two-stacks algorithm for sliding windows over aggregates that have no inverse, built for
all keys at once. See Tangwongsan, Hirzel, Schneider, "Low-Latency Sliding-Window Aggregation in Worst-Case Constant
Time", DEBS 2017, section 2. The first description is that of adamax on Stack Overflow in 2011.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.aggregates import AggregatePlan, Partials
from penstock.operators.aggregates.cells import Column, as_arrow
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.windows.partials import FROM, PartialLayout
from penstock.operators.windows.slices import BEGINNING_OF_TIME
from penstock.state.keys import Ints
from penstock.state.row_layout import GROUP, HASH

__all__ = ["front_schema", "front_table", "front_window"]

_BLOCK = 128


def front_schema(layout: PartialLayout) -> pa.Schema:
    """Return the columns of a front: those of partials, and `_from`.

    `_from` is the slice before the row's in which its key has rows: once that has left, the row stands for the key.
    """
    return layout.schema.append(pa.field(FROM, pa.int64()))


def front_table(layout: PartialLayout, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the suffix aggregate of each slice and key of `tables`: of its key, from its slice on.

    The tables may hold several rows of one slice and key; the answer has one, sorted by slice, then hash.
    Each row is merged once, or once more for each factor of 128 in the number of slices.
    """
    table = pa.concat_tables([layout.empty(), *(layout.aligned(table) for table in tables)])
    keys = [column_array(table, name) for name in layout.keys.names]
    hashes, starts = integers(table, HASH), integers(table, GROUP)
    ids = group_rows(keys, hashes).ids
    newest_first = np.lexsort((-starts, ids))
    ids, sorted_starts = ids[newest_first], starts[newest_first]
    sums, at = _running(layout.plan, layout.plan.partials_of(table), newest_first, ids)
    same_key = np.r_[ids[1:] == ids[:-1], False][: len(ids)]
    following = np.r_[sorted_starts[1:], BEGINNING_OF_TIME][: len(ids)]
    chosen = np.flatnonzero(~same_key | (following != sorted_starts))
    chosen = chosen[np.lexsort((hashes[newest_first[chosen]], sorted_starts[chosen]))]
    partials = _take(sums, _inverse(at)[chosen])
    front = layout.table_of(sorted_starts[chosen], hashes, keys, newest_first[chosen], partials)
    older = np.where(same_key, following, BEGINNING_OF_TIME)[chosen]
    return front.append_column(front_schema(layout).field(FROM), pa.array(older))


def front_window(front: pa.Table, start: int) -> pa.Table:
    """Return the rows of a front, of slices from `start` on, that stand for their keys in a window from `start`.

    For each key it is the row of its first slice there, whose suffix holds all of them.
    """
    return front.filter(pa.array(integers(front, FROM) < start)).drop_columns([FROM])


def _running(plan: AggregatePlan, partials: Partials, order: Ints, ids: Ints) -> tuple[Partials, Ints]:
    """Merge each row with all rows before it of the same id, where `order` puts rows of one id together.

    Returns the merged rows, and the place of each in the order; `ids` are in that order.
    """
    begins = _begins(ids)
    counts = _lengths(begins, len(ids))
    if counts.max(initial=0) <= _BLOCK:
        return _by_levels(plan, partials, order, begins, counts)
    # Blocks first, then the totals of blocks, then each row with the total of the blocks before its own.
    place = np.arange(len(ids)) - np.repeat(begins, counts)
    opens = place % _BLOCK == 0
    block_begins, blocks = np.flatnonzero(opens), np.cumsum(opens) - 1
    block_counts = _lengths(block_begins, len(ids))
    within, at = _by_levels(plan, partials, order, block_begins, block_counts)
    places = _inverse(at)
    totals = _take(within, places[block_begins + block_counts - 1])
    sums, blocks_at = _running(plan, totals, np.arange(len(block_begins)), ids[block_begins])
    later = np.flatnonzero(place >= _BLOCK)
    before = _take(sums, _inverse(blocks_at)[blocks[later] - 1])
    return plan.merge(_concat([within, before]), np.r_[np.arange(len(ids)), places[later]], len(ids)), at


def _by_levels(
    plan: AggregatePlan, partials: Partials, order: Ints, begins: Ints, counts: Ints
) -> tuple[Partials, Ints]:
    """Merge each row with all before it of its run; level after level, all runs that are long enough at once."""
    longest_first = np.argsort(-counts, kind="stable")
    begins, counts = begins[longest_first], counts[longest_first]
    reach = np.searchsorted(-counts, -np.arange(counts.max(initial=0)), side="left")
    levels = [_take(partials, order[:0])]
    places = [order[:0]]
    for level, alive in enumerate(reach.tolist()):
        places.append(begins[:alive] + level)
        current = _take(partials, order[places[-1]])
        if level:
            before = {name: column[:alive] for name, column in levels[-1].items()}
            current = plan.merge(_concat([before, current]), np.tile(np.arange(alive), 2), alive)
        levels.append(current)
    return _concat(levels), np.concatenate(places)


def _begins(ids: Ints) -> Ints:
    begins: Ints = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]][: len(ids)])
    return begins


def _lengths(begins: Ints, total: int) -> Ints:
    lengths: Ints = np.diff(np.r_[begins, total])
    return lengths


def _inverse(order: Ints) -> Ints:
    inverse = np.empty(len(order), dtype=np.int64)
    inverse[order] = np.arange(len(order))
    return inverse


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
