"""Choose the rows that a ready-made evictor leaves in windows (SEMANTICS 6)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.window_evictors import KeepDelta, KeepLast, KeepNewest
from penstock.state.keys import Bools, Ints

__all__ = ["kept_rows"]


def kept_rows(
    evictor: KeepLast | KeepNewest | KeepDelta, ids: Ints, total: int, times: Ints, values: pa.Array | None
) -> Bools:
    """Return which rows stay.

    Args:
        evictor: The evictor.
        ids: int64: the window of each row, from 0, ascending. Rows of a window are in the order of arrival.
        total: How many windows there are.
        times: int64: the event time of each row.
        values: Those that the evictor reads of the rows; None where it reads none.
    """
    match evictor:
        case KeepLast():
            ends = np.searchsorted(ids, ids, side="right")
            last: Bools = ends - np.arange(len(ids)) <= evictor.rows
            return last
        case KeepNewest():
            newest = np.full(total, np.iinfo(np.int64).min, dtype=np.int64)
            np.maximum.at(newest, ids, times)
            new: Bools = newest[ids] - times < evictor.within.micros
            return new
        case KeepDelta():
            assert values is not None
            column = pc.cast(values, pa.float64())
            given: Bools = column.is_valid().to_numpy(zero_copy_only=False)
            numbers: npt.NDArray[np.float64] = column.fill_null(0.0).to_numpy()
            reference = np.zeros(total, dtype=np.float64)
            backwards = np.flatnonzero(given)[::-1]
            windows, last_rows = np.unique(ids[backwards], return_index=True)
            reference[windows] = numbers[backwards[last_rows]]
            # What cannot be compared stays.
            far = np.abs(numbers - reference[ids]) >= evictor.threshold
            near: Bools = ~far | ~given
            return near
