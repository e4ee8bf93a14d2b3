"""Evictors keep what their definitions say, in each window by itself (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import micros
from penstock.evictors import KeepDelta, KeepLast, KeepNewest
from penstock.operators.triggers.evictions import kept_rows

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
    kept = kept_rows(evictor, ids, 3, every, column)
    assert np.flatnonzero(kept[1 : n + 1]).tolist() == [*expected]
    assert kept[0]
    assert kept[n + 1 :].all()
