"""Evictors keep what their definitions say, in each window by itself (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from global_disk import GlobalDisk

import penstock.evictors
from penstock import agg, count, micros
from penstock.evictors import KeepDelta, KeepLast, KeepNewest, RowEvictor
from penstock.graph.specs.global_windows import GlobalWindows, bounded
from penstock.graph.window_evictors import ReadyEvictor
from penstock.operators.triggers.evictions import EVICTIONS, WindowedRows, kept_rows
from penstock.triggers import Every
from penstock.windows import GlobalWindow

NAN = float("nan")


@pytest.mark.parametrize(
    ("evictor", "times", "values", "expected"),
    [
        pytest.param(KeepLast(2), [9, 1, 5], [0, 0, 0], [1, 2], id="the last by arrival, not by time"),
        pytest.param(KeepLast(5), [1, 2, 3], [0, 0, 0], [0, 1, 2], id="more than there are"),
        pytest.param(KeepNewest(micros(5)), [10, 5, 6, 1], [0] * 4, [0, 2], id="a row at the bound goes, as in Flink"),
        pytest.param(KeepNewest(micros(5)), [-10, -14, -15], [0] * 3, [0, 1], id="times before 1970"),
        pytest.param(KeepDelta("v", 3), [0] * 4, [1, 7, 2, 4], [2, 3], id="a row at the threshold goes, as in Flink"),
        pytest.param(KeepDelta("v", 3), [0] * 3, [1, None, 2], [0, 1, 2], id="null stays"),
        pytest.param(KeepDelta("v", 3), [0] * 3, [9, 2, None], [1, 2], id="null is no last row"),
        pytest.param(KeepDelta("v", 3), [0] * 2, [None, None], [0, 1], id="nulls alone"),
        pytest.param(KeepDelta("v", 3), [0] * 3, [9, NAN, 2], [1, 2], id="NaN cannot be compared, and stays"),
    ],
)
def test_an_evictor_keeps_what_it_says(
    evictor: Any, times: Sequence[int], values: Sequence[float | None], expected: Sequence[int]
) -> None:
    """In the second of three windows; the first has one row, the last two."""
    n = len(times)
    ids = np.array([0] + [1] * n + [2] * 2)
    every = np.array([100, *times, 50, 50])
    column = pa.array([100.0, *values, 50.0, 50.0], pa.float64())
    kept = kept_rows(evictor, WindowedRows(ids=ids, total=3, times=every, values=(column,)))
    assert np.flatnonzero(kept[1 : n + 1]).tolist() == [*expected]
    assert kept[0]
    assert kept[n + 1 :].all()


def test_each_evictor_that_jobs_can_name_is_registered() -> None:
    """6: `penstock.evictors` names the ready-made ones, and a protocol for those of a job."""
    named = {getattr(penstock.evictors, name) for name in penstock.evictors.__all__}
    assert {*EVICTIONS} == named - {RowEvictor}


def test_an_evictor_that_is_derived_from_another_does_the_same() -> None:
    """6: the graph takes it for a ready-made one, so the tasks must as well."""

    class Few(KeepLast):
        """A job's own name for it."""

    ids = np.array([0, 0, 0, 1])
    kept = kept_rows(Few(2), WindowedRows(ids=ids, total=2, times=ids))
    assert kept.tolist() == [False, True, True, True]


@dataclass(frozen=True, slots=True)
class KeepAbove(ReadyEvictor):
    """Keep rows whose value is above a number."""

    value: str
    least: float

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the value."""
        return (self.value,)

    def __str__(self) -> str:
        return f"KeepAbove({self.value!r}, {self.least:g})"


def test_an_evictor_is_a_value_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRIBUTING: nothing else knows it. What it reads is kept, what it evicts is gone, and it bounds nothing."""
    above = lambda evictor, rows: pc.greater(rows.values[0], evictor.least).to_numpy(zero_copy_only=False)  # noqa: E731
    monkeypatch.setitem(EVICTIONS, KeepAbove, above)
    window = GlobalWindow().trigger(Every(count(2))).evict(KeepAbove("v", 4))
    spec = GlobalWindows(window=window, aggregates={"total": agg.sum("n")})
    assert spec.reads(0).expressions == ("v", "n")
    assert spec.settings()["evictor"] == "KeepAbove('v', 4)"
    assert not bounded(window)
    disk = GlobalDisk(spec, tmp_path)
    rows = [{"k": "a", "n": n, "v": float(n), "t": n} for n in (3, 5, 9)]
    first, second = disk.batch(rows, time=1), disk.batch(rows[:2], time=2)
    assert [made.output for made in (first, second)] == [[{"k": "a", "total": 14}], [{"k": "a", "total": 19}]]
    assert [made.counts["evicted"] for made in (first, second)] == [1, 1]
