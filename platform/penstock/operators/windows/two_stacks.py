"""Make sliding windows of aggregates without an inverse, so that no slide costs more than another.

Time is cut into blocks of half a window, at multiples of their length. A window lies in three of them:

    oldest block: suffixes (FRONT)  |  next block: its total (TOTAL)  |  newest block: a running aggregate (RUNNING)

A window is the suffix that begins at its start, the total if that block is over, and the running aggregate.
When the oldest block has left, the next becomes the oldest, and its suffixes must be there. They are made while the
oldest leaves: at each slide those of a further range of key hashes, as many as are left for each slide.
So a slide merges its new slices, one window, and its share of half a window's rows; it writes the running aggregate and
that share.

Suffixes are the front stack of the two-stacks algorithm, built for all keys at once: for each slice and key, the rows
of that slice and of all later ones. The two stacks make all suffixes of a window in one slide. See Tangwongsan, Hirzel,
Schneider, "Low-Latency Sliding-Window Aggregation in Worst-Case Constant Time", DEBS 2017, section 2. The first
description is that of adamax on Stack Overflow in 2011.
Building the next structure in pieces is what DABA does for single values (the same paper).

Rows that come late into the oldest block stay in LATE until they leave. Those into the next block are added to its
total; LATE_NEXT has them too where the suffixes of their key were made before they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan, Partials
from penstock.operators.aggregates.cells import Column, as_arrow
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.windows.partials import FROM, PartialLayout, slices_in
from penstock.operators.windows.slice_state import FRONT, LATE_NEXT, RUNNING, TOTAL, Continued, Slices, cut
from penstock.operators.windows.slices import BEGINNING_OF_TIME
from penstock.state.keys import Ints
from penstock.state.row_layout import GROUP, HASH
from penstock.state.writer import Change

__all__ = ["LEAST_SLIDES", "Blocks", "block_length", "front_schema", "front_table", "front_window", "sorted_front"]

LEAST_SLIDES = 3
"""A window of fewer slides leaves none between the end of a block and the moment its suffixes are due."""
BUILT = "built"
_BLOCK = 128
_MOST_FRONTS = 64  # pieces kept apart; more are merged, where one batch closes many windows
_LEAST, _PAST = -(2**63), 2**63
"""The least hash, and what is past the greatest."""


def block_length(window: TimeWindow) -> int:
    """Return the length of a block: the least number of slides that is half a window."""
    return -(-window.size // (2 * window.every)) * window.every


class Blocks(Continued):
    """Keep suffixes of the oldest block, the total of the next, and a running aggregate of the newest.

    `_built` is the hash up to which the next block's suffixes are made.
    """

    def __init__(self, slices: Slices, layout: PartialLayout, window: TimeWindow, facts: Mapping[str, Any]) -> None:
        super().__init__(slices, layout, window, facts)
        self._length = block_length(window)
        self._built: int = facts.get(BUILT, _LEAST)
        self._total: pa.Table | None = None
        self._late_next: pa.Table | None = None
        self._fronts: list[pa.Table] = []
        self._anew = False

    def make(self, end: int) -> pa.Table:
        """Take the suffix where the window starts, the total of the next block, and the slices since."""
        start, before = end - self._window.size, end - self._window.every
        if self._end != before:
            return self._begin(start, end)
        oldest_end = self._block_end(start - self._window.every)
        next_end = oldest_end + self._length
        over = next_end if before >= next_end else oldest_end
        late = self._late_rows(start, before)
        older, into_next, newer = (
            [cut(t, *span) for t in late] for span in pairwise((start, oldest_end, over, before))
        )
        self._add_to_next(into_next)
        if start >= oldest_end:
            older = [self._part(LATE_NEXT, self._late_next)]
            self._total = self._late_next = self._layout.empty()
            self._fronts = [front for table in self._fronts if (front := cut(table, start, _PAST - 1)).num_rows]
            oldest_end, next_end, self._built = next_end, next_end + self._length, _LEAST
            over = oldest_end
        running = [self._part(RUNNING, self._running), *newer]
        if over < next_end <= end:
            self._total = self._layout.merge([*running, *self._slices.between(before, next_end)])
            self._running = self._layout.merge(self._slices.between(next_end, end))
            over = next_end
        else:
            self._running = self._layout.merge([*running, *self._slices.between(before, end)])
        self._build(start, oldest_end, over)
        self._went_to(end, older)
        return self._window_of(start, oldest_end, older, total=over == next_end)

    def kept(self) -> Change:
        """Return the blocks that changed, late rows, and how far the next suffixes are made."""
        parts = {RUNNING: self._running, TOTAL: self._total, LATE_NEXT: self._late_next}
        kept = self._kept(parts, **{BUILT: self._built})
        if not self._fronts:
            return kept
        fronts = {FRONT: sorted_front(self._fronts, self._layout)}
        if self._anew:
            return replace(kept, replace={**kept.replace, **fronts})
        return replace(kept, append={**kept.append, **fronts})

    # --- inside ------------------------------------------------------------------------------
    def _block_end(self, time: int) -> int:
        return time + self._length - (time - self._window.offset) % self._length

    def _part(self, name: str, known: pa.Table | None) -> pa.Table:
        """Return a part without slices: as this batch has made it, or else as the state has it."""
        if known is not None:
            return known
        return self._layout.combine(self._slices.part(name, _LEAST, _PAST - 1))

    def _begin(self, start: int, end: int) -> pa.Table:
        """Make all blocks of a window from its slices."""
        oldest_end = self._block_end(start)
        next_end = oldest_end + self._length
        over = next_end if end >= next_end else oldest_end
        self._fronts = [front_table(self._layout, self._slices.between(start, oldest_end))]
        self._total = self._layout.merge(self._slices.between(oldest_end, over))
        self._running = self._layout.merge(self._slices.between(over, end))
        self._late_next, self._built, self._anew = self._layout.empty(), _LEAST, True
        self._build(start, oldest_end, over)
        self._went_to(end, [])
        return self._window_of(start, oldest_end, [], total=over == next_end)

    def _window_of(self, start: int, oldest_end: int, older: list[pa.Table], *, total: bool) -> pa.Table:
        stored = [] if self._anew else self._slices.part(FRONT, start, oldest_end)
        fronts = [*stored, *(cut(front, start, oldest_end) for front in self._fronts)]
        held = [self._part(TOTAL, self._total)] if total else []
        running = self._part(RUNNING, self._running)
        return self._layout.merge([*(front_window(front, start) for front in fronts), *older, *held, running])

    def _add_to_next(self, late: list[pa.Table]) -> None:
        """Add late rows to the next block's total; its suffixes lack those of keys that are done."""
        rows = self._layout.combine(late)
        if rows.num_rows:
            self._total = self._layout.merge([self._part(TOTAL, self._total), rows])
            done = rows.filter(pa.array(integers(rows, HASH) < self._built)) if self._built < _PAST else rows
            self._late_next = self._layout.combine([self._part(LATE_NEXT, self._late_next), done])

    def _build(self, start: int, oldest_end: int, over: int) -> None:
        """Make suffixes of the next block, if it is over, for a share of the hashes: all are made when it is needed."""
        if over == oldest_end or self._built == _PAST:
            return
        slides = (oldest_end - start) // self._window.every
        upto = self._built + (_PAST - self._built) // slides
        tables = self._slices.between(oldest_end, over)
        self._fronts.append(front_table(self._layout, [_of_hashes(table, self._built, upto) for table in tables]))
        self._built = upto
        if len(self._fronts) > _MOST_FRONTS:  # where one batch closes many windows
            self._fronts = [sorted_front(self._fronts, self._layout)]


def sorted_front(tables: list[pa.Table], layout: PartialLayout) -> pa.Table:
    """Put suffixes together, of which no two are of one slice and key; sorted by slice, then hash.

    This is also what compaction merges them with.
    """
    rows = pa.concat_tables([table.cast(front_schema(layout)) for table in tables])
    return rows.take(pa.array(np.lexsort((integers(rows, HASH), integers(rows, GROUP)))))


def _of_hashes(table: pa.Table, first: int, past: int) -> pa.Table:
    """Return the rows with first <= `_hash` < past of a table sorted by slice, then hash; few others are read."""
    starts, hashes = integers(table, GROUP), integers(table, HASH)
    slices = slices_in(table)
    begins, ends = np.searchsorted(starts, slices), np.searchsorted(starts, slices, "right")
    lows, highs = (_places(hashes, begins, ends, bound) for bound in (first, past))
    counts = highs - lows
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return table.take(pa.array(np.repeat(lows, counts) + within))


def _places(hashes: Ints, begins: Ints, ends: Ints, bound: int) -> Ints:
    """Return in each span of sorted hashes the place of the first that is not below a bound."""
    if bound == _PAST:
        return ends
    low, high = begins.copy(), ends.copy()
    while (open_spans := low < high).any():
        middle = (low + high) // 2
        below = open_spans & (hashes[np.minimum(middle, len(hashes) - 1)] < bound)
        low = np.where(below, middle + 1, low)
        high = np.where(open_spans & ~below, middle, high)
    return low


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
    return np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]][: len(ids)])


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
