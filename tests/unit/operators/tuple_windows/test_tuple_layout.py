"""What of a changed job can resume from rows of windows that are kept (F51)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tuple_disk import KEYS, TupleDisk, rows

from penstock import agg, count, micros
from penstock.errors import JobError, StateError
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.operators.protocol import HASHED, MAIN, StepFacts
from penstock.operators.tuple_windows.tuple_layout import TupleLayout


def test_another_window_or_key_is_refused_and_another_ttl_is_not(tmp_path: Path) -> None:
    """F51: the rows that a longer window needs are forgotten."""
    steps = [
        TupleDisk(window, tmp_path, keys=keys).step
        for window, keys in (
            (TupleWindow(count(2), ttl=micros(5)), KEYS),
            (TupleWindow(count(2), unbounded=True), KEYS),
            (TupleWindow(count(3), unbounded=True), KEYS),
            (TupleWindow(count(2), micros(2), unbounded=True), KEYS),
            (TupleWindow(count(2), time=Time.EVENT, unbounded=True), KEYS),
            (TupleWindow(count(2)), pa.schema([])),
        )
    ]
    stored = steps[0].layout.rows
    refused = [bool(step.evolved(steps[0].layout_name, ["k"], stored).refused) for step in steps]
    assert refused == [False, False, True, True, True, True]
    assert steps[0].evolved("[k string] count", ["k"], stored).refused


def test_a_new_input_is_null_for_rows_that_are_there(tmp_path: Path) -> None:
    """F51: an aggregate of another column begins with the rows that come."""
    window = TupleWindow(count(2), micros(2), unbounded=True)
    first = TupleDisk(window, tmp_path, aggregates={"n": agg.sum("n")}).step
    second = TupleDisk(window, tmp_path, aggregates={"n": agg.sum("n"), "v": agg.sum("v")}).step
    assert second.evolved(first.layout_name, ["k"], first.layout.rows).accepted
    assert first.evolved(second.layout_name, ["k"], second.layout.rows).refused


def test_names_of_the_state_are_taken() -> None:
    """The columns of a function's rows stand beside them."""
    columns = pa.schema([("_Arrived", pa.int64())])
    with pytest.raises(JobError, match="_Arrived"):
        TupleLayout(name="w", window=TupleWindow(count(1)), keys=pa.schema([]), columns=columns)


def test_rows_without_a_place_are_refused(tmp_path: Path) -> None:
    """10.1: an edited table says the order of its rows."""
    disk = TupleDisk(TupleWindow(count(3), count(3), unbounded=True), tmp_path)
    disk.batch([rows(0, 0)], time=1)
    table = disk.shown()
    nowhere = table.set_column(table.schema.get_field_index("_arrived"), "_arrived", pa.nulls(2, pa.int64()))
    given = nowhere.append_column(HASHED, pa.array([1, 1]))
    with pytest.raises(StateError, match="_arrived"):
        disk.step.rebuilt({MAIN: given}, StepFacts(batch=0, time=0, watermark=None))
