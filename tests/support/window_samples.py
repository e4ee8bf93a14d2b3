"""Make windows and times for tests, and say by the definition which windows hold a time (SEMANTICS 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.graph.policies import LatenessRule
from penstock.graph.windows import Extent, TimeWindow
from penstock.operators.protocol import RowsOfBranch

FIXED = st.builds(
    TimeWindow,
    size=st.integers(1, 40),
    every=st.integers(1, 40),
    offset=st.integers(-50, 50),
    rule=st.sampled_from(LatenessRule),
)


def growing(every: int, steps: int, rule: LatenessRule = LatenessRule.WINDOW) -> TimeWindow:
    """Return cumulative windows of so many steps."""
    return TimeWindow(size=every * steps, every=every, extent=Extent.GROWING, rule=rule)


GROWING = st.builds(growing, st.integers(1, 9), st.integers(1, 9), st.sampled_from(LatenessRule))
WINDOWS = FIXED | GROWING
TIMES = st.integers(-200, 200)
SPAN = range(-320, 321)


def by_definition(time: int, window: TimeWindow) -> list[tuple[int, int]]:
    """Return the windows that hold a time, by their ends."""
    return [(start, end) for start, end in all_windows(window) if start <= time < end]


def all_windows(window: TimeWindow) -> list[tuple[int, int]]:
    """Return every window in the span: from s = offset modulo every, or from s modulo size the growing ones."""
    if window.extent is Extent.FIXED:
        return [(s, s + window.size) for s in SPAN if (s - window.offset) % window.every == 0]
    steps = range(window.every, window.size + 1, window.every)
    return [(s, s + step) for s in SPAN if (s - window.offset) % window.size == 0 for step in steps]


def array(*times: int) -> np.ndarray:
    return np.array(times, dtype=np.int64)


def rows_of_branch(table: pa.Table, keys: Iterable[str], inputs: Mapping[str, str]) -> RowsOfBranch:
    """Return rows as the map side of a window gets them; the column `h` has the hash of the keys."""
    named = {key: key for key in keys}
    return RowsOfBranch(table=table, visible=(), keys=named, inputs=inputs, hash_column="h", place=0, way=0, ways=1)
