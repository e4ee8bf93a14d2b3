"""Windows of counts out of panes, against a loop over rows (SEMANTICS 5.1)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.protocol import StepFacts
from penstock.operators.tuple_windows.pane_batch import HeldPanes, PaneBatch, panes_of

PLAN = AggregatePlan.build({"all": agg.collect("v", limit=1000)}, {"all": pa.int64()})
KIND = pa.list_(pa.struct(list(PLAN.fields)))


@settings(max_examples=examples(40), deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=5),
    length=st.integers(1, 7),
    slide=st.integers(1, 7),
)
def test_windows_of_panes_equal_a_loop(batches: list[list[int]], length: int, slide: int) -> None:
    """5.1: the last rows after each so many, over batches; windows come in the order of the rows that complete them."""
    held, counts, number = HeldPanes(np.zeros(3, dtype=np.int64), None), np.zeros(3, dtype=np.int64), 0
    rows: dict[int, list[int]] = {0: [], 1: [], 2: []}
    expired = 0
    for at, ids in enumerate(batches):
        values = np.arange(number, number + len(ids))
        number += len(ids)
        batch = PaneBatch(PLAN, length, slide, ids=np.array(ids, dtype=np.int64), counts=counts, held=held)
        batch.reduce({"_in0": pa.array(values)}, StepFacts(batch=at, time=at, watermark=None))
        expected = []
        for place, key in enumerate(ids):
            rows[key].append(int(values[place]))
            if len(rows[key]) % slide == 0:
                expected.append((key, place, rows[key][-length:]))
        made = [
            (int(key), int(row), values)
            for windows in batch.windows()
            for key, row, values in zip(windows.keys, windows.rows, windows.results[0].to_pylist(), strict=True)
        ]
        assert made == expected
        assert batch.fired == len(expected)
        expired += batch.expired
        kept = pa.table({"panes": batch.kept_panes(KIND)})
        held, counts = panes_of(kept, "panes", np.ones(3, dtype=np.bool_)), batch.counts_after
    assert expired == sum(max(len(mine) // slide * slide - length, 0) for mine in rows.values())
