"""Calls of functions over tables: each row is accounted for, and stands where the row stood that it is made of."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserFunctionError, WrongTable
from penstock.operators.functions.user_function import TaskInfo
from penstock.operators.protocol import TIME
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.row_functions import RowFunction, info_of, mapped
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.sources.base import PARTITION, POSITION

INFO = TaskInfo(batch=3, time=datetime(2026, 1, 1, tzinfo=UTC), watermark=None, epoch=2)
OUTPUT = pa.schema([("w", pa.int64())])
HIDDEN = pa.schema([(TIME, pa.int64()), (ROW_STATUS, pa.int32()), (PARTITION, pa.int32()), (POSITION, pa.int64())])
TAKEN = 2
ROWS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 0, -1, 1]), st.integers(0, 2)), max_size=30)


def table_of(rows: list[tuple[int, int, int]]) -> pa.Table:
    """Return rows of a value, a status and a partition; positions ascend, and each row's time is its position."""
    places = range(len(rows))
    columns = [[v for v, _, _ in rows], list(places), [s for _, s, _ in rows], [p for _, _, p in rows], list(places)]
    types = [pa.int64(), *HIDDEN.types]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["v", *HIDDEN.names])


def step(fn, *, same_rows: bool = False) -> RowFunction:
    taken = None if same_rows else TAKEN
    return RowFunction(name="m", fn=fn, visible=("v",), output=OUTPUT, hidden=HIDDEN, taken=taken)


def repeated(rows: pa.Table, info: TaskInfo) -> pa.Table:
    """Make of each row as many as its value says."""
    values = rows["v"].to_pylist()
    return pa.table({"w": pa.array([v for v in values for _ in range(v)], pa.int64())})


def outcome(function: RowFunction, tables: list[pa.Table]) -> list[dict]:
    return [row for table in tables for made in mapped(function, table, INFO) for row in made.to_pylist()]


def alive_in_order(rows: list[dict]) -> list[int]:
    alive = [row for row in rows if row[ROW_STATUS] == 0]
    return [row["w"] for row in sorted(alive, key=lambda row: (row[PARTITION], row[POSITION]))]


@given(ROWS, st.lists(st.integers(0, 30), max_size=4))
def test_results_and_counts_do_not_depend_on_the_cut_into_tables(rows, cuts) -> None:
    """1.6, 2.10: a row's results stand where it stood, and what the function took is still there, counted once."""
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    whole = table_of(rows)
    tables = [whole.slice(a, b - a) for a, b in pairwise(bounds)]
    made = outcome(step(repeated), tables)
    placed = sorted((p, place, v) for place, (v, status, p) in enumerate(rows) if status == 0)
    assert alive_in_order(made) == [v for _, _, v in placed for _ in range(v)]
    dead = [row for row in made if row[ROW_STATUS] != 0]
    expected = {place: TAKEN if status == 0 else status for place, (_, status, _) in enumerate(rows)}
    assert {row[POSITION]: row[ROW_STATUS] for row in dead} == expected
    assert len(dead) == len(rows)
    assert all(row["w"] is None for row in dead)


@given(ROWS)
def test_a_row_for_each_row_keeps_place_time_and_status(rows) -> None:
    """Whatever the function returns of a row, nothing but its columns changes."""
    doubled = step(
        lambda t, _: pa.table({"w": pa.array([2 * v for v in t["v"].to_pylist()], pa.int64())}), same_rows=True
    )
    made = sorted(outcome(doubled, [table_of(rows)]), key=lambda row: row[POSITION])
    assert [row["w"] for row in made] == [2 * v if status == 0 else None for v, status, _ in rows]
    assert [tuple(row[name] for name in HIDDEN.names) for row in made] == [
        (place, status, p, place) for place, (_, status, p) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "is a NoneType, not a pyarrow Table"),
        (pa.table({"v": [1]}), r"has the columns \['v'\], not \['w'\]"),
        (pa.table({"w": ["x"]}), "column 'w' of what map_batches 'm' returned is int64 and got string"),
        (pa.table({"w": pa.array([1, 2])}), "same_rows=True and returned 2 rows for 1"),
    ],
)
def test_a_result_that_does_not_fit_is_named(returned, problem) -> None:
    """PEN-OPR-022: the step, and what it returned in place of what its output= declares."""
    with pytest.raises(WrongTable, match=problem):
        outcome(step(lambda rows, info: returned, same_rows=True), [table_of([(1, 0, 0)])])


def test_what_a_function_raises_is_named_with_its_line() -> None:
    """PEN-OPR-001: the step, the exception, the user's file and line, and how many rows it got."""

    def raising(rows, info):
        raise ValueError("three is too many")

    with pytest.raises(UserFunctionError, match=r"map_batches 'm': ValueError: three is too many \(1 rows\) in .*:\d+"):
        outcome(step(raising), [table_of([(3, 0, 0)])])


def test_a_function_gets_visible_columns_and_is_not_called_without_rows() -> None:
    """Rows in quarantine, and those that a filter dropped, are none of its business."""
    calls = []

    def keeping(rows, info):
        calls.append((rows.column_names, rows["v"].to_pylist(), info))
        return pa.table({"w": rows["v"]})

    outcome(step(keeping), [table_of([(1, -1, 0), (2, 1, 0)]), table_of([(1, 0, 0), (2, 1, 0), (3, 0, 0)])])
    assert calls == [(["v"], [1, 3], INFO)]


def test_the_facts_of_a_batch_are_those_of_the_step() -> None:
    """The watermark is the step's; a batch whose Offsets an earlier version wrote has none for it."""
    given = {"batch": 3, "time": 5_000_000, "epoch": 2, "run": "r", "spans": {}, "late": {}, "manifests": {}}
    facts = BatchContext(**given, close={"m": 1_000_000}, state_folder="s", staging={})
    assert info_of("m", facts).watermark == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert info_of("m", facts).time == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert info_of("other", facts).watermark is None
