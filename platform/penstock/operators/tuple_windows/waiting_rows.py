"""Bound the rows that wait for an end of event time: a count each duration needs the last n of a key and end.

Aggregates alone are bounded so. The view of a function has the rows that expired, also those that no window had.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import NONE
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import StateView
from penstock.operators.tuple_windows.rounds import ceil_div
from penstock.operators.tuple_windows.tuple_layout import ARRIVED, WAITING, TupleLayout
from penstock.state.keys import Ints
from penstock.state.row_layout import GROUP, HASH

__all__ = ["PRUNED", "pruned_rows"]

PRUNED = "pruned"
"""The fact that says how many rows were left to wait when they were last looked through."""
_LEAST = 4_096
"""Rows that are not worth a look."""


def pruned_rows(layout: TupleLayout, state: StateView, new: pa.Table, floor: int) -> pa.Table | None:
    """Return the rows that wait without those that no window can have; None where it is too early to look.

    They are looked through when there are twice as many as were left before, so that a row costs the same each time.

    Args:
        layout: What the state is.
        state: The state before the batch.
        new: The rows of the batch that wait, as the state has them.
        floor: The group below which no row waits any more.
    """
    held = sum(run.rows for run in state.manifest.chain(WAITING))
    if not layout.prunes or held + new.num_rows <= max(_LEAST, 2 * state.facts.get(PRUNED, 0)):
        return None
    waiting = state.scan(WAITING, None if floor == NONE else floor, None, layout.waiting)
    every = pa.concat_tables([*waiting, new]).combine_chunks()
    return every.take(pa.array(_last(layout, every)))


def _last(layout: TupleLayout, rows: pa.Table) -> Ints:
    """Return the places of the last rows, by arrival, of each key and end, as many as a window has."""
    assert layout.slide is not None
    ids = group_rows([column_array(rows, name) for name in layout.keys.names], integers(rows, HASH)).ids
    ends = ceil_div(integers(rows, GROUP), layout.slide, 0)
    order = np.lexsort((integers(rows, ARRIVED), ends, ids))
    ids, ends = ids[order], ends[order]
    last = np.flatnonzero(np.r_[(ids[1:] != ids[:-1]) | (ends[1:] != ends[:-1]), True][: len(order)])
    later = last[np.searchsorted(last, np.arange(len(order)))] - np.arange(len(order))
    return np.sort(order[later < layout.counted])
