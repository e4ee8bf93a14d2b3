"""Lay out the rows that steps of windows emit: windows that closed, and late rows (SEMANTICS 2.1, 2.6)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.protocol import TIME, Emit
from penstock.operators.windows.partials import WINDOW_END
from penstock.state.hashing import content_hashes
from penstock.state.keys import Bools, Ints
from penstock.time.arrival import BY_TIME, Stand

__all__ = ["LATE_COLUMNS", "WINDOW_END", "WINDOW_START", "closed_windows", "late_rows", "standing_windows"]

WINDOW_START = "window_start"
_UTC = pa.timestamp("us", tz="UTC")
LATE_COLUMNS = pa.schema([("_event_time", _UTC), ("_watermark", _UTC), ("_step", pa.string())])
"""The columns that late rows get beside their own."""
_LAST_DATE = 253_402_300_799_999_999
"""The last microsecond of the year 9999, where Spark's timestamps end."""


def closed_windows(
    windows: pa.Table, keys: pa.Schema, *, at_least: int | None = None, where: Bools | None = None
) -> Emit:
    """Return windows as output: [s, e) has the event time e - 1, or `at_least` where that is later (SEMANTICS 2.1).

    They come after the batch's rows, by event time, then by key hash (1.6). `where` says which windows `at_least` is
    for, None for all. With it they come by their ends: rows of one key and end stay in the order in which they are.
    """
    return standing_windows(windows, windows, keys, at_least=at_least, where=where)


def standing_windows(
    rows: pa.Table, windows: pa.Table, keys: pa.Schema, *, at_least: int | None = None, where: Bools | None = None
) -> Emit:
    """Return rows as output, of which each has the time and the place of a window; `windows` has one for each."""
    lasts = pc.subtract(windows[WINDOW_END].cast(pa.int64()), 1).combine_chunks().to_numpy()
    times: Ints = lasts
    if at_least is not None:
        times = np.where(True if where is None else where, np.maximum(lasts, at_least), lasts)
    stand = partial(_stand, windows, keys, times if where is None else lasts)
    return Emit(rows=rows.append_column(TIME, pa.array(times)), stand=stand)


def late_rows(rows: pa.Table, *, watermark: int | None, step: str) -> pa.Table:
    """Return late rows, which have TIME beside the user's columns, as their side stream has them."""
    n = rows.num_rows
    # The end of time has no date: it is shown as none, as the beginning is.
    shown = None if watermark is None or abs(watermark) > _LAST_DATE else watermark
    late = rows.append_column("_event_time", rows[TIME].cast(_UTC))
    late = late.append_column("_watermark", pa.array([shown] * n, _UTC))
    return late.append_column("_step", pa.repeat(step, n))


def _stand(closed: pa.Table, keys: pa.Schema, times: Ints) -> Stand:
    by_time = np.full(closed.num_rows, BY_TIME, dtype=np.int64)
    hashes = content_hashes([closed[name] for name in keys.names], closed.num_rows)
    return Stand(rows=by_time, times=times, hashes=hashes)
