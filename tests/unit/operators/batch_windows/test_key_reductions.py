"""Functions of the user's that reduce two values to one (SEMANTICS 4.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from batch_window_disk import BatchWindowDisk

from penstock import micros
from penstock.errors import UnfitValue, UserFunctionError, WrongOutput
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import Form
from penstock.operators.batch_windows.key_reductions import KeyReduction
from penstock.operators.functions.python_values import PIECE
from penstock.operators.grouping import group_rows


def reduced(values: pa.Array, keys: list[str], fn: Any) -> list[Any]:
    """Return the values of each key, keys in order of their hashes, reduced."""
    column = pa.array(keys)
    hashes = np.array([ord(key[0]) for key in keys], dtype=np.int64)
    grouping = group_rows([column], hashes)
    reduction = KeyReduction(step="w", field=pa.field("v", values.type), fn=fn)
    made: list[Any] = reduction.reduced(values, grouping, pa.table({"k": column.take(pa.array(grouping.first))}))
    return list(made.to_pylist())


def test_each_key_has_its_values_in_their_order_over_any_number_of_pieces() -> None:
    """Values become Python objects a piece at a time, and one key may have many pieces."""
    n = 2 * PIECE + 5
    texts = pa.array([str(number % 10) for number in range(n)])
    (made,) = reduced(texts, ["a"] * n, lambda a, b: a[-20:] + b)
    assert made == "".join(str(number % 10) for number in range(n - 21, n))
    assert reduced(pa.array([1, 2, 4, 8]), ["a", "b", "a", "c"], lambda a, b: a + b) == [5, 2, 8]


def test_a_key_with_one_row_calls_nothing() -> None:
    """4.3: its value stays as it is, null too."""

    def fails(_: Any, __: Any) -> Any:
        raise AssertionError

    assert reduced(pa.array([None, 2]), ["a", "b"], fails) == [None, 2]


@pytest.mark.parametrize(
    ("fn", "error", "match"),
    [
        (lambda a, b: a / 0 + b, UserFunctionError, r"window 'w': ZeroDivisionError: .* \(key 'a'\) in .*test_key_red"),
        (lambda a, b: str(a + b), WrongOutput, "column 'v' of the values of window 'w' is int64 and got a str: '3'"),
        (lambda a, b: (a + b) << 70, WrongOutput, "is int64 and got a int"),
    ],
    ids=["raises", "other type", "too large"],
)
def test_errors_name_the_step_the_key_and_the_line(fn: Any, error: type[Exception], match: str) -> None:
    """A function that raises, or returns what the column does not hold, stops the batch."""
    with pytest.raises(error, match=match):
        reduced(pa.array([1, 2]), ["a", "a"], fn)


def test_a_value_that_python_cannot_hold_is_named() -> None:
    """F74: a timestamp beyond the year 9999."""
    times = pa.array([0, 2**60], pa.timestamp("us", tz="UTC"))
    with pytest.raises(UnfitValue, match=r"column 'v' of a row of key 'a'"):
        reduced(times, ["a", "a"], max)


class Opened:
    """A function object that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, info: Any) -> None:
        """Note the batch."""
        self.calls.append(f"open {info.batch} {info.watermark}")

    def close(self) -> None:
        """Note the end."""
        self.calls.append("close")

    def __call__(self, a: int, b: int) -> int:
        """Add."""
        if b < 0:
            raise ValueError(b)
        return a + b


def test_an_object_is_opened_and_closed_once_a_task(tmp_path: Path) -> None:
    """Functions may be objects with open(info) and close(); it is closed after an error too."""
    fn = Opened()
    disk = BatchWindowDisk(BatchWindow(micros(1)), Form.REDUCE, tmp_path, value="v", fn=fn)
    assert [r["v"] for r in disk.batch(1, [[{"k": "a", "v": 1}, {"k": "a", "v": 2}]])] == [3]
    with pytest.raises(UserFunctionError):
        disk.batch(2, [[{"k": "a", "v": 1}, {"k": "a", "v": -2}]])
    assert fn.calls == ["open 0 None", "close", "open 1 None", "close"]
