"""Which rows of windows of rows are late (SEMANTICS 5.6)."""

from __future__ import annotations

from pathlib import Path

from tuple_disk import TupleDisk, rows

from penstock import count, micros
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.operators.tuple_windows.tuple_side import behind_by

EVENT = Time.EVENT


def test_late_rows_are_older_than_the_watermark_less_the_lag(tmp_path: Path) -> None:
    """5.6: a row at the watermark is not late."""
    window = TupleWindow(count(2), count(1), time=EVENT, lag=micros(5), late_to="late", unbounded=True)
    disk = TupleDisk(window, tmp_path)
    made = disk.batch([rows(94, 95, 96)], time=1, watermark=100)
    assert (made.late, made.counts["late"], made.counts["merged"]) == ([1], 1, 2)
    assert [row["current"] for row in made.rows] == [[2]]


def test_rows_beyond_time_are_in_no_window(tmp_path: Path) -> None:
    """2.10: they are counted."""
    disk = TupleDisk(TupleWindow(count(1), time=EVENT, unbounded=True), tmp_path)
    made = disk.batch([rows(5, 2**62 + 1)], time=1)
    assert {name: made.counts[name] for name in ("rows", "in_no_window", "merged")} == {
        "rows": 2,
        "in_no_window": 1,
        "merged": 1,
    }


def test_the_ends_of_time_stay_ends() -> None:
    """5.5: no lag holds a drain back, and none goes beyond the beginning."""
    marks = [behind_by(mark, 5) for mark in (None, 7, -(2**63), 2**63 - 1)]
    assert marks == [None, 2, -(2**63), 2**63 - 1]
