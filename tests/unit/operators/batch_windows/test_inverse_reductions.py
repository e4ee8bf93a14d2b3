"""Windows that are reduced by what enters and leaves equal those that are reduced from all rows (SEMANTICS 4.3)."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from batch_window_disk import BatchWindowDisk
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import micros
from penstock.errors import BadExpression, NotInverse, UserFunctionError, WindowKeyLost
from penstock.graph.batch_window import BatchWindow
from penstock.graph.predicates import parse_predicate
from penstock.graph.specs.batch_windows import Form


def removed(whole: str, prefix: str) -> str:
    """Return a text without its beginning: the inverse of joining, which is not commutative."""
    assert whole.startswith(prefix)
    return whole[len(prefix) :]


WAYS: dict[str, tuple[str, Any, Any, Any]] = {
    "sum": ("v", operator.add, operator.sub, 0),
    "xor": ("v", operator.xor, operator.xor, 0),
    "text": ("s", operator.add, removed, ""),
}
KEEPS: dict[str | None, Callable[[Any, Any], bool]] = {
    None: lambda _, __: True,
    "{} != {!r}": lambda value, nothing: value != nothing,
    "{} > {!r} AND k IS NOT NULL": lambda value, nothing: value > nothing,
}


def disk(way: str, root: Path | str, *, keep: str | None = None, length: int = 4, slide: int = 2, **more: Any) -> Any:
    """Return a step on disk that reduces with an inverse."""
    value, fn, inverse, nothing = WAYS[way]
    text = None if keep is None else keep.format(value, nothing)
    parsed = None if text is None else parse_predicate(text, "keep=")
    reducing = {"value": value, "fn": fn, "inverse": inverse, "keep": parsed, "keep_text": text or ""}
    window = BatchWindow(micros(length), slide=micros(slide))
    return BatchWindowDisk(window, Form.REDUCE, root, **{**reducing, **more})


def row(key: str | None, value: int, text: str = "x") -> dict[str, Any]:
    """Return a row."""
    return {"k": key, "v": value, "s": text}


def shown(rows: Sequence[Mapping[str, Any]], value: str = "v") -> Counter[tuple[Any, ...]]:
    """Return the end, key and value of each row."""
    return Counter((int(r["window_end"].timestamp() * 1e6), r["k"], r[value]) for r in rows)


class Model:
    """Windows by their definition: a key stays when its rows have left, until `keep` is false for what is left."""

    def __init__(self, way: str, keep: str | None, length: int, slide: int, zero: int) -> None:
        self.value, self.fn, _, self.nothing = WAYS[way]
        self.keep, self.null_kept = KEEPS[keep], keep is None or "NULL" not in keep
        self.length, self.slide, self.zero, self.before = length, slide, zero, zero
        self.rows: list[tuple[int, Mapping[str, Any]]] = []
        self.held: set[str | None] = set()

    def batch(self, time: int, rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
        """Return what a batch emits."""
        self.rows += [(time, row) for row in rows]
        ends = [end for end in range(self.before + 1, time + 1) if (end - self.zero) % self.slide == 0]
        self.before = time
        return Counter(made for end in ends for made in self._window(end))

    def _window(self, end: int) -> list[tuple[Any, ...]]:
        rows = [row for time, row in self.rows if end - self.length < time <= end]
        self.held |= {row["k"] for row in rows}
        made = []
        for key in sorted(self.held, key=repr):
            values = [row[self.value] for row in rows if row["k"] == key]
            value = reduce(self.fn, values) if values else self.nothing
            kept = self.keep(value, self.nothing) and (key is not None or self.null_kept)
            if kept:
                made.append((end, key, value))
            elif not values:
                self.held.remove(key)
        return made


ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-3, 3), st.sampled_from("xyz")), max_size=5)
BATCHES = st.lists(st.tuples(st.integers(1, 7), st.lists(ROWS, max_size=3)), min_size=1, max_size=10)


@pytest.mark.parametrize("way", list(WAYS))
@settings(max_examples=examples(10), deadline=None)
@given(
    batches=BATCHES,
    length=st.integers(1, 9),
    slide=st.integers(1, 9),
    keep=st.sampled_from(list(KEEPS)),
    partitions=st.sampled_from([1, 2, 8]),
    rescaled=st.tuples(st.integers(0, 9), st.sampled_from([1, 2, 8])),
    hashes=st.sampled_from([1, 1000]),
    zero=st.sampled_from([0, -50]),
)
def test_windows_with_an_inverse_equal_the_model(
    way: str,
    batches: list[tuple[int, list[list[tuple[str | None, int, str]]]]],
    length: int,
    slide: int,
    keep: str | None,
    partitions: int,
    rescaled: tuple[int, int],
    hashes: int,
    zero: int,
) -> None:
    """1.3, 4.3: over restarts, a rescale, merged ticks, and keys that leave, stay and come again; checked in debug."""
    with TemporaryDirectory() as root:
        more = {"partitions": partitions, "hashes": hashes, "zero": zero}
        windows = disk(way, root, keep=keep, length=length, slide=slide, **more)
        windows.crashes = Random(len(batches))
        windows.more = {"debug": True}
        model = Model(way, keep, length, slide, zero)
        time = zero
        for number, (step, tasks) in enumerate(batches):
            if number == rescaled[0]:
                windows.rescale(rescaled[1])
            time += step
            fed = [[row(*values) for values in task] for task in tasks]
            made = windows.batch(time, fed)
            assert shown(made, WAYS[way][0]) == model.batch(time, [r for task in fed for r in task])


def test_only_what_enters_and_leaves_calls_functions(tmp_path: Path) -> None:
    """4.3: leaving batches are reduced first, then taken off, then those that enter are added."""
    calls: list[str] = []

    def add(a: int, b: int) -> int:
        calls.append(f"{a}+{b}")
        return a + b

    def subtract(a: int, b: int) -> int:
        calls.append(f"{a}-{b}")
        return a - b

    windows = disk("sum", tmp_path, fn=add, inverse=subtract)
    for time in range(1, 6):
        windows.batch(time, [[row("a", time), *([row("b", 9)] if time == 5 else [])]])
    calls.clear()
    made = windows.batch(6, [[row("a", 6), row("a", 7)]])
    assert calls == ["6+7", "1+2", "5+13", "10-3", "7+18"]
    assert shown(made) == Counter([(6, "a", 25), (6, "b", 9)])


@pytest.mark.parametrize(
    "inverse",
    [range(1, 9), range(9, 21), [*range(1, 7), *range(13, 21)]],
    ids=["goes", "comes", "comes back"],
)
def test_an_inverse_may_come_and_go(tmp_path: Path, inverse: Sequence[int]) -> None:
    """F51: values that were kept without an inverse have no number of rows, and no older window is gone on from."""
    windows = disk("sum", tmp_path)
    for time in range(1, 27):
        changed = disk("sum", tmp_path, **({} if time in inverse or time > 20 else {"inverse": None}))
        changed.refs, changed.before, changed.batches = windows.refs, windows.before, windows.batches
        assert not changed.step.evolution(changed.opened()).refused
        windows = changed
        made = windows.batch(time, [[row("a", time)] if time < 21 else []])
        wanted = sum(n for n in range(time - 3, time + 1) if 0 < n < 21)
        assert [r["v"] for r in made] == ([] if time % 2 else [wanted])


def test_a_key_without_rows_stays_until_keep_drops_it(tmp_path: Path) -> None:
    """4.3: and then nothing is due, and nothing is kept."""
    for keep, stays in ((None, True), ("v != 0", False)):
        windows = disk("sum", tmp_path / str(stays), keep=keep)
        windows.root.mkdir()
        windows.batch(1, [[row("a", 5)]])
        made = [list(shown(windows.batch(time, [])).elements()) for time in range(2, 9)]
        zeros = [[(6, "a", 0)], [(8, "a", 0)]] if stays else [[], []]
        assert [made[0], made[2], made[4], made[6]] == [[(2, "a", 5)], [(4, "a", 5)], *zeros]
        assert (windows.due, len(windows.state())) == ((10, 1) if stays else (None, 0))


def test_a_key_that_keep_hides_keeps_its_state_while_it_has_rows(tmp_path: Path) -> None:
    """4.3: its value goes on, so that it is right when it is shown again."""
    windows = disk("sum", tmp_path, keep="v > 3")
    made = [windows.batch(time, [[row("a", value)]]) for time, value in enumerate((1, 1, 1, 4, 0, 0, 0, 0), start=1)]
    assert [list(shown(rows)) for rows in made[1::2]] == [[], [(4, "a", 7)], [(6, "a", 5)], []]


def test_keep_filters_windows_that_are_reduced_from_all_rows_too(tmp_path: Path) -> None:
    """4.3: without an inverse no key stays, and `keep` chooses what is emitted."""
    windows = disk("sum", tmp_path, keep="v > 3", inverse=None)
    made = windows.batch(2, [[row("a", 2), row("a", 2), row("b", 3)]])
    assert shown(made) == Counter([(2, "a", 4)])


@pytest.mark.remedy("PEN-OPR-034")
def test_an_inverse_that_is_none_is_named_in_debug_mode(tmp_path: Path) -> None:
    """4.3: one key of a window is reduced from scratch; leaving the inverse out is the remedy."""
    for debug in (False, True):
        windows = disk("sum", tmp_path / str(debug), fn=max)
        windows.root.mkdir()
        windows.more = {"debug": debug}
        windows.batch(2, [[row("a", 7)]])
        windows.batch(4, [[row("a", 3)]])
        if debug:
            with pytest.raises(NotInverse, match=r"window 'w': key 'a' has 2 by the inverse, .* reduce to 3"):
                windows.batch(6, [[row("a", 2)]])
        else:
            windows.batch(6, [[row("a", 2)]])
    whole = disk("sum", tmp_path, fn=max, inverse=None)
    whole.batch(2, [[row("a", 7)]])
    assert shown(whole.batch(6, [[row("a", 2)]])) == Counter([(4, "a", 7), (6, "a", 2)])


def test_floats_may_lose_what_floats_lose(tmp_path: Path) -> None:
    """4.3: a sum of doubles has an inverse but for rounding, which the check of debug mode allows."""
    windows = disk("sum", tmp_path, value="x")
    windows.more = {"debug": True}
    for time in range(1, 30):
        windows.batch(time, [[{"k": "a", "x": 0.1 * time}]])


@pytest.mark.remedy("PEN-OPR-033")
def test_a_key_that_leaves_a_window_which_has_it_not_is_an_error_that_names_its_type(tmp_path: Path) -> None:
    """4.3: as where equal keys hash differently, or somebody has edited the state."""
    windows = disk("sum", tmp_path)
    windows.batch(1, [[row("a", 1), row("b", 2)]])
    windows.batch(2, [])
    table = pa.Table.from_pylist(windows.state(), schema=windows.step.tables[""])
    edited = table.filter(pa.array([key == "b" or end is None for key, end in zip(
        table["k"].to_pylist(), table["window_end"].to_pylist(), strict=True)]))  # fmt: skip
    windows.rebuild(edited, 1)
    windows.batch(4, [])
    with pytest.raises(WindowKeyLost, match="window 'w': key 'a', of type string, leaves"):
        windows.batch(6, [])
    windows.rebuild(table, 1)
    assert shown(windows.batch(6, [])) == Counter([(6, "a", 0), (6, "b", 0)])


def test_a_function_or_inverse_that_raises_is_named(tmp_path: Path) -> None:
    """The step, the key and the line of the user's."""
    windows = disk("sum", tmp_path, inverse=lambda a, b: a // (b - b))
    windows.batch(2, [[row("a", 1)]])
    with pytest.raises(
        UserFunctionError, match=r"window 'w': ZeroDivisionError: .* \(key 'a'\) in .*test_inverse_reductions"
    ):
        windows.batch(6, [[row("b", 1)]])


def test_keep_that_does_not_fit_the_value_is_refused(tmp_path: Path) -> None:
    """4.3: before the first batch, by the types of keys and value."""
    with pytest.raises(BadExpression, match=r"keep= of window 'w', v > 'a', does not fit the columns k, v: int64"):
        disk("sum", tmp_path, keep="v > 'a'")
