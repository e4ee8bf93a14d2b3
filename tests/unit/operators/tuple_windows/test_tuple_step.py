"""Windows of rows against a plain model: all eight forms in both times (SEMANTICS 5)."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tuple_disk import KEYS, TupleDisk
from tuple_model import TupleModel

from penstock import agg, count, micros
from penstock.graph.durations import Duration
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.operators.tuple_windows import waiting_rows

pytestmark = pytest.mark.slow

FORMS = {
    "3 rows every 2": (count(3), count(2)),
    "2 rows every 5": (count(2), count(5)),
    "3 rows every row": (count(3), None),
    "3 rows every 4 us": (count(3), micros(4)),
    "6 us every 4 us": (micros(6), micros(4)),
    "3 us every 7 us": (micros(3), micros(7)),
    "6 us every row": (micros(6), None),
    "6 us every 3 rows": (micros(6), count(3)),
    "tumbling 3 rows": (count(3), count(3)),
    "tumbling 5 us": (micros(5), micros(5)),
}
END = 2**63 - 1
NO_KEYS = pa.schema([])


def at(moment: datetime | None) -> int | None:
    """Return a moment as microseconds."""
    return (
        None
        if moment is None
        else round((moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")).total_seconds() * 1_000_000)
    )


def checked(
    disk: TupleDisk, model: TupleModel, tasks: list[list[dict[str, Any]]], time: int, watermark: int | None
) -> None:
    """Run a batch on both, and compare all that it did."""
    disk.recorder.expired.clear()
    made = disk.batch(tasks, time=time, watermark=watermark)
    rows = [row for task in tasks for row in task]
    late_before = len(model.late)
    fired, told = model.batch(rows, time=time, watermark=watermark)
    by_key: dict[Any, list[Any]] = {}
    for row in made.rows:
        by_key.setdefault(row["k"], []).append((row["current"], row["new"], row["expired"], at(row["end_at"])))
    timed = isinstance(model.window.length, Duration)
    wanted: dict[Any, list[Any]] = {}
    for f in fired:
        key = f.key if f.key != () else None
        wanted.setdefault(key, []).append((f.current, f.new, f.expired, f.end if timed else None))
    assert by_key == wanted
    gone: dict[Any, list[int]] = {}
    for key, numbers in disk.recorder.expired:
        gone.setdefault(key, []).extend(numbers)
    assert gone == told
    assert made.late == model.late[late_before:]
    assert made.counts["rows"] == len(rows) == sum(made.counts[of] for of in ("late", "in_no_window", "merged"))
    assert made.counts["fired"] == len(fired)


@st.composite
def runs(draw: st.DrawFn, *, event: bool) -> list[Any]:
    """Return batches: tasks of rows, batch time, watermark, and what happens before."""
    time, watermark, number, batches = draw(st.integers(-20, 5)), None, 0, []
    highest = -30
    for _ in range(draw(st.integers(1, 5))):
        time += draw(st.integers(1, 6))
        tasks = []
        for _ in range(draw(st.integers(1, 2))):
            rows = []
            for _ in range(draw(st.integers(0, 6))):
                t = highest + draw(st.integers(-6, 5))
                highest = max(highest, t)
                rows.append({"k": draw(st.sampled_from(["a", "b", "ab", None])), "n": number, "v": number, "t": t})
                number += 1
            tasks.append(rows)
        batches.append((tasks, time, watermark, draw(st.sampled_from([0, 0, 0, 1, 2, 8]))))
        if event and draw(st.booleans()):
            watermark = max(highest - draw(st.integers(0, 4)), -(2**60) if watermark is None else watermark)
    if event:
        batches.append(([[]], time + 1, END, 0))
    return batches


@pytest.mark.sample(10)
@pytest.mark.parametrize("time", [Time.PROCESSING, Time.EVENT], ids=["processing", "event"])
@pytest.mark.parametrize("form", list(FORMS))
@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_windows_of_rows_equal_the_model(form: str, time: Time, data: st.DataObject) -> None:
    """5.1 to 5.6: firings, new and expired rows, late rows, over restarts and other numbers of partitions."""
    length, slide = FORMS[form]
    event, keys = time is Time.EVENT, data.draw(st.sampled_from([KEYS, KEYS, NO_KEYS]))
    ttl = micros(data.draw(st.sampled_from([3, 9, 500])))
    lag = micros(data.draw(st.integers(0, 3)) if event else 0)
    window = TupleWindow(length, slide, time=time, lag=lag, late_to="late" if event else None, ttl=ttl)
    batches = data.draw(runs(event=event))
    zero = batches[0][1] - 1
    with tempfile.TemporaryDirectory() as root:
        disk = TupleDisk(window, Path(root), hashes=data.draw(st.sampled_from([1, 1000])), zero=zero, keys=keys)
        disk.crashes = Random(len(batches))
        model = TupleModel(window, zero=zero, keyed=keys == KEYS)
        if disk.step.layout.by_clock:
            model.window = TupleWindow(length, slide, time=time, lag=lag, unbounded=True)
        for tasks, moment, watermark, partitions in batches:
            if partitions and keys == KEYS and disk.batches:
                disk.rescale(partitions)
            checked(disk, model, tasks, moment, watermark)


@pytest.mark.parametrize("form", [form for form, (_, slide) in FORMS.items() if isinstance(slide, Duration)])
@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_windows_of_event_time_do_not_depend_on_the_cuts(form: str, data: st.DataObject) -> None:
    """10.5: where no row is older than the watermark less the lag, whatever the batches and partitions."""
    length, slide = FORMS[form]
    lag = data.draw(st.integers(0, 5))
    rows, highest = [], 0
    for number in range(data.draw(st.integers(1, 25))):
        time = highest + data.draw(st.integers(-lag, 6))
        highest = max(highest, time)
        rows.append({"k": data.draw(st.sampled_from("ab")), "n": number, "v": 1, "t": time})
    window = TupleWindow(length, slide, time=Time.EVENT, lag=micros(lag), unbounded=True)
    results = []
    for partitions in (1, 2, 8):
        with tempfile.TemporaryDirectory() as root:
            disk = TupleDisk(window, Path(root), partitions=partitions)
            left, made, highest, mark = list(rows), [], 0, None
            for cuts in range(3, -1, -1):
                size = data.draw(st.integers(0, len(left))) if cuts else len(left)
                made += disk.batch([left[:size]], time=disk.batches, watermark=mark).rows
                made += disk.batch([[]], time=disk.batches, watermark=mark).rows if size % 2 else []
                mark = highest = max([highest, *(row["t"] for row in left[:size])])
                left = left[size:]
            made += disk.batch([[]], time=disk.batches, watermark=END).rows
        views = ((row["k"], row["current"], row["new"], row["expired"], str(row["end_at"])) for row in made)
        results.append(sorted(views))
    assert results[0] == results[1] == results[2]


@pytest.mark.sample(10)
@pytest.mark.parametrize("time", [Time.PROCESSING, Time.EVENT], ids=["processing", "event"])
@pytest.mark.parametrize("form", list(FORMS))
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_aggregates_are_those_of_the_rows_of_the_model(form: str, time: Time, data: st.DataObject) -> None:
    """3.3, 5: counts, sums, and the last row, over the rows that a function would get."""
    length, slide = FORMS[form]
    event, ttl = time is Time.EVENT, micros(data.draw(st.sampled_from([3, 9, 500])))
    window = TupleWindow(length, slide, time=time, ttl=ttl)
    batches = data.draw(runs(event=event))
    zero = batches[0][1] - 1
    aggregates = {"count": agg.count(), "total": agg.sum("n"), "all": agg.collect("n", limit=1000)}
    model = TupleModel(window, zero=zero)
    least = data.draw(st.sampled_from([0, 4, 4_096]))
    with tempfile.TemporaryDirectory() as root, patch.object(waiting_rows, "_LEAST", least):
        disk = TupleDisk(window, Path(root), aggregates=aggregates, zero=zero)
        disk.crashes = Random(len(batches))
        if isinstance(length, Duration) and isinstance(slide, Duration):
            model.window = TupleWindow(length, slide, time=time, unbounded=True)
        for tasks, moment, watermark, partitions in batches:
            if partitions and disk.batches:
                disk.rescale(partitions)
            made = disk.batch(tasks, time=moment, watermark=watermark).rows
            fired, _ = model.batch([row for task in tasks for row in task], time=moment, watermark=watermark)
            expected = [(f.key, len(f.current), sum(f.current), f.current) for f in fired]
            results = [(row["k"], row["count"], row["total"], row["all"]) for row in made]
            assert sorted(results, key=repr) == sorted(expected, key=repr)
