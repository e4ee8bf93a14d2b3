"""When the ends of windows of rows are due (SEMANTICS 1.3, 1.4, 5.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuple_disk import TupleDisk, rows

from penstock import agg, count, micros
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.operators.tuple_windows import pane_step, tuple_batch
from penstock.time.clock import END_OF_TIME


def test_ends_before_a_batch_fire_before_its_rows(tmp_path: Path) -> None:
    """1.3, 5.3: batch times 1, 4, 5 from zero 0; the missed tick 3 has its window, and an end at 4 has the batch's rows."""
    disk = TupleDisk(TupleWindow(micros(2), micros(1), unbounded=True), tmp_path)
    made = [disk.batch([rows(0, first=at)], time=at).rows for at in (1, 4, 5)]
    assert [[(r["end_at"].microsecond, r["current"]) for r in batch] for batch in made] == [
        [(1, [1])],
        [(2, [1]), (4, [4])],
        [(5, [4, 5])],
    ]


def test_an_end_is_due_without_rows(tmp_path: Path) -> None:
    """1.4: the batch of the next end, as long as a row is there to leave or to stay."""
    disk = TupleDisk(TupleWindow.tumbling(micros(3), unbounded=True), tmp_path)
    assert disk.batch([rows(0)], time=1).due.time == 3
    assert disk.batch([[]], time=3).due.time == 6
    assert disk.batch([[]], time=6).due.time is None
    assert disk.recorder.expired == [("a", [1])]
    disk = TupleDisk(TupleWindow(count(1), micros(3), unbounded=True), tmp_path / "other")
    assert [disk.batch([rows(0)] * (time == 1), time=time).due.time for time in (1, 3, 6)] == [3, 6, 9]


def test_the_watermark_makes_ends_due_after_the_lag(tmp_path: Path) -> None:
    """1.4, 5.5: or the next row that waits, where rows are counted."""
    window = TupleWindow.tumbling(micros(10), time=Time.EVENT, lag=micros(3), unbounded=True)
    disk = TupleDisk(window, tmp_path)
    assert disk.batch([rows(12)], time=1).due.watermark == 24
    disk = TupleDisk(TupleWindow(count(2), time=Time.EVENT, lag=micros(3), unbounded=True), tmp_path / "other")
    assert disk.batch([rows(12)], time=1).due.watermark == 15


def test_a_row_at_an_end_is_in_its_window_whenever_it_comes(tmp_path: Path) -> None:
    """2.2, 5.3: a row at the watermark may still come, so the window that ends there waits; also in other partitions."""
    for partitions in (1, 8):
        window = TupleWindow.tumbling(micros(10), time=Time.EVENT, unbounded=True)
        (tmp_path / str(partitions)).mkdir()
        disk = TupleDisk(window, tmp_path / str(partitions), partitions=partitions)
        assert disk.batch([rows(95, 100)], time=1).due.watermark == 101
        assert disk.batch([[]], time=2, watermark=100).rows == []
        other = {"k": "b", "n": 9, "v": 1, "t": 100}
        assert disk.batch([[other]], time=3, watermark=100).counts["late"] == 0
        made = disk.batch([[]], time=4, watermark=101).rows
        assert sorted((row["k"], row["current"]) for row in made) == [("a", [1, 2]), ("b", [9])]


@pytest.mark.parametrize("marks", [[], [95], [20, 95]], ids=["at once", "after the watermark", "in three"])
def test_a_drain_fires_as_often_however_it_was_cut(tmp_path: Path, marks: list[int]) -> None:
    """A count is evaluated at each end up to the highest event time that the sources have shown, also of other keys."""
    disk = TupleDisk(TupleWindow(count(3), micros(10), time=Time.EVENT, unbounded=True), tmp_path)
    other = {"k": "b", "n": 9, "v": 1, "t": 95}
    disk.batch([[*rows(5), other]], time=1)
    made: list[Any] = []
    for at, mark in enumerate([*marks, END_OF_TIME]):
        made += disk.batch([[]], time=2 + at, watermark=mark).rows
    assert [row["current"] for row in made if row["k"] == "a"] == [[1]] * 10
    assert [row["current"] for row in made if row["k"] == "b"] == [[9]]


def test_nothing_is_due_once_all_keys_are_forgotten(tmp_path: Path) -> None:
    """A TTL ends what a duration as slide would evaluate for ever."""
    disk = TupleDisk(TupleWindow(count(3), micros(10), ttl=micros(5)), tmp_path)
    disk.batch([rows(1)], time=1)
    assert [disk.batch([[]], time=time).due.time for time in (10, 16, 20)][-1] is None


CHANGING = [
    pytest.param(count(2), Time.PROCESSING, {"n": agg.count()}, id="panes"),
    pytest.param(count(2), Time.PROCESSING, None, id="batch time by two"),
    pytest.param(None, Time.PROCESSING, None, id="batch time by one"),
    pytest.param(micros(7), Time.PROCESSING, None, id="batch time by duration"),
    pytest.param(count(2), Time.EVENT, None, id="event time by two"),
    pytest.param(None, Time.EVENT, None, id="event time by one"),
    pytest.param(micros(7), Time.EVENT, None, id="event time by duration"),
]


def with_ttl(
    ttl: int | None, root: Path, case: tuple[Any, Time, Any], after: TupleDisk | None = None, *, partitions: int = 1
) -> TupleDisk:
    """Return a step with a TTL in microseconds, None for none; `after` is what ran before it."""
    slide, time, aggregates = case
    bound: dict[str, Any] = {"unbounded": True} if ttl is None else {"ttl": micros(ttl)}
    window = TupleWindow(count(3), slide, time=time, **bound)
    step = TupleDisk(window, root, aggregates=aggregates, partitions=partitions)
    if after is not None:
        step.refs, step.batches = after.refs, after.batches
    return step


@pytest.mark.parametrize(("slide", "time", "aggregates"), CHANGING)
@pytest.mark.parametrize("before", [None, 500], ids=["none", "longer"])
def test_another_ttl_holds_at_once(tmp_path: Path, slide: Any, time: Time, aggregates: Any, before: int | None) -> None:
    """5.7, 7.2: for keys without rows too; nobody knows when the last row of a key came where there was no TTL."""
    case = (slide, time, aggregates)
    step = with_ttl(before, tmp_path, case)
    mark = 30 if time is Time.EVENT else None
    step.batch([rows(1, 2, 3)], time=1)
    step.batch([[]], time=9, watermark=mark)  # which takes the rows that wait
    step = with_ttl(5, tmp_path, case, step)
    waited = time is Time.EVENT or slide == micros(7)
    forgotten_in = 16 if before is None else 15 if waited else 10
    for moment in (10, 14, 15, 16):
        step.batch([[]], time=moment, watermark=mark)
        assert (step.shown().num_rows == 0) == (moment >= forgotten_in)


@pytest.mark.parametrize(("slide", "time", "aggregates"), CHANGING)
@pytest.mark.parametrize("older", [False, True], ids=["this version", "a state of the version before"])
def test_a_ttl_that_comes_back_knows_nothing_of_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slide: Any, time: Time, aggregates: Any, *, older: bool
) -> None:
    """5.7: rows that came without one do not date their key."""
    case = (slide, time, aggregates)
    step = with_ttl(5, tmp_path, case)
    mark = 30 if time is Time.EVENT else None
    with monkeypatch.context() as before:
        for module in (pane_step, tuple_batch) if older else ():
            before.setattr(module, "facts_of_ttl", lambda *_, **__: None)
        step.batch([rows(1)], time=1, watermark=mark)
    step = with_ttl(None, tmp_path, case, step)
    step.batch([rows(31, 32)], time=20, watermark=mark)
    step.batch([[]], time=28, watermark=None if mark is None else 40)
    step = with_ttl(5, tmp_path, case, step)
    for moment in (30, 35, 36):
        step.batch([[]], time=moment, watermark=None if mark is None else 40)
        assert (step.shown().num_rows == 0) == (moment == 36)


@pytest.mark.parametrize(("slide", "time", "aggregates"), CHANGING)
def test_what_a_ttl_that_comes_back_forgets_depends_on_no_partition(
    tmp_path: Path, slide: Any, time: Time, aggregates: Any
) -> None:
    """1.6, 5.7: keys without rows meanwhile are held as long, whichever keys they share a partition with."""
    case, held = (slide, time, aggregates), []
    first, mark = (0, 30) if time is Time.EVENT else (None, None)
    for partitions in (1, 8):
        folder = tmp_path / str(partitions)
        folder.mkdir()
        step = with_ttl(5, folder, case, partitions=partitions)
        step.batch([[{**rows(1)[0], "k": key} for key in "abcdef"]], time=1, watermark=first)
        step.batch([[]], time=1, watermark=mark)
        step = with_ttl(None, folder, case, step, partitions=partitions)
        step.batch([[{**rows(31)[0], "k": "a"}]], time=2, watermark=mark)
        step = with_ttl(5, folder, case, step, partitions=partitions)
        step.batch([[]], time=8, watermark=mark)
        held.append(sorted(step.shown()["k"].to_pylist()))
    assert held[0] == held[1]
    assert {*held[0]} == {*"abcdef"}


@pytest.mark.parametrize(("slide", "time", "aggregates"), CHANGING)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "also without it"])
def test_a_ttl_that_comes_back_with_other_partitions_counts_from_then_on(
    tmp_path: Path, slide: Any, time: Time, aggregates: Any, *, twice: bool
) -> None:
    """5.7, 10.2: a key without rows meanwhile is held as long as in the partitions that it was in."""
    case = (slide, time, aggregates)
    first, mark = (0, 30) if time is Time.EVENT else (None, None)
    step = with_ttl(5, tmp_path, case)
    step.batch([rows(1)], time=1, watermark=first)
    step.batch([[]], time=2, watermark=mark)
    step = with_ttl(None, tmp_path, case, step)
    if twice:
        step.last = (3, mark)
        step.rescale(2)
    step.batch([[{**rows(31)[0], "k": "b"}]], time=20, watermark=mark)
    after, root, partitions = step, step.root, step.partitions
    step = with_ttl(5, Path(root), case, after, partitions=partitions)
    step.last = (30, mark)
    step.rescale(3)
    for moment in (31, 35, 36):
        step.batch([[]], time=moment, watermark=mark)
        assert ("a" in step.shown()["k"].to_pylist()) == (moment < 36)
