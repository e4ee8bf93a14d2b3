"""Revise windows that have closed and are not forgotten, where late rows touch them (SEMANTICS 2.6).

Only the keys that late rows touch are computed again, from slices that stay in the state until the lateness of their
last window is over.
A row of the part PANES holds the number of the newest revision of a key and window, where that is not 0. Number 0
follows from the slices: the window has emitted the key if it has rows that are older than the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.graph.windows import REVISION, TimeWindow
from penstock.operators.aggregates import ROWS
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.windows.partials import WINDOW_END, PartialLayout, slices_in
from penstock.operators.windows.slice_state import PANES, Slices
from penstock.operators.windows.slices import due_ends, start_of
from penstock.operators.windows.window_batch_close import windows_together
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import GROUP, HASH

__all__ = ["Revised", "panes_readable", "panes_schema", "revised", "stored_panes"]

_UTC = pa.timestamp("us", tz="UTC")


class Revised(NamedTuple):
    """The revisions of some windows, sorted by window end, then hash.

    `whole` has the partials of a key in a window, with the end as `_group`, and `late` those of the batch alone.
    `revisions` are the numbers of their rows, int64. `counters` are rows for the part PANES.
    """

    whole: pa.Table
    late: pa.Table
    revisions: Ints
    counters: pa.Table


def panes_schema(layout: PartialLayout) -> pa.Schema:
    """Return the columns of the part PANES: window end as `_group`, hash, keys, and the newest revision."""
    return pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *layout.keys, (REVISION, pa.int64())])


def panes_readable(rows: pa.Table) -> pa.Table:
    """Return rows of PANES for people and other engines: keys, `window_end`, a UTC timestamp, and `_revision`."""
    ends = rows[GROUP].cast(_UTC)
    return rows.drop_columns([GROUP, HASH]).append_column(WINDOW_END, ends)


def stored_panes(rows: pa.Table, layout: PartialLayout, hash_column: str) -> pa.Table:
    """Return what `panes_readable` has made, with hashes beside it, as rows of PANES."""
    names = [GROUP, HASH, *layout.keys.names, REVISION]
    placed = rows.append_column(GROUP, rows[WINDOW_END].cast(pa.int64())).append_column(HASH, rows[hash_column])
    return placed.select(names).cast(panes_schema(layout))


def revised(
    slices: Slices, delta: pa.Table, layout: PartialLayout, window: TimeWindow, *, after: int | None, to: int | None
) -> Iterator[Revised]:
    """Yield the revisions that a batch causes in windows with `after` < end <= `to`, in the order of their ends.

    `delta` are the batch's slices, which `slices` contains already. Pieces are bounded, as those of `windows_together`.
    """
    for due in due_ends(slices_in(delta), after, to, window):
        for ends, late in windows_together([delta], layout, window, due):
            hashes = np.unique(integers(late, HASH))
            held = [
                _of_hashes(table, hashes) for table in slices.between(start_of(int(ends[0]), window), int(ends[-1]))
            ]
            pieces = (whole for _, whole in windows_together(held, layout, window, ends))
            known = slices.part(PANES, int(ends[0]), int(ends[-1]) + 1, panes_schema(layout))
            for whole in pieces:
                if whole.num_rows:
                    yield _numbered(whole, late, known, layout)


def _numbered(whole: pa.Table, late: pa.Table, known: list[pa.Table], layout: PartialLayout) -> Revised:
    """Number the revisions of windows: `known` are rows of PANES."""
    first, last = integers(whole, GROUP)[[0, -1]].tolist()
    late = _between(late, first, last)
    counted = [late, whole, *(_between(table, first, last) for table in known)]
    same = pa.concat_tables([table.select([GROUP, HASH, *layout.keys.names]) for table in counted])
    keys = [column_array(same, name) for name in layout.keys.names]
    ids = group_rows(keys, integers(same, HASH), integers(same, GROUP)).ids
    of_late, of_whole, of_known = np.split(ids, np.cumsum([late.num_rows, whole.num_rows]))
    newest = np.full(int(ids.max()) + 1, -1, dtype=np.int64)
    if len(of_known):
        np.maximum.at(newest, of_known, np.concatenate([integers(table, REVISION) for table in counted[2:]]))
    new = np.zeros(len(newest), dtype=np.int64)
    new[of_late] = integers(late, ROWS)
    touched = new[of_whole] > 0
    whole, of_whole = whole.filter(pa.array(touched)), of_whole[touched]
    # A key with rows before this batch was emitted when the window closed, or as its first late pane.
    least = np.where(integers(whole, ROWS) > new[of_whole], 0, -1)
    revisions: Ints = np.maximum(newest[of_whole], least) + 1
    place = np.empty(len(newest), dtype=np.int64)
    place[of_late] = np.arange(late.num_rows)
    counters = whole.select([GROUP, HASH, *layout.keys.names]).append_column(REVISION, pa.array(revisions))
    counters = counters.cast(panes_schema(layout)).filter(pa.array(revisions > 0))
    return Revised(whole, late.take(pa.array(place[of_whole])), revisions, counters)


def _of_hashes(table: pa.Table, hashes: Ints) -> pa.Table:
    held: Bools = np.isin(integers(table, HASH), hashes)
    return table if held.all() else table.filter(pa.array(held))


def _between(table: pa.Table, first: int, last: int) -> pa.Table:
    """Return the rows with first <= `_group` <= last, whatever their order."""
    groups = integers(table, GROUP)
    return table.filter(pa.array((groups >= first) & (groups <= last)))
