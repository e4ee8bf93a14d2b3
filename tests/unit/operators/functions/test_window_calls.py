"""Calls of a function over windows give rows of the declared columns, or an error with key and line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import UnfitValue, UserFunctionError, WrongOutput, WrongWindowOutput
from penstock.graph.window_functions import WindowView
from penstock.operators.functions.python_values import Unfit
from penstock.operators.functions.window_calls import WindowCalls
from penstock.operators.protocol import StepFacts

FACTS = StepFacts(batch=3, time=0, watermark=None)
OUTPUT = pa.schema([("n", pa.int64()), ("names", pa.list_(pa.string()))])
ROWS = pa.table({"v": pa.array([1, 2], pa.int64())})
VIEW = WindowView(
    start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 2, tzinfo=UTC), current=ROWS, new=ROWS, expired=ROWS
)


def called(fn: Any, key: Any = "k") -> list[dict[str, Any]]:
    made = WindowCalls("w", fn, OUTPUT, FACTS).call(key, VIEW)
    assert made.schema == OUTPUT
    return made.to_pylist()


@pytest.mark.parametrize(
    ("returned", "rows"),
    [
        (None, []),
        ([], []),
        (
            [{"names": ["a"], "n": 1}, {"n": None, "names": None}],
            [{"n": 1, "names": ["a"]}, {"n": None, "names": None}],
        ),
        (({"n": 1, "names": []},), [{"n": 1, "names": []}]),
        (
            pa.table({"names": pa.array([["b"]], pa.list_(pa.string())), "n": pa.array([7], pa.int32())}),
            [{"n": 7, "names": ["b"]}],
        ),
        (pa.RecordBatch.from_pylist([{"n": 1, "names": []}], schema=OUTPUT), [{"n": 1, "names": []}]),
    ],
    ids=["nothing", "no rows", "dicts", "tuple of dicts", "table, wider and in order", "record batch"],
)
def test_what_a_function_returns_becomes_rows_of_the_output(returned: object, rows: list[dict[str, Any]]) -> None:
    """`pa.Table | list[dict] | None`, whatever the order of columns, of types that widen without loss."""
    assert called(lambda key, view: returned) == rows


def test_the_function_gets_key_and_view() -> None:
    """The very objects, with their tables."""
    seen: list[Any] = []
    called(lambda *given: seen.append(given), ("a", 1))
    assert seen == [(("a", 1), VIEW)]


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ({"n": 1, "names": []}, "returned for key 'k' is a dict"),
        ([3], "returned a int for key 'k', not a dict of"),
        ([{"n": 1}], r"a row with the columns \['n'\] for key 'k'"),
        ([{"n": 1.5, "names": []}], "column 'n' of what window 'w' returned is int64 and got a float for key 'k': 1.5"),
        (pa.table({"n": [1.5], "names": [["a"]]}), "column 'n' of what window 'w' returned for key 'k' is int64"),
        (pa.table({"n": [1]}), "returned for key 'k' has the columns"),
    ],
    ids=["dict", "number", "column lacks", "float for long", "table of other types", "table that lacks a column"],
)
def test_what_does_not_fit_is_an_error_with_key_and_line(returned: object, what: str) -> None:
    """The line is where the function begins."""

    def fn(key: Any, view: WindowView) -> Any:
        return returned

    with pytest.raises(WrongWindowOutput, match=what) as why:
        called(fn)
    assert why.value.where == f"{Path(__file__)}:{fn.__code__.co_firstlineno}"
    assert isinstance(why.value, WrongOutput)


@pytest.mark.remedy("PEN-OPR-028")
def test_rows_as_declared_and_a_corrected_output_end_the_error() -> None:
    """Either remedy lets the same call through."""

    def halves(key: Any, view: WindowView) -> Any:
        return [{"n": row["v"] / 2, "names": []} for row in view.current.to_pylist()]

    with pytest.raises(WrongWindowOutput):
        called(halves)
    assert [row["n"] for row in called(lambda key, view: [{**row, "n": 1} for row in halves(key, view)])] == [1, 1]
    corrected = pa.schema([("n", pa.float64()), OUTPUT.field("names")])
    assert WindowCalls("w", halves, corrected, FACTS).call("k", VIEW)["n"].to_pylist() == [0.5, 1.0]


def test_what_a_function_raises_is_its_error_with_key_window_and_line() -> None:
    """The line is the one that raised."""

    def fn(key: Any, view: WindowView) -> None:
        raise KeyError("price")

    wanted = r"window 'w': KeyError: 'price' \(key 'k', window of 2026-01-01 .* to 2026-01-02 .*\) in .*calls.py:\d+"
    with pytest.raises(UserFunctionError, match=wanted):
        called(fn)


def test_a_key_that_python_cannot_hold_is_named() -> None:
    """The function is not called."""
    with pytest.raises(UnfitValue, match="window 'w': column 't' of a key is 9999999, which no Python object holds"):
        called(None, Unfit("t", "9999999"))


class Kept:
    """A function object that notes what it is told."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def open(self, info: Any) -> None:
        self.notes.append(info.batch)

    def close(self) -> None:
        self.notes.append("close")

    def __call__(self, key: Any, view: WindowView) -> None:
        self.notes.append(key)

    def on_expired(self, key: Any, rows: pa.Table) -> None:
        self.notes.append((key, rows["v"].to_pylist()[0]))


def test_an_object_is_opened_told_of_expired_rows_and_closed() -> None:
    """5.2: `on_expired` only where the object has it."""
    fn = Kept()
    calls = WindowCalls("w", fn, OUTPUT, FACTS)
    with calls.opened():
        calls.call("a", VIEW)
        calls.tell_expired("b", ROWS)
    assert fn.notes == [3, "a", ("b", 1), "close"]
    assert calls.hears_expired
    plain = WindowCalls("w", lambda key, view: None, OUTPUT, FACTS)
    plain.tell_expired("b", ROWS)
    assert not plain.hears_expired


def test_what_on_expired_raises_is_the_functions_error() -> None:
    """With the key."""
    with pytest.raises(UserFunctionError, match=r"window 'w': KeyError: .* \(on_expired of key 'b'\) in"):
        WindowCalls("w", Kept(), OUTPUT, FACTS).tell_expired("b", pa.table({"n": [1]}))
