"""When the ends of windows of rows are due (SEMANTICS 1.3, 1.4, 5.3)."""

from __future__ import annotations

from pathlib import Path

from tuple_disk import TupleDisk, rows

from penstock import count, micros
from penstock.graph.specs.tuple_windows import Time, TupleWindow


def test_ends_before_a_batch_fire_before_its_rows(tmp_path: Path) -> None:
    """1.3, 5.3: batch times 1, 4, 5 from zero 0; the missed tick 3 has its window, and an end at 4 has the batch's rows."""
    disk = TupleDisk(TupleWindow(micros(2), micros(1), unbounded=True), tmp_path)
    made = [disk.batch([rows(0, first=at)], time=at).rows for at in (1, 4, 5)]
    assert [[(r["end_at"].microsecond, r["current"]) for r in batch] for batch in made] == [
        [(1, [1])],
        [(2, [1]), (4, [4])],
        [(5, [4, 5])],
    ]


def test_an_end_is_due_without_rows(tmp_path: Path) -> None:
    """1.4: the batch of the next end, as long as a row is there to leave or to stay."""
    disk = TupleDisk(TupleWindow.tumbling(micros(3), unbounded=True), tmp_path)
    assert disk.batch([rows(0)], time=1).due.time == 3
    assert disk.batch([[]], time=3).due.time == 6
    assert disk.batch([[]], time=6).due.time is None
    assert disk.recorder.expired == [("a", [1])]
    disk = TupleDisk(TupleWindow(count(1), micros(3), unbounded=True), tmp_path / "other")
    assert [disk.batch([rows(0)] * (time == 1), time=time).due.time for time in (1, 3, 6)] == [3, 6, 9]


def test_the_watermark_makes_ends_due_after_the_lag(tmp_path: Path) -> None:
    """1.4, 5.5: or the next row that waits, where rows are counted."""
    window = TupleWindow.tumbling(micros(10), time=Time.EVENT, lag=micros(3), unbounded=True)
    disk = TupleDisk(window, tmp_path)
    assert disk.batch([rows(12)], time=1).due.watermark == 23
    disk = TupleDisk(TupleWindow(count(2), time=Time.EVENT, lag=micros(3), unbounded=True), tmp_path / "other")
    assert disk.batch([rows(12)], time=1).due.watermark == 15
