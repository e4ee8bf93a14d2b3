"""What a window is made into from all of its rows (SEMANTICS 1.6, 4.3, 4.4)."""

from __future__ import annotations

from pathlib import Path

from batch_window_disk import BatchWindowDisk

from penstock import micros
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import Form

WINDOW = BatchWindow(micros(4), slide=micros(2))
TASKS = [[{"k": "b", "v": 1}, {"k": "a", "v": None}], [{"k": "b", "v": 2}]]


def test_rows_stand_in_order_of_arrival_over_keys_and_batches(tmp_path: Path) -> None:
    """4.4: within a partition the rows of all keys; bounds follow the user's columns."""
    disk = BatchWindowDisk(WINDOW, Form.ROWS, tmp_path)
    disk.batch(1, TASKS)
    made = disk.batch(2, [[{"k": "a", "v": 3}]])
    assert [(r["k"], r["v"]) for r in made] == [("b", 1), ("a", None), ("b", 2), ("a", 3)]
    assert disk.step.output.names == ["k", "v", "s", "x", "window_start", "window_end"]


def test_lists_have_nulls_and_follow_the_order_of_arrival(tmp_path: Path) -> None:
    """4.4: as groupByKeyAndWindow."""
    disk = BatchWindowDisk(WINDOW, Form.GROUP, tmp_path, value="v")
    disk.batch(1, TASKS)
    made = disk.batch(2, [[{"k": "b", "v": 0}]])
    assert {r["k"]: r["v"] for r in made} == {"a": [None], "b": [1, 2, 0]}
    assert disk.step.output.names == ["k", "window_start", "window_end", "v"]


def test_values_are_reduced_within_batches_first(tmp_path: Path) -> None:
    """4.3: what a batch has is one value for each key, in the state too."""
    disk = BatchWindowDisk(WINDOW, Form.REDUCE, tmp_path, value="s", fn=lambda a, b: f"({a}{b})")
    disk.batch(1, [[{"k": "a", "s": text} for text in "123"]])
    assert [r["s"] for r in disk.state()] == ["((12)3)"]
    assert [r["s"] for r in disk.batch(2, [[{"k": "a", "s": "4"}, {"k": "a", "s": "5"}]])] == ["(((12)3)(45))"]
