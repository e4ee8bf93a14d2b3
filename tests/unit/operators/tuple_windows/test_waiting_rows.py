"""Aggregates of a count each duration of event time hold few rows until its end (SEMANTICS 5.1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tuple_disk import TupleDisk, rows

from penstock import agg, count, micros
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.operators.tuple_windows import waiting_rows


@pytest.mark.parametrize("least", [0, 8, 10**9], ids=["at once", "by doubling", "never"])
@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_rows_that_no_window_can_have_are_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, partitions: int
) -> None:
    """5.1: the last 3 of each key and end are; whatever is held, windows and counts are the same, also of late rows."""
    monkeypatch.setattr(waiting_rows, "_LEAST", least)
    window = TupleWindow(count(3), micros(100), time=Time.EVENT, unbounded=True)
    aggregates = {"all": agg.collect("n", limit=9)}
    disk = TupleDisk(window, tmp_path, aggregates=aggregates, partitions=partitions)
    held, fired, expired = [], [], 0
    for number in range(40):
        # Two ends are open, and rows of the first come among those of the second.
        times = (number + 1, 150 + number % 7) if number % 3 else (99 - number, 120)
        made = disk.batch([rows(*times, first=2 * number)], time=number)
        held.append(disk.shown().num_rows)
    for mark in (101, 150, 201, 301):
        made = disk.batch([[]], time=100 + mark, watermark=mark)
        fired += [(row["k"], row["all"]) for row in made.rows]
        expired += made.counts["expired"]
    assert fired == [("a", [74, 76, 78]), *[("a", [77, 78, 79])] * 2]
    assert expired == 2  # 74 and 76; no window has had the others that left
    assert max(held) == (12 if least < 80 else 80)  # twice three rows of two ends
    assert held[-1] >= 6
