"""When counts are kept as panes, and what can resume from them (F51, 10.1)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tuple_disk import KEYS, TupleDisk, rows

from penstock import agg, count, micros
from penstock.errors import JobError, StateError
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.operators.protocol import HASHED, MAIN, StepFacts
from penstock.operators.tuple_windows.pane_step import PaneStep, has_panes

COUNTS = {"n": agg.count()}
MOMENT = StepFacts(batch=0, time=0, watermark=None)


def test_panes_are_for_counts_in_batch_time() -> None:
    """A window of many panes keeps its rows, which a batch of few rows does not write again."""
    windows = {
        TupleWindow(count(100), count(10)): True,
        TupleWindow(count(64)): True,
        TupleWindow(count(65)): False,
        TupleWindow(count(10), micros(1)): False,
        TupleWindow(count(100), count(10), time=Time.EVENT): False,
    }
    assert {window: has_panes(window) for window in windows} == windows


def test_other_counts_and_aggregates_are_refused_and_another_ttl_is_not(tmp_path: Path) -> None:
    """F51: what is kept are partial aggregates of panes."""
    steps = [
        TupleDisk(window, tmp_path, aggregates=aggregates, keys=keys).step
        for window, aggregates, keys in (
            (TupleWindow(count(4), count(2), ttl=micros(5)), COUNTS, KEYS),
            (TupleWindow(count(4), count(2), unbounded=True), {"other": agg.count()}, KEYS),
            (TupleWindow(count(6), count(2), unbounded=True), COUNTS, KEYS),
            (TupleWindow(count(4), count(2), unbounded=True), {"n": agg.sum("v")}, KEYS),
            (TupleWindow(count(4), count(2)), COUNTS, pa.schema([])),
        )
    ]
    refused = [bool(step.evolved(steps[0].layout_name, ["k"], pa.schema([])).refused) for step in steps]
    assert refused == [False, False, True, True, True]
    assert steps[0].explained == {"How windows are made": "of panes of 2 rows"}


def test_a_key_without_rows_is_forgotten(tmp_path: Path) -> None:
    """5.7, 7.2: and begins anew."""
    disk = TupleDisk(TupleWindow(count(3), count(2), ttl=micros(10)), tmp_path, aggregates=COUNTS)
    assert disk.batch([rows(0)], time=1).due.time == 12
    assert disk.batch([[]], time=12).due.time is None
    assert disk.shown().num_rows == 0
    assert [row["n"] for row in disk.batch([rows(0, 0)], time=13).rows] == [2]


@pytest.mark.parametrize(
    ("counts", "match"), [([3, 4], "more rows than keys"), ([None], "without _count")], ids=["twice", "no count"]
)
def test_an_edited_table_has_one_row_for_a_key(tmp_path: Path, counts: list[int | None], match: str) -> None:
    """10.1: with how many rows it had."""
    step = TupleDisk(TupleWindow(count(3), count(2), unbounded=True), tmp_path, aggregates=COUNTS).step
    assert isinstance(step, PaneStep)
    columns = {"k": ["a"] * len(counts), "_count": pa.array(counts, pa.int64()), HASHED: [1] * len(counts)}
    table = pa.table({**columns, "_panes": pa.array([[]] * len(counts), step.kept.field("_panes").type)})
    with pytest.raises(StateError, match=match):
        step.rebuilt({MAIN: table}, MOMENT)


def test_names_of_the_state_are_taken(tmp_path: Path) -> None:
    """A key column stands beside them."""
    keys = pa.schema([("_Count", pa.string())])
    with pytest.raises(JobError, match="_Count"):
        TupleDisk(TupleWindow(count(3), unbounded=True), tmp_path, aggregates=COUNTS, keys=keys)


def test_a_ttl_that_is_new_leaves_the_rows_of_keys_as_they_are(tmp_path: Path) -> None:
    """5.1, 5.7: the batch that dates keys without rows of its own keeps what their next window needs."""
    disk = TupleDisk(TupleWindow(count(3), count(2), unbounded=True), tmp_path, aggregates=COUNTS)
    disk.batch([rows(1, 2, 3)], time=1)
    changed = TupleDisk(TupleWindow(count(3), count(2), ttl=micros(10)), tmp_path, aggregates=COUNTS)
    changed.refs, changed.batches = disk.refs, disk.batches
    kept = changed.shown().drop_columns(["_seen"])
    changed.batch([[]], time=2)
    assert changed.shown().drop_columns(["_seen"]) == kept
    assert [row["n"] for row in changed.batch([rows(4, first=4)], time=3).rows] == [3]
