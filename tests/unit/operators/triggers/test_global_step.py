"""Global windows equal a plain model, in any number of partitions and through rescaling (SEMANTICS 6, 7.7, 10.1)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from global_disk import GlobalDisk, Made, numbers_of
from global_model import Clock, Model
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg, count, micros
from penstock.errors import StateError
from penstock.evictors import KeepDelta, KeepLast, KeepNewest
from penstock.graph.specs.global_windows import GlobalWindows
from penstock.graph.window_functions import WindowFunction
from penstock.state import EVENT
from penstock.time.clock import END_OF_TIME
from penstock.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterDelta,
    AfterEach,
    AfterEventTime,
    AfterFirst,
    AfterProcessingTime,
    AtEnd,
    Every,
    OrFinally,
    Purging,
    Repeatedly,
    TriggerResult,
)
from penstock.windows import GlobalWindow


class Total:
    """Fires when the numbers since the last firing come to 60."""

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Any) -> None:
        """Add up."""
        state["total"] = state.get("total", 0) + row["n"]

    def judge(self, state: dict[str, Any], at: Any) -> TriggerResult:
        """Fire where it is enough, and begin with 0."""
        if state.get("total", 0) < 60:
            return TriggerResult.CONTINUE
        state["total"] = 0
        return TriggerResult.FIRE


SHORT = st.integers(1, 6).map(micros)
LEAVES = st.one_of(
    st.builds(AfterCount, st.integers(1, 4)),
    st.builds(AfterProcessingTime, SHORT),
    st.builds(AfterEventTime, SHORT),
    st.builds(AfterDelta, st.just("v"), st.integers(0, 6)),
    st.builds(Every, SHORT),
    st.builds(Every, SHORT, clock=st.just(EVENT)),
    st.builds(Every, st.integers(1, 4).map(count)),
    st.builds(AtEnd),
    st.builds(Total),
)
TRIGGERS: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.builds(Repeatedly, part),
        st.builds(Purging, part),
        st.builds(OrFinally, part, part),
        *(
            st.lists(part, min_size=1, max_size=3).map(lambda parts, kind=kind: kind(*parts))
            for kind in (AfterFirst, AfterAny, AfterAll, AfterEach)
        ),
    ),
    max_leaves=5,
)
EVICTORS = st.one_of(
    st.none(),
    st.builds(KeepLast, st.integers(1, 4)),
    st.builds(KeepNewest, SHORT),
    st.builds(KeepDelta, st.just("v"), st.integers(1, 6)),
)
AGGREGATES = {
    "rows": agg.collect("n", limit=1000),
    "n": agg.count(),
    "first": agg.first("n"),
    "total": agg.sum("n"),
}


def spec_of(window: GlobalWindow, *, function: bool = True) -> GlobalWindows:
    """Return the step of a window: with a function, or with aggregates, both of which give the numbers of the rows."""
    if function:
        return GlobalWindows(window=window, function=WindowFunction(numbers_of, "not read without Spark"))
    return GlobalWindows(window=window, aggregates=AGGREGATES)


def drawn(draw: random.Random, batch: int, number: int) -> list[dict[str, Any]]:
    """Return rows of a batch, numbered from `number` on, out of order, of few keys, some without a value."""
    return [
        {
            "k": draw.choice(["a", "b", "c", None]),
            "n": number + place,
            "v": draw.choice([None, float(draw.randint(-6, 6))]),
            "t": draw.randint(-8, 12) + 2 * batch,
        }
        for place in range(draw.choice([0, 0, 1, 2, 5, 7]))
    ]


def next_clock(draw: random.Random, clock: Clock) -> Clock:
    """Return the clocks of the next batch: the watermark may be none at first, stay, jump, or be at the end."""
    mark = clock.watermark
    if mark != END_OF_TIME:
        if draw.random() < 0.05:
            mark = END_OF_TIME
        elif draw.random() < 0.7:
            mark = draw.randint(-10, 0) if mark is None else mark + draw.choice([0, 1, 2, 9])
    return Clock(clock.time + draw.choice([1, 1, 1, 2, 7]), mark, clock.zero)


def was_due(before: Made | None, clock: Clock) -> bool:
    """Return whether the batch before has asked for one with these clocks."""
    if before is None:
        return False
    by_event = before.due is not None and clock.watermark is not None and before.due <= clock.watermark
    return by_event or (before.due_time is not None and before.due_time <= clock.time)


@pytest.mark.slow
@given(
    trigger=TRIGGERS,
    evictor=EVICTORS,
    ttl=st.none() | SHORT,
    function=st.booleans(),
    partitions=st.sampled_from([1, 2, 8]),
    hashes=st.sampled_from([2, 1000]),
    draw=st.randoms(use_true_random=False),
)
@settings(max_examples=examples(12), deadline=None)
def test_windows_equal_the_model(
    *,
    trigger: Any,
    evictor: Any,
    ttl: Any,
    function: bool,
    partitions: int,
    hashes: int,
    draw: random.Random,
) -> None:
    """6, 1.4, 7.7: any trigger and evictor, each batch on state from disk, keys that share a hash, rescaled meanwhile.

    Another `ttl` applies from the next batch on, with the partitions of before or with others.

    Whatever fires in a batch without rows, the batch before has asked for.
    """
    window = GlobalWindow(ttl=ttl).trigger(trigger)
    window = window.late_to("after") if function else window
    window = window if evictor is None else window.evict(evictor)
    model = Model(trigger, evictor, None if ttl is None else ttl.micros)
    with TemporaryDirectory() as root:
        disk = GlobalDisk(spec_of(window, function=function), root, partitions=partitions, hashes=hashes)
        disk.crashes = draw
        clock, number, before, expired = Clock(0, None, draw.randint(-5, 5)), 0, None, 0
        for batch in range(draw.randint(1, 10)):
            clock, rows = next_clock(draw, clock), drawn(draw, batch, number)
            number += len(rows)
            fired, late = model.batch(rows, clock)
            made = disk.batch(rows, time=clock.time, watermark=clock.watermark, zero=clock.zero)
            assert {row["k"]: row["rows"] for row in made.output} == {
                key: [row["n"] for row in window] for key, window in fired.items()
            }
            assert sorted(made.late) == [row["n"] for row in late if function]
            assert rows or not fired or was_due(before, clock)
            expired += made.counts["expired"]
            counts = made.counts
            assert counts["rows"] == counts["merged"] == counts["counted"] + counts["late"] == len(rows)
            assert (counts["late"], counts["fired"]) == (len(late), len(fired))
            held = {row["k"]: row["_held"] for row in disk.table() if row["_held"]}
            assert held == {key: len(window.rows) for key, window in model.windows.items() if window.rows}
            before = made
            if ttl is not None and draw.random() < 0.15:
                ttl = micros(draw.randint(1, 12))
                disk.change_spec(spec_of(replace(window, ttl=ttl), function=function))
                model.ttl = ttl.micros
            if draw.random() < 0.15:
                before = Made()
                before.due, before.due_time = disk.rescale(draw.choice([1, 2, 3]), clock.time, clock.watermark)
        assert expired == model.expired


def test_a_table_needs_a_row_of_the_key_and_all_of_its_rows(tmp_path: Path) -> None:
    """10.1: state that was edited into nonsense is rejected."""
    disk = GlobalDisk(spec_of(GlobalWindow().trigger(Purging(Every(count(3))))), tmp_path)
    disk.batch([{"k": "a", "n": n, "v": 0.0, "t": n} for n in range(2)], time=1)
    whole = disk.shown()
    with pytest.raises(StateError, match="one row without _row"):
        disk.rebuild(whole.slice(1), 2)
    with pytest.raises(StateError, match="not the number of rows"):
        disk.rebuild(whole.slice(0, 2), 2)
    disk.rebuild(whole, 2)
    assert disk.batch([{"k": "a", "n": 2, "v": 0.0, "t": 2}], time=2).output == [{"k": "a", "rows": [0, 1, 2]}]


def test_a_person_may_have_a_trigger_begin_again(tmp_path: Path) -> None:
    """Without its slots, which a table may lose, the trigger of a key counts from 0; the rows stay."""
    disk = GlobalDisk(spec_of(GlobalWindow().trigger(Purging(Every(count(3))))), tmp_path)
    disk.batch([{"k": "a", "n": n, "v": 0.0, "t": n} for n in range(2)], time=1)
    table = disk.shown()
    at = table.schema.get_field_index("_slots")
    disk.rebuild(table.set_column(at, table.schema.field(at), pa.nulls(table.num_rows, table.schema.field(at).type)), 2)
    made = [disk.batch([{"k": "a", "n": n, "v": 0.0, "t": n}], time=n).output for n in (2, 3, 4)]
    assert made == [[], [], [{"k": "a", "rows": [0, 1, 2, 3, 4]}]]


@pytest.mark.parametrize("trigger", [AfterEach(AtEnd(), AtEnd()), Repeatedly(AtEnd())])
@pytest.mark.parametrize("ttl", [None, micros(3)])
def test_the_end_comes_once(tmp_path: Path, trigger: Any, ttl: Any) -> None:
    """6: after the end of time a key is judged again only if it gets a row, also where a ttl wakes it up."""
    disk = GlobalDisk(spec_of(GlobalWindow(ttl=ttl).trigger(trigger)), tmp_path)
    row = {"k": "a", "n": 0, "v": 0.0, "t": 0}
    assert disk.batch([row], time=1, watermark=END_OF_TIME).output == [{"k": "a", "rows": [0]}]
    assert [disk.batch([], time=time, watermark=END_OF_TIME).output for time in range(2, 7)] == [[]] * 5
    again = disk.batch([{**row, "n": 7}], time=7, watermark=END_OF_TIME).output
    assert again == [{"k": "a", "rows": [0, 7] if ttl is None else [7]}]
