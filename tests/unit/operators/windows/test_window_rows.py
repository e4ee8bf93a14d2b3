"""Rows of closed windows and late rows, as they are emitted (SEMANTICS 2.1, 2.6)."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.operators.protocol import TIME
from penstock.operators.windows.window_rows import LATE_COLUMNS, closed_windows, late_rows
from penstock.time.clock import END_OF_TIME

UTC_TYPE = pa.timestamp("us", tz="UTC")


def windows(*ends: int) -> pa.Table:
    """Return closed windows with these ends, of one key."""
    return pa.table({"k": ["a"] * len(ends), "window_end": pa.array(ends, pa.int64()).cast(UTC_TYPE)})


@pytest.mark.parametrize(
    ("at_least", "expected"), [(None, [9, -1]), (-5, [9, -1]), (0, [9, 0]), (50, [50, 50])], ids=str
)
def test_a_window_has_the_time_before_its_end(at_least, expected):
    """2.1: [s, e) has event time e - 1, or what downstream steps still count."""
    emitted = closed_windows(windows(10, 0), pa.schema([("k", pa.string())]), at_least=at_least)
    assert emitted.rows[TIME].to_pylist() == expected
    assert emitted.stand().times.tolist() == expected


@pytest.mark.parametrize(
    ("watermark", "shown"), [(1_000_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), (None, None), (END_OF_TIME, None)]
)
def test_a_late_row_says_when_and_where(watermark, shown):
    """2.6: with its event time, the watermark and the step; the ends of time have no date."""
    late = late_rows(pa.table({"v": [7], TIME: pa.array([0], pa.int64())}), watermark=watermark, step="w")
    assert late.select(LATE_COLUMNS.names).to_pylist() == [
        {"_event_time": datetime(1970, 1, 1, tzinfo=UTC), "_watermark": shown, "_step": "w"}
    ]
