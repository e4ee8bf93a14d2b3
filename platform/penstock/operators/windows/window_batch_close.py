"""Close many windows at once, where a batch of sparse data closes hundreds of them.

Making windows one after the other costs a few vectorised calls for each, also where a window has few rows. Here every
slice is copied once for each due window that holds it, and one merge makes them all. It makes a piece of the windows at
a time, so that memory does not grow with the due windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.graph.windows import TimeWindow
from penstock.operators.columns import integers
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.slice_state import Slices
from penstock.operators.windows.slices import last_ends, start_of
from penstock.state.keys import Ints
from penstock.state.row_layout import GROUP

__all__ = ["many_windows", "windows_together"]

COPIES_WORTH_A_WINDOW = 10_000
"""How many copied rows cost about as much as making one window by itself: 1 ms (measured on 2 cores, 2026-11-21)."""
_MOST_COPIES = 1_000_000
"""How many are made at once: what a jump of the watermark closes is not held in memory as a whole."""


def many_windows(
    slices: Slices, layout: PartialLayout, window: TimeWindow, ends: Ints
) -> Iterator[tuple[Ints, pa.Table | None]]:
    """Yield the ends, which ascend, piece by piece, with the partials of all windows of a piece.

    Their `_group` is the end; they are sorted by end, then hash.
    None takes the place of the partials where making windows one by one is cheaper: for a single window, or for dense
    ones, whose slices many windows share.
    """
    if len(ends) == 1:  # as in most batches of a live stream; a strategy reads less than all slices of the window
        yield ends, None
        return
    tables = slices.between(start_of(int(ends[0]), window), int(ends[-1]))
    # Each of these rows is in one of the windows at least; in how many is counted once it is worth it.
    copies = sum(table.num_rows for table in tables)
    spans: list[tuple[Ints, Ints]] = []
    if copies <= _MOST_COPIES:
        spans = [_holding(table, ends, window) for table in tables]
        copies = sum(int((last - first).sum()) for first, last in spans)
    if copies > len(ends) * COPIES_WORTH_A_WINDOW:
        yield ends, None
    elif copies > _MOST_COPIES:
        for half in np.array_split(ends, 2):
            yield from many_windows(slices, layout, window, half)
    else:
        yield ends, layout.combine([_copied(table, ends, *span) for table, span in zip(tables, spans, strict=True)])


def windows_together(
    tables: Sequence[pa.Table], layout: PartialLayout, window: TimeWindow, ends: Ints
) -> Iterator[tuple[Ints, pa.Table]]:
    """Yield the ends, which ascend, piece by piece, with the partials of all windows of a piece.

    `tables` have the slices. The pieces are those of `many_windows`, where it makes windows together.
    """
    spans = [_holding(table, ends, window) for table in tables]
    if len(ends) > 1 and sum(int((last - first).sum()) for first, last in spans) > _MOST_COPIES:
        for half in np.array_split(ends, 2):
            yield from windows_together(tables, layout, window, half)
    else:
        yield ends, layout.combine([_copied(table, ends, *span) for table, span in zip(tables, spans, strict=True)])


def _holding(table: pa.Table, due: Ints, window: TimeWindow) -> tuple[Ints, Ints]:
    """Return for each row which of the due windows hold its slice, as a range of their numbers."""
    starts = integers(table, GROUP)
    return np.searchsorted(due, starts, "right"), np.searchsorted(due, last_ends(starts, window), "right")


def _copied(table: pa.Table, due: Ints, first: Ints, last: Ints) -> pa.Table:
    """Return the rows once for each window that holds them, with the window's end as their group."""
    counts = last - first
    rows = np.repeat(np.arange(table.num_rows), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    copies = table.take(pa.array(rows))
    ends = pa.array(due[np.repeat(first, counts) + within])
    return copies.set_column(copies.schema.get_field_index(GROUP), GROUP, ends)
