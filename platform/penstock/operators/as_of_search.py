"""Find for each row the newest of others with its key that is not later than it. Pure.

Times are int64 microseconds. Keys are numbers, 0 and more.
"""

from __future__ import annotations

import numpy as np

from penstock.operators.interval_pairs import Moments, shifted
from penstock.state.keys import Ints

__all__ = ["newest_at", "newest_of_each"]


def newest_at(rows: Moments, others: Moments, order: Ints, within: int) -> Ints:
    """Return for each row the index of the other row that it takes, -1 for none.

    That is the last in `order` of those with the row's key whose time is at most the row's, and at least `within`
    microseconds earlier. One search serves all rows, because key and time make one number.

    Args:
        rows: The rows.
        others: The rows that they may take; their places are not read.
        order: Indices that sort `others` by key, then time, then arrival.
        within: The greatest difference, inclusive.
    """
    if not len(order):
        return np.full(len(rows.ids), -1, dtype=np.int64)
    times = np.unique(others.times)
    stride = len(times) + 1
    sought = others.ids[order] * stride + np.searchsorted(times, others.times[order])
    last = np.searchsorted(sought, rows.ids * stride + np.searchsorted(times, rows.times, side="right")) - 1
    index = order[last]  # of -1 some other, which the next line sets right
    taken = (last >= 0) & (others.ids[index] == rows.ids) & (others.times[index] >= shifted(rows.times, -within))
    return np.where(taken, index, -1)


def newest_of_each(ids: Ints, order: Ints, keys: int) -> Ints:
    """Return for each of so many keys the index of its last row in `order`, which sorts by key first; -1 for none."""
    newest = np.full(keys, -1, dtype=np.int64)
    ends = np.flatnonzero(np.diff(ids[order], append=-1))
    newest[ids[order[ends]]] = order[ends]
    return newest
