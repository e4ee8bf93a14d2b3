"""What is made of windows of rows: aggregates, and views of a function (SEMANTICS 5.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuple_disk import TupleDisk, rows

from penstock import agg, count, micros
from penstock.graph.durations import Count, Duration
from penstock.graph.specs.tuple_windows import TupleWindow


@pytest.mark.parametrize(
    ("length", "bounds"), [(count(2), (None, None)), (micros(4), (6, 10))], ids=["count", "duration"]
)
def test_aggregates_have_the_bounds_of_durations(
    tmp_path: Path, length: Count | Duration, bounds: tuple[int | None, int | None]
) -> None:
    """5: the columns are keys, window_start and window_end, null where the length is a count, and aggregates."""
    window = TupleWindow(length, count(2), unbounded=True)
    aggregates = {"n": agg.count(), "total": agg.sum("n"), "last": agg.last("n"), "mean": agg.mean("v")}
    disk = TupleDisk(window, tmp_path, aggregates=aggregates)
    (made,) = disk.batch([rows(5, 5, 5)], time=10).rows
    ends = tuple(made.pop(name) for name in ("window_start", "window_end"))
    assert tuple(None if at is None else at.microsecond for at in ends) == bounds
    assert made == {"k": "a", "n": 2, "total": 3, "last": 2, "mean": 1.0}


def test_a_function_is_opened_once_a_batch_and_gets_the_key(tmp_path: Path) -> None:
    """5.2, 7.1: null is a key of its own."""
    disk = TupleDisk(TupleWindow(count(1), unbounded=True), tmp_path)
    given: list[dict[str, Any]] = [{"k": None, "n": 1, "v": 1, "t": 0}]
    assert [(row["k"], row["current"]) for row in disk.batch([given], time=1).rows] == [(None, [1])]
    assert disk.recorder.opened == 1
