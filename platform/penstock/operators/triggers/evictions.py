"""Choose the rows that a ready-made evictor leaves in windows (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.window_evictors import KeepDelta, KeepLast, KeepNewest, ReadyEvictor
from penstock.state.keys import Bools, Ints

__all__ = ["EVICTIONS", "WindowedRows", "kept_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedRows:
    """The rows of the windows that fire.

    Attributes:
        ids: int64: the window of each row, from 0, ascending. Rows of a window are in the order of arrival.
        total: How many windows there are.
        times: int64: the event time of each row.
        values: For each expression that the evictor `reads`, its numbers of the rows, with nulls.
    """

    ids: Ints
    total: int
    times: Ints
    values: tuple[pa.Array, ...] = ()


def kept_rows(evictor: ReadyEvictor, rows: WindowedRows) -> Bools:
    """Return which rows stay; an evictor that a job derives from a ready-made one does what that one does."""
    kind = next(kind for kind in type(evictor).__mro__ if kind in EVICTIONS)
    return EVICTIONS[kind](evictor, rows)


def _last(evictor: KeepLast, rows: WindowedRows) -> Bools:
    ends = np.searchsorted(rows.ids, rows.ids, side="right")
    last: Bools = ends - np.arange(len(rows.ids)) <= evictor.rows
    return last


def _newest(evictor: KeepNewest, rows: WindowedRows) -> Bools:
    newest = np.full(rows.total, np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(newest, rows.ids, rows.times)
    new: Bools = newest[rows.ids] - rows.times < evictor.within.micros
    return new


def _near(evictor: KeepDelta, rows: WindowedRows) -> Bools:
    column = pc.cast(rows.values[0], pa.float64())
    given: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    numbers: npt.NDArray[np.float64] = column.fill_null(0.0).to_numpy()
    reference = np.zeros(rows.total, dtype=np.float64)
    backwards = np.flatnonzero(given)[::-1]
    windows, last_rows = np.unique(rows.ids[backwards], return_index=True)
    reference[windows] = numbers[backwards[last_rows]]
    # What cannot be compared stays.
    far = np.abs(numbers - reference[rows.ids]) >= evictor.threshold
    near: Bools = ~far | ~given
    return near


EVICTIONS: dict[type[ReadyEvictor], Callable[[Any, WindowedRows], Bools]] = {
    KeepDelta: _near,
    KeepLast: _last,
    KeepNewest: _newest,
}
"""What each ready-made evictor does: a mask of the rows that stay."""
