"""Make windows and times for tests, and say by the definition which windows hold a time (SEMANTICS 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.graph.policies import LatenessRule
from penstock.graph.windows import TimeWindow
from penstock.operators.protocol import RowsOfBranch

WINDOWS = st.builds(
    TimeWindow,
    size=st.integers(1, 40),
    every=st.integers(1, 40),
    offset=st.integers(-50, 50),
    rule=st.sampled_from(LatenessRule),
)
TIMES = st.integers(-200, 200)
SPAN = range(-320, 321)


def by_definition(time: int, window: TimeWindow) -> list[tuple[int, int]]:
    """Return every start s with s <= t < s + size and s = offset modulo every."""
    starts = (s for s in SPAN if (s - window.offset) % window.every == 0 and s <= time < s + window.size)
    return [(s, s + window.size) for s in starts]


def array(*times: int) -> np.ndarray:
    return np.array(times, dtype=np.int64)


def rows_of_branch(table: pa.Table, keys: Iterable[str], inputs: Mapping[str, str]) -> RowsOfBranch:
    """Return rows as the map side of a window gets them; the column `h` has the hash of the keys."""
    named = {key: key for key in keys}
    return RowsOfBranch(table=table, visible=(), keys=named, inputs=inputs, hash_column="h", place=0, way=0, ways=1)
