"""The TTL of keys of windows of rows (SEMANTICS 5.7, 7.2)."""

from __future__ import annotations

from pathlib import Path

from tuple_disk import TupleDisk, rows

from penstock import count, micros
from penstock.graph.specs.tuple_windows import Time, TupleWindow


def test_a_key_without_rows_is_forgotten_with_its_rows(tmp_path: Path) -> None:
    """5.7, 7.2: in the first batch later than the last row's + TTL, strictly; its rows are told to `on_expired`."""
    disk = TupleDisk(TupleWindow(count(3), count(2), ttl=micros(10)), tmp_path)
    assert disk.batch([rows(0)], time=1).due.time == 12
    assert disk.batch([[]], time=11).due.time == 12
    assert disk.shown().num_rows == 2
    assert disk.batch([[]], time=12).due.time is None
    assert disk.recorder.expired == [("a", [1])]
    assert disk.shown().num_rows == 0


def test_rows_that_wait_for_the_watermark_outlive_their_key(tmp_path: Path) -> None:
    """5.7: what no window has seen yet is not forgotten."""
    window = TupleWindow(count(2), count(2), time=Time.EVENT, ttl=micros(10))
    disk = TupleDisk(window, tmp_path)
    disk.batch([rows(5, 6)], time=1)
    disk.batch([[]], time=100)
    assert [row["current"] for row in disk.batch([[]], time=101, watermark=6).rows] == [[1, 2]]


def test_keys_of_an_edited_table_have_their_ttl_from_then_on(tmp_path: Path) -> None:
    """10.1, 7.2: where the table does not say when the last row of a key came, it was the moment."""
    disk = TupleDisk(TupleWindow(count(3), count(2), ttl=micros(10)), tmp_path)
    disk.batch([rows(0)], time=1)
    table = disk.shown()
    disk.last = (20, None)
    disk.rescale(2, table.filter(table["_time"].is_valid()).drop_columns(["_seen", "_fired"]))
    assert disk.batch([[]], time=30).rows == []
    assert disk.recorder.expired == []
    disk.batch([[]], time=31)
    assert disk.recorder.expired == [("a", [1])]
