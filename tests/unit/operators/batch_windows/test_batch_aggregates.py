"""Aggregates of windows of batch time equal a model that computes each from all rows (SEMANTICS 3.3, 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from batch_window_disk import VISIBLE, BatchWindowDisk
from batch_window_model import BatchWindowModel
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg, micros
from penstock.errors import AccumulatorTooLarge, IntegerOverflow, NotAnInverse
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import Form
from penstock.operators.aggregates import custom
from penstock.operators.batch_windows.batch_aggregates import MergedAggregates, RunningAggregates
from penstock.operators.debug_mode import debugging

Row = Mapping[str, Any]
HELD = agg.custom(
    zero=0,
    add=lambda total, v: total + (v or 0),
    merge=lambda a, b: a + b,
    subtract=lambda a, b: a - b,
    result=lambda total: -total,
    input="v",
    state="n long",
    output="long",
)
RUNNING = {
    "n": agg.count(),
    "vs": agg.count("v"),
    "total": agg.sum("v"),
    "kinds": agg.count_distinct("s"),
}
MERGED = {**RUNNING, "least": agg.min("v"), "greatest": agg.max("s"), "mean": agg.mean("v")}
ORDERED = {**RUNNING, "first": agg.first("s"), "last": agg.last("v"), "all": agg.collect("s", limit=100)}
PLANS = {"running": RUNNING, "merged": MERGED, "ordered": ORDERED}


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the DDL of custom aggregates without Spark, which would cost its start."""
    monkeypatch.setattr(custom, "ddl_schema", lambda *_: pa.schema([("n", pa.int64())]))


def expected(names: Sequence[str]) -> Any:
    """Return what aggregates the rows of a key and window by the definitions of 3.3."""

    def aggregated(rows: Sequence[Row]) -> dict[str, Any]:
        values, texts = [row["v"] for row in rows if row["v"] is not None], [row["s"] for row in rows]
        made = {
            "n": len(rows),
            "vs": len(values),
            "total": sum(values) if values else None,
            "kinds": len(set(texts)),
            "least": min(values, default=None),
            "greatest": max(texts),
            "mean": sum(values) / len(values) if values else None,
            "first": texts[0],
            "last": rows[-1]["v"],
            "all": texts,
        }
        return {name: made[name] for name in names}

    return aggregated


def disk(aggregates: Mapping[str, Any], root: Path | str, *, length: int = 4, slide: int = 2, **more: Any) -> Any:
    """Return a step on disk."""
    window = BatchWindow(micros(length), slide=micros(slide))
    return BatchWindowDisk(window, Form.AGGREGATE, root, aggregates=aggregates, **more)


def row(key: str | None, value: int | None, text: str = "x") -> dict[str, Any]:
    """Return a row."""
    return {"k": key, "v": value, "s": text, "x": None}


def counted(rows: Sequence[Row]) -> Counter[str]:
    """Return rows without their order, which is that of hashes."""
    return Counter(repr(sorted(made.items())) for made in rows)


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-3, 3), st.sampled_from("xyz")), max_size=5
)
BATCHES = st.lists(st.tuples(st.integers(1, 7), st.lists(ROWS, max_size=3)), min_size=1, max_size=10)


@pytest.mark.parametrize("plan", list(PLANS))
@settings(max_examples=examples(10), deadline=None)
@given(
    batches=BATCHES,
    length=st.integers(1, 9),
    slide=st.integers(1, 9),
    keyed=st.booleans(),
    partitions=st.sampled_from([1, 2, 8]),
    rescaled=st.tuples(st.integers(0, 9), st.sampled_from([1, 2, 8])),
    hashes=st.sampled_from([1, 1000]),
)
def test_aggregates_equal_the_model(
    plan: str,
    batches: list[tuple[int, list[list[tuple[str | None, int | None, str]]]]],
    length: int,
    slide: int,
    keyed: bool,  # noqa: FBT001 - hypothesis passes it by name
    partitions: int,
    rescaled: tuple[int, int],
    hashes: int,
) -> None:
    """3.1, 4.2: over restarts, a rescale, merged ticks, empty batches, keys that share a hash, and nulls."""
    with TemporaryDirectory() as root:
        more = {"keys": ("k",) if keyed else (), "partitions": partitions if keyed else 1, "hashes": hashes}
        windows = disk(PLANS[plan], root, length=length, slide=slide, **more)
        windows.crashes = Random(len(batches))
        model = BatchWindowModel(length, slide, Form.AGGREGATE, keyed=keyed, fn=expected([*PLANS[plan]]))
        time = 0
        for number, (step, tasks) in enumerate(batches):
            if number == rescaled[0] and keyed:
                windows.rescale(rescaled[1])
            time += step
            fed = [[row(*values) for values in task] for task in tasks]
            assert counted(windows.batch(time, fed)) == counted(model.batch(time, [r for task in fed for r in task]))
        assert windows.counts["counted"] == windows.counts["merged"]


def test_a_window_follows_from_the_one_before_where_every_aggregate_has_an_inverse(tmp_path: Path) -> None:
    """3.3: counts, tallies, exact sums and custom aggregates with subtract; others are merged."""
    forms = {name: type(disk(plan, tmp_path).step.form) for name, plan in PLANS.items()}
    assert forms == {"running": RunningAggregates, "merged": MergedAggregates, "ordered": MergedAggregates}
    assert isinstance(disk({"held": HELD}, tmp_path).step.form, RunningAggregates)
    assert isinstance(disk({"x": agg.sum("x")}, tmp_path).step.form, MergedAggregates)


def test_what_left_a_floating_sum_leaves_no_trace(tmp_path: Path) -> None:
    """3.3: 1e17 and NaN that have left are not in the sum, as they would be with an inverse."""
    windows = disk({"x": agg.sum("x")}, tmp_path, length=1, slide=1)
    made = [windows.batch(n, [[{"k": "a", "x": x}]]) for n, x in enumerate((1e17, float("nan"), 0.1), start=1)]
    assert made[2][0]["x"] == 0.1


def test_custom_aggregates_subtract_what_leaves_and_are_checked_in_debug_mode(tmp_path: Path) -> None:
    """3.3: as in windows of event time."""
    windows = disk({"held": HELD}, tmp_path, length=2, slide=1)
    assert [windows.batch(n, [[row("a", n)]])[0]["held"] for n in range(1, 5)] == [-1, -3, -5, -7]
    wrong = agg.custom(
        zero=0,
        add=int.__add__,
        merge=int.__add__,
        subtract=lambda a, _: a,
        result=abs,
        input="v",
        state="n long",
        output="long",
    )
    tricked = disk({"held": wrong}, tmp_path / "wrong", length=1, slide=1)
    tricked.root.mkdir()
    tricked.batch(1, [[row("a", 5)]])
    with debugging(on=True), pytest.raises(NotAnInverse):
        tricked.batch(2, [[row("a", 3)]])


@pytest.mark.parametrize(
    "inverse",
    [range(1, 9), range(9, 21), [*range(1, 7), *range(13, 21)]],
    ids=["goes", "comes", "comes back"],
)
def test_an_inverse_may_come_and_go(tmp_path: Path, inverse: Sequence[int]) -> None:
    """F51: the first window with one subtracts nothing that an older form has kept, or an older window."""
    assert HELD.custom is not None
    without = replace(HELD, custom=replace(HELD.custom, subtract=None))
    windows = disk({"held": HELD}, tmp_path)
    for time in range(1, 21):
        changed = disk({"held": HELD if time in inverse else without}, tmp_path)
        changed.refs, changed.before, changed.batches = windows.refs, windows.before, windows.batches
        assert not changed.step.evolution(changed.opened()).refused
        windows = changed
        made = windows.batch(time, [[row("a", time)]])
        assert [r["held"] for r in made] == ([] if time % 2 else [-sum(range(max(time - 3, 1), time + 1))])


def test_a_sum_that_its_window_does_not_hold_is_refused_and_one_that_it_holds_is_not(tmp_path: Path) -> None:
    """3.3: overflow is judged by the rows of the window, whatever the partials add up to."""
    most = 2**63 - 1
    windows = disk({"total": agg.sum("v")}, tmp_path, length=2, slide=1)
    assert [windows.batch(n, [[row("a", v)]])[0]["total"] for n, v in ((1, most), (2, -5), (3, 7))] == [
        most,
        most - 5,
        2,
    ]
    windows.batch(4, [[row("a", most - 7)]])
    with pytest.raises(IntegerOverflow):
        windows.batch(5, [[row("a", 8)]])


def test_columns_are_keys_bounds_and_aggregates(tmp_path: Path) -> None:
    """3.1: in this order."""
    windows = disk(ORDERED, tmp_path)
    assert windows.step.output.names == ["k", "window_start", "window_end", *ORDERED]
    windows.batch(1, [[row("a", 1)] * 3, [row("a", 2)]])
    assert [(r["k"], r["_rows"]) for r in windows.state()] == [("a", 4)]


def test_a_greater_limit_of_a_list_holds_for_batches_before_it(tmp_path: Path) -> None:
    """3.3: no list is ever cut at its limit, so windows are as if the greater one had always been there."""
    model = BatchWindowModel(4, 2, Form.AGGREGATE, fn=expected(["all"]))
    few = disk({"all": agg.collect("s", limit=2)}, tmp_path)
    first, second = [row("a", 1, "x")] * 2, [row("a", 2, "y")]
    assert few.batch(1, [first]) == model.batch(1, first) == []
    with pytest.raises(AccumulatorTooLarge, match="has 3 values, and its limit is 2"):
        few.batch(2, [second])
    more = disk({"all": agg.collect("s", limit=9)}, tmp_path)
    assert not more.step.evolution(few.opened()).refused
    more.refs, more.before, more.batches = few.refs, few.before, few.batches
    for time, rows in ((2, second), (3, [row("a", 3, "z")] * 4), (4, first)):
        assert more.batch(time, [rows]) == model.batch(time, rows)
    assert model.batch(6, []) == more.batch(6, [])


def test_sketches_of_values_of_another_type_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.3, F51: the hash of a number depends on its type, so a value of both types would count twice."""
    about = {"n": agg.approx_count_distinct("v")}
    before = disk(about, tmp_path / "before").step
    assert not before.evolved(before.layout_name, ["k"], before.form.stored).refused
    narrow = VISIBLE.set(VISIBLE.get_field_index("v"), pa.field("v", pa.int32()))
    monkeypatch.setattr("batch_window_disk.VISIBLE", narrow)
    after = disk(about, tmp_path / "after").step
    assert after.form.stored == before.form.stored
    assert after.evolved(before.layout_name, ["k"], before.form.stored).refused
