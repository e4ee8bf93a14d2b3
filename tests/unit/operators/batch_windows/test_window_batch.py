"""What one batch of a partition reads and writes for its windows (SEMANTICS 1.3, 4.5)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from batch_window_disk import BatchWindowDisk

from penstock import micros
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import Form
from penstock.operators.batch_windows.window_batch import UNTIL, window_rows


def test_batches_are_remembered_for_length_and_slide_and_forgotten_after(tmp_path: Path) -> None:
    """4.5: at T the state has batches since the newest window began."""
    disk = BatchWindowDisk(BatchWindow(micros(4), slide=micros(2)), Form.GROUP, tmp_path, value="v")
    for time in range(1, 20):
        disk.batch(time, [[{"k": "a", "v": time}]])
        newest = time - time % 2
        assert sorted(r["v"] for r in disk.state()) == list(range(max(1, newest - 3), time + 1))


def test_a_batch_that_fires_nothing_and_has_no_rows_writes_nothing(tmp_path: Path) -> None:
    """A batch without work leaves the manifest as it is."""
    disk = BatchWindowDisk(BatchWindow(micros(4), slide=micros(4)), Form.COUNT, tmp_path)
    disk.batch(1, [[{"k": "a"}]])
    before = disk.refs[0]
    disk.batch(2, [])
    assert disk.refs[0] == before


def test_a_window_in_the_state_says_when_it_ended() -> None:
    """What enters next is what came after that."""
    rows = window_rows(pa.table({"_hash": pa.array([1], pa.int64())}), 17)
    assert rows.to_pylist() == [{"_group": 0, "_hash": 1, UNTIL: 17}]
