"""Functions over windows of batch time get the rows that a model gives them (SEMANTICS 1.6, 4.2, 4.4)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from batch_window_disk import BatchWindowDisk
from batch_window_model import BatchWindowModel
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import micros
from penstock.errors import UserFunctionError, WrongWindowOutput
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import Form
from penstock.graph.window_functions import WindowFunction, WindowView

RETURNED = pa.schema([("who", pa.string()), ("n", pa.int64()), ("texts", pa.string()), ("window_end", pa.int64())])


def listed(key: Any, rows: Any, start: Any, end: Any) -> list[dict[str, Any]]:
    """Return a row for each text of a window, nothing for a window of one row."""
    texts = "".join(row["s"] for row in rows)
    length = round((end - start).total_seconds() * 1e6)
    made = {"who": repr(key), "n": length, "texts": texts, "window_end": round(end.timestamp() * 1e6)}
    return [made] * (len(rows) - 1)


def applied(key: Any, view: WindowView) -> list[dict[str, Any]] | None:
    """Call the same with what the function of a job gets."""
    assert view.current.column_names == ["k", "v", "s", "x"]
    assert view.new is view.expired is None
    return listed(key, view.current.to_pylist(), view.start, view.end) or None


def disk(root: Path | str, *, fn: Any = applied, length: int = 4, slide: int = 2, **more: Any) -> Any:
    """Return a step on disk."""
    window = BatchWindow(micros(length), slide=micros(slide))
    return BatchWindowDisk(window, Form.APPLY, root, function=WindowFunction(fn, ""), returned=RETURNED, **more)


def row(key: str | None, text: str = "x") -> dict[str, Any]:
    """Return a row."""
    return {"k": key, "v": 1, "s": text, "x": None}


ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from("xyz")), max_size=5)
BATCHES = st.lists(st.tuples(st.integers(1, 7), st.lists(ROWS, max_size=3)), min_size=1, max_size=10)


@settings(max_examples=examples(20), deadline=None)
@given(
    batches=BATCHES,
    length=st.integers(1, 9),
    slide=st.integers(1, 9),
    keyed=st.booleans(),
    partitions=st.sampled_from([1, 2, 8]),
    rescaled=st.tuples(st.integers(0, 9), st.sampled_from([1, 2, 8])),
    hashes=st.sampled_from([1, 1000]),
)
def test_a_function_gets_the_rows_of_the_model(
    batches: list[tuple[int, list[list[tuple[str | None, str]]]]],
    length: int,
    slide: int,
    keyed: bool,  # noqa: FBT001 - hypothesis passes it by name
    partitions: int,
    rescaled: tuple[int, int],
    hashes: int,
) -> None:
    """4.2: in order of arrival, once for each key and window, over restarts, a rescale and merged ticks."""
    with TemporaryDirectory() as root:
        more = {"keys": ("k",) if keyed else (), "partitions": partitions if keyed else 1, "hashes": hashes}
        windows = disk(root, length=length, slide=slide, **more)
        windows.crashes = Random(len(batches))
        model = BatchWindowModel(length, slide, Form.APPLY, keyed=keyed, fn=listed)
        time = 0
        for number, (step, tasks) in enumerate(batches):
            if number == rescaled[0] and keyed:
                windows.rescale(rescaled[1])
            time += step
            fed = [[row(*values) for values in task] for task in tasks]
            made, wanted = windows.batch(time, fed), model.batch(time, [r for task in fed for r in task])
            assert Counter(map(repr, made)) == Counter(map(repr, wanted))


def test_a_function_has_columns_of_its_own_and_the_time_of_its_window(tmp_path: Path) -> None:
    """11.1: bounds are not added, so `window_end` is what the function returns; hidden, rows have the window's time."""
    windows = disk(tmp_path)
    windows.batch(1, [[row("a")]])
    assert windows.batch(2, [[row("a")]])[0]["window_end"] == 2
    assert windows.step.output == RETURNED
    assert windows.times == [1]


def test_a_function_is_open_for_a_batch_and_closed_after(tmp_path: Path) -> None:
    """`open(info)` and `close()` are called once a task, also where nothing fires."""
    calls: list[str] = []

    class Watched:
        def open(self, info: Any) -> None:
            calls.append(f"open {info.batch}")

        def __call__(self, key: Any, view: WindowView) -> None:
            calls.append(f"{key} {view.current.num_rows}")

        def close(self) -> None:
            calls.append("close")

    windows = disk(tmp_path, fn=Watched())
    assert windows.batch(1, [[row("a")]]) == windows.batch(2, [[row("a"), row("a")]]) == []
    assert calls == ["open 0", "close", "open 1", "a 3", "close"]


@pytest.mark.parametrize(
    ("returned", "error", "match"),
    [
        ([{"who": "a"}], WrongWindowOutput, "a row with the columns"),
        (3, WrongWindowOutput, "not a pyarrow Table"),
        (ZeroDivisionError("oh"), UserFunctionError, "key 'a', window of 1969-12-31"),
    ],
    ids=["columns", "type", "error"],
)
def test_what_a_function_does_wrong_is_named(tmp_path: Path, returned: Any, error: Any, match: str) -> None:
    """A wrong shape and an exception end the run, with the key."""

    def wrong(_: Any, __: WindowView) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned

    windows = disk(tmp_path, fn=wrong, length=4, slide=1)
    with pytest.raises(error, match=match):
        windows.batch(1, [[row("a")]])
