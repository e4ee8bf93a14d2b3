"""What a task says of the rows that it read (SEMANTICS 2.1, 2.10)."""

from __future__ import annotations

import json
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.protocol import TIME
from penstock.runtime.tasks.routing import QUARANTINE_SCHEMA, _account
from penstock.runtime.tasks.specs import ROW_STATUS, SourceSpec
from penstock.runtime.tasks.staging import Outlet
from penstock.sources.base import PARTITION

NOTHING_AGAIN = SimpleNamespace(facts=SimpleNamespace(requeued={}))
PARTITIONS = st.integers(0, 400) | st.sampled_from((-7, 4_096, 4_097, 2**30))
ROW = st.tuples(PARTITIONS, st.sampled_from([0, 0, 2, -1, -2]), st.none() | st.integers(-(2**40), 2**40))


@given(st.lists(ROW, min_size=1))
def test_rows_and_highest_times_are_said_by_partition(rows: list[tuple[int, int, int | None]]) -> None:
    """2.1: of each partition its rows, and the highest event time of those that are not in quarantine."""
    table = pa.table(
        {
            PARTITION: pa.array([p for p, _, _ in rows], pa.int32()),
            ROW_STATUS: pa.array([fate for _, fate, _ in rows], pa.int32()),
            TIME: pa.array([t for _, _, t in rows], pa.int64()),
        }
    )
    spec = SourceSpec(name="s", place=0, quarantine=Outlet(sinks=(), lanes=(), schema=QUARANTINE_SCHEMA, place=0))
    ((item,),) = [list(_account(table, spec, NOTHING_AGAIN))]
    receipt = json.loads(item.body)
    read = {str(p): sum(q == p for q, _, _ in rows) for p, _, _ in rows}
    times = {p: [t for q, fate, t in rows if str(q) == p and fate >= 0 and t is not None] for p in read}
    assert (receipt["rows"], receipt["highest"]) == (read, {p: max(known) for p, known in times.items() if known})


def test_partitions_are_looked_at_together(monkeypatch) -> None:
    """P9: however many partitions a task reads, its rows are gone through once."""
    import_module("pandas")  # takes `np.maximum` as it finds it, when it is imported first
    looked = []
    at = np.maximum.at
    counted = type(
        "Counted", (), {"at": staticmethod(lambda *arguments: looked.append(len(arguments[1])) or at(*arguments))}
    )
    monkeypatch.setattr("penstock.runtime.tasks.routing.np.maximum", counted)
    n = 5_000
    table = pa.table(
        {
            PARTITION: pa.array(np.arange(n, dtype=np.int32) % 1_000),
            ROW_STATUS: pa.array(np.zeros(n, np.int32)),
            TIME: pa.array(np.arange(n)),
        }
    )
    spec = SourceSpec(name="s", place=0, quarantine=Outlet(sinks=(), lanes=(), schema=QUARANTINE_SCHEMA, place=0))
    (item,) = _account(table, spec, NOTHING_AGAIN)
    assert looked == [n]
    assert json.loads(item.body)["highest"]["999"] == n - 1
