"""Report the rows of a step's output without the event time that another step needs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.errors import EventTimeMissing

__all__ = ["event_time_missing"]

_LONGEST = 200
"""Characters of a row that an error shows."""


def event_time_missing(
    step: str, event_time: str, times: pa.ChunkedArray, rows: pa.Table | Mapping[str, pa.ChunkedArray]
) -> EventTimeMissing:
    """Return the error of rows without event time, which shows the first of them."""
    first = int(np.flatnonzero(times.is_null())[0])
    names = rows.column_names if isinstance(rows, pa.Table) else rows
    shown = json.dumps({name: rows[name][first].as_py() for name in names}, default=str)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    return EventTimeMissing(
        f"step {step!r} emitted rows without event time, {times.null_count:,} of {len(times):,}: "
        f"event_time={event_time!r} is null in {shown}"
    )
