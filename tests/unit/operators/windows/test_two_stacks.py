"""Suffix aggregates, the front of the two stacks, against their definition (DESIGN 7)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import agg, micros
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.protocol import TIME
from penstock.operators.windows import two_stacks
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.time_windows import preaggregate
from penstock.operators.windows.two_stacks import front_table, front_window
from penstock.windows import Tumbling
from tests.support.window_samples import rows_of_branch

PLAN = AggregatePlan.build(
    {"n": agg.count(), "low": agg.min("v"), "word": agg.max("w")}, {"n": None, "low": pa.int64(), "word": pa.string()}
)
LAYOUT = PartialLayout(plan=PLAN, keys=pa.schema([("k", pa.int64())]))


def table(rows: list[tuple[int, int, int]]) -> pa.Table:
    """Return partials of rows (slice, key, value)."""
    columns = {
        TIME: pa.array([t for t, _, _ in rows], pa.int64()),
        "k": pa.array([k for _, k, _ in rows], pa.int64()),
        "h": pa.array([k % 2 for _, k, _ in rows], pa.int64()),
        "v": pa.array([v for _, _, v in rows], pa.int64()),
        "w": pa.array([str(v) for _, _, v in rows], pa.string()),
    }
    branch = rows_of_branch(pa.table(columns), ["k"], {"v": "v", "w": "w"})
    return preaggregate(branch, (0, 0, 0, 0), plan=PLAN, window=Tumbling(micros(1)).drop_late())


def by_key(front: pa.Table, start: int) -> dict[int, tuple]:
    """Return what a window that starts at `start` and holds all later slices has for each key."""
    merged_front = front_window(front, start)
    merged = LAYOUT.merge([merged_front])
    assert merged.num_rows == merged_front.num_rows
    results = PLAN.results(PLAN.partials_of(merged))
    return dict(zip(merged["k"].to_pylist(), zip(*(r.to_pylist() for r in results), strict=True), strict=True))


def expected(rows: list[tuple[int, int, int]], start: int) -> dict[int, tuple]:
    held = [(k, v) for t, k, v in rows if t >= start]
    values = {key: [v for k, v in held if k == key] for key, _ in held}
    return {k: (len(vs), min(vs), max(map(str, vs))) for k, vs in values.items()}


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("block", [2, 3, 128])
@given(parts=st.lists(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3), st.integers(0, 99))), max_size=3))
def test_a_front_gives_every_suffix(block, parts):
    """DESIGN 7: for each start, one row a key, the aggregate of all its rows from there on; in blocks or without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_stacks, "_BLOCK", block)
        front = front_table(LAYOUT, [table(rows) for rows in parts])
    order = list(zip(front["_group"].to_pylist(), front["_hash"].to_pylist(), strict=True))
    assert order == sorted(order)
    rows = [row for part in parts for row in part]
    assert front.num_rows == len({(start, key) for start, key, _ in rows})
    for start in range(-10, 11):
        kept = front.filter(pa.array(front["_group"].to_numpy() >= start))
        assert by_key(kept, start) == expected(rows, start)


def test_a_front_of_very_many_slices_is_right():
    """DESIGN 7: more slices than the square of a block holds, so that blocks are made of blocks."""
    slices = 20_000
    front = front_table(LAYOUT, [table([(t, int(t % 3 == 0), t) for t in range(slices)])])
    for start in (0, 1, 12_345, slices - 1):
        kept = front.filter(pa.array(front["_group"].to_numpy() >= start))
        left = np.arange(start, slices)
        results = by_key(kept, start)
        for key in (0, 1):
            mine = left[(left % 3 == 0) == key]
            assert results.get(key) == ((len(mine), mine[0], max(map(str, mine.tolist()))) if len(mine) else None)
