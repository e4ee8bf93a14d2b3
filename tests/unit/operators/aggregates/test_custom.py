"""Aggregates by functions of the user's equal the built-in ones, in every kind of window (SEMANTICS 3.3)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from window_disk import WindowDisk

from penstock import agg, micros
from penstock.errors import BadExpression, JobError, NotAnInverse, UnfitValue, UserFunctionError, WrongWindowOutput
from penstock.graph.aggregates import Aggregate
from penstock.graph.specs.session_windows import Session, SessionWindows
from penstock.graph.specs.time_windows import TimeWindows
from penstock.graph.windows import Cumulative, EventWindow, Sliding, Tumbling
from penstock.operators.aggregates import custom
from penstock.operators.debug_mode import debugging
from penstock.operators.windows.time_windows import Strategy, strategy_of

VISIBLE = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
TYPES = {
    "n long, total long": [("n", pa.int64()), ("total", pa.int64())],
    "seen array<long>": [("seen", pa.list_(pa.int64()))],
}
TYPES |= {
    "low long": [("low", pa.int64())],
    "value long": [("value", pa.int64())],
    "value array<long>": [("value", pa.list_(pa.int64()))],
}


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the DDL of these tests without Spark."""
    monkeypatch.setattr(custom, "ddl_schema", lambda ddl, what: pa.schema(TYPES[ddl]))


def added(state: dict[str, int], value: int) -> dict[str, int]:
    state["n"] += 1
    state["total"] += value
    return state


def total_of(*, subtract: bool) -> Aggregate:
    """Return a sum whose state is a dict that `add` changes in place."""
    return agg.custom(
        zero={"n": 0, "total": 0},
        add=added,
        merge=lambda a, b: {name: a[name] + b[name] for name in a},
        subtract=(lambda a, b: {name: a[name] - b[name] for name in a}) if subtract else None,
        result=lambda state: state["total"] if state["n"] else None,
        input="v",
        state="n long, total long",
        output="long",
    )


SEEN = agg.custom(
    zero=list,
    add=lambda state, value: [*state, value],
    merge=lambda a, b: sorted([*a, *b]),
    result=sorted,
    input="v",
    state="seen array<long>",
    output="array<long>",
)
LOW = agg.custom(
    zero=None,
    add=lambda state, value: value if state is None else min(state, value),
    merge=min,
    result=lambda state: state,
    input="v",
    state="low long",
    output="long",
)
WINDOWS: list[EventWindow] = [
    Tumbling(micros(10)).drop_late(),
    Sliding(micros(30), every=micros(1)).drop_late(),
    Cumulative(micros(30), step=micros(5)).drop_late(),
    Session(micros(6)).drop_late(),
]
ROW = st.fixed_dictionaries(
    {"k": st.sampled_from(["a", "b"]), "t": st.integers(-20, 60), "v": st.none() | st.integers(-9, 9)}
)


def disk_of(root: Any, window: EventWindow, **aggregates: Aggregate) -> WindowDisk:
    kind = TimeWindows if hasattr(window, "size") else SessionWindows
    return WindowDisk(kind(window=window, aggregates=aggregates), VISIBLE, root)


@given(
    window=st.sampled_from(WINDOWS),
    subtract=st.booleans(),
    batches=st.lists(st.lists(ROW, max_size=12), max_size=5),
    rescaled=st.sampled_from([None, 0, 1]),
)
@settings(max_examples=examples(20), deadline=None)
def test_functions_equal_built_in_aggregates(window: Any, subtract: bool, batches: Any, rescaled: int | None) -> None:  # noqa: FBT001
    """Over batches, restarts and partitions, by every strategy; nulls are left out."""
    made = []
    for aggregates in (
        {"total": total_of(subtract=subtract), **({} if subtract else {"seen": SEEN, "low": LOW})},
        {"total": agg.sum("v"), **({} if subtract else {"seen": agg.collect("v", limit=99), "low": agg.min("v")})},
    ):
        with tempfile.TemporaryDirectory() as root:
            disk = disk_of(root, window, **aggregates)
            rows = []
            for number, batch in enumerate([*batches, []]):
                mark = None if number == 0 else number * 15 - 20 if number < len(batches) else 1000
                rows += disk.batch([batch], late=mark, close=mark).rows
                if number == rescaled:
                    disk.rescale(8, mark)
        made.append(sorted(repr({**row, **({"seen": sorted(row["seen"])} if "seen" in row else {})}) for row in rows))
    assert made[0] == made[1]


def test_an_inverse_lets_sliding_windows_subtract() -> None:
    """Without one they go by blocks."""
    plans = [disk_of("/", WINDOWS[1], total=total_of(subtract=subtract)).side.plan for subtract in (True, False)]
    assert [strategy_of(WINDOWS[1], plan) for plan in plans] == [Strategy.SUBTRACT, Strategy.BLOCKS]  # type: ignore[arg-type]


@pytest.mark.remedy("PEN-OPR-029")
def test_an_inverse_that_is_none_is_found_where_it_is_checked(tmp_path: Any) -> None:
    """In debug mode; without subtract the same rows give the result."""
    right = total_of(subtract=True)
    functions = replace(right.custom, subtract=lambda a, b: {"n": a["n"] - 1, "total": a["total"]})
    rows = [[{"k": "a", "t": t, "v": t} for t in range(40)]]
    disk = disk_of(tmp_path, WINDOWS[1], total=replace(right, custom=functions))
    disk.batch(rows, late=None, close=None)
    disk.batch([], late=30, close=30)
    match = r"total = custom\(v\): subtract\(merge\(a, b\), b\) is .*, key 'a'"
    with pytest.raises(NotAnInverse, match=match), debugging(on=True):
        disk.batch([], late=31, close=31)
    without = replace(right, custom=replace(functions, subtract=None))
    (tmp_path / "without").mkdir()
    made = disk_of(tmp_path / "without", WINDOWS[1], total=without).batch(rows, late=None, close=40)
    assert made.rows[-1]["total"] == sum(range(10, 40))


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"add": lambda state, value: 1 / 0}, UserFunctionError, r"ZeroDivisionError: .* \(add\) in .*, key 'a'"),
        ({"add": lambda state, value: None}, WrongWindowOutput, "add returned None, not a state, key 'a'"),
        ({"add": lambda state, value: {"n": 1.5, "total": 0}}, WrongWindowOutput, "column 'state' of .*, key 'a'"),
        ({"result": lambda state: "text"}, WrongWindowOutput, "column 'result' of total = custom.* got a str"),
        ({"result": lambda state: 1 / 0}, UserFunctionError, r"ZeroDivisionError: .* \(result\) in"),
    ],
    ids=["add raises", "add forgets return", "state of another type", "result of another type", "result raises"],
)
def test_wrong_functions_are_errors_with_aggregate_and_line(
    tmp_path: Any, changed: Any, error: Any, match: str
) -> None:
    """And with the key, where rows are added or merged."""
    right = total_of(subtract=False)
    wrong = replace(right, custom=replace(right.custom, **changed))
    with pytest.raises(error, match=match):
        disk_of(tmp_path, WINDOWS[0], total=wrong).batch([[{"k": "a", "t": 1, "v": 1}]], late=None, close=10)


def test_another_state_is_refused_on_a_restart(tmp_path: Any) -> None:
    """Windows that are open have the old one; another result is accepted."""
    disk = disk_of(tmp_path, WINDOWS[0], total=total_of(subtract=False))
    disk.batch([[{"k": "a", "t": 1, "v": 1}]], late=None, close=None)
    same = disk_of(tmp_path, WINDOWS[0], total=total_of(subtract=True))
    other = disk_of(tmp_path, WINDOWS[0], total=LOW)
    assert same.step.evolution(disk.opened()).refused == ()
    assert "custom(v,total)" in other.step.evolution(disk.opened()).refused[0]


def test_what_is_no_function_or_no_ddl_is_refused_at_the_users_line() -> None:
    """The error names the argument."""
    given: dict[str, Any] = {"zero": 0, "merge": min, "result": min, "input": "v", "state": "n long", "output": "long"}
    with pytest.raises(JobError, match="add= of agg.custom needs a function, not 3.*test_custom.py:"):
        agg.custom(add=3, **given)  # type: ignore[arg-type]
    with pytest.raises(BadExpression, match="state= of agg.custom is ''"):
        agg.custom(add=min, **{**given, "state": ""})


def test_maps_in_states_are_dicts_and_values_without_an_object_are_errors() -> None:
    """For merge and result as for add; a timestamp beyond the year 9999 reaches no function."""
    spec = agg.custom(
        zero={},
        add=lambda state, value: {**state, str(value): 1},
        merge=lambda a, b: {**a, **b},
        result=len,
        input="v",
        state="m map<string,long>",
        output="long",
    )
    functions = spec.custom
    assert functions is not None
    kind = pa.map_(pa.string(), pa.int64())
    cell = custom.Custom(("s",), "v", kind, functions, "total = custom(v)")
    states = {"s": pa.array([{"a": 1}, {"b": 2}], kind)}
    merged = cell.merge(states, np.array([0, 0]), 1)["s"]
    assert custom.computed(merged, pa.int64(), functions, "total").to_pylist() == [2]
    rows = custom.Rows({"v": pa.array([2**60], pa.timestamp("us", "UTC"))}, np.array([0]))
    with pytest.raises(UnfitValue, match=r"total = custom\(v\): column 'v' has"):
        cell.reduce(rows, np.array([0]), 1)


def test_a_map_that_comes_in_is_a_dict() -> None:
    """As in the state, so that `add` and `merge` see the same; also within other values, and null stays null."""
    spec = agg.custom(
        zero={},
        add=lambda state, value: {**state, **value["m"]},
        merge=lambda a, b: {**a, **b},
        result=len,
        input="v",
        state="m map<string,long>",
        output="long",
    )
    functions = spec.custom
    assert functions is not None
    kind = pa.map_(pa.string(), pa.int64())
    cell = custom.Custom(("s",), "v", kind, functions, "total = custom(v)")
    given = pa.array([{"m": [("a", 1)]}, None, {"m": [("b", 2)]}], pa.struct([("m", kind)]))
    states = cell.reduce(custom.Rows({"v": given}, np.zeros(3, dtype=np.int64)), np.array([0, 0, 0]), 1)["s"]
    assert states.to_pylist(maps_as_pydicts="strict") == [{"a": 1, "b": 2}]
