"""Worked examples of windows of rows: SEMANTICS 5.4, and windows of which Storm's users know what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuple_disk import TupleDisk, rows

from penstock import agg, count, hours, micros, seconds
from penstock.graph.specs.tuple_windows import Time, TupleWindow

EVENT = Time.EVENT
END = 2**63 - 1


def numbers(since: int, until: int) -> list[int]:
    """Return the numbers from one to another."""
    return list(range(since, until + 1))


def views(disk: TupleDisk, given: list[dict[str, Any]], *, time: int = 1, watermark: int | None = None) -> list[Any]:
    """Return the windows of a batch."""
    made = disk.batch([given], time=time, watermark=watermark)
    return [(row["current"], row["new"], row["expired"]) for row in made.rows]


def test_the_worked_example_of_the_semantics(tmp_path: Path) -> None:
    """5.4: 18:15:50, :51, :58, 18:16:00, :03 with a lag of 5 s; with these rows alone the watermark is 18:15:58."""
    second, start = 1_000_000, 65_700
    window = TupleWindow(seconds(10), seconds(10), time=EVENT, lag=seconds(5), unbounded=True)
    disk = TupleDisk(window, tmp_path)
    given = rows(*((start + s) * second for s in (50, 51, 58, 60, 63)))
    disk.batch([given], time=1)
    made = disk.batch([[]], time=2, watermark=(start + 63) * second)
    assert [(r["current"], r["end_at"].strftime("%H:%M:%S")) for r in made.rows] == [([1], "18:15:50")]
    assert made.due.watermark == (start + 60 + 5) * second + 1
    made = disk.batch([[]], time=3, watermark=END)
    assert [
        (r["current"], r["start_at"].strftime("%H:%M:%S"), r["end_at"].strftime("%H:%M:%S")) for r in made.rows
    ] == [
        ([2, 3, 4], "18:15:50", "18:16:00"),
        ([5], "18:16:00", "18:16:10"),
    ]
    assert made.times == [(start + s) * second for s in (60, 70)]


def test_a_count_window_slides_by_a_count(tmp_path: Path) -> None:
    """5.1, 5.2: the last five after each two rows; a row expires when a window is evaluated without it."""
    disk = TupleDisk(TupleWindow(count(5), count(2), unbounded=True), tmp_path)
    assert views(disk, rows(0, 0)) == [([1, 2], [1, 2], [])]
    assert views(disk, rows(0, 0, first=3)) == [(numbers(1, 4), [3, 4], [])]
    assert disk.recorder.expired == []
    assert views(disk, rows(0, 0, first=5)) == [(numbers(2, 6), [5, 6], [1])]
    assert views(disk, rows(0, first=7)) == []
    assert disk.recorder.expired == [("a", [1])]
    assert views(disk, rows(0, first=8)) == [(numbers(4, 8), [7, 8], [2, 3])]
    assert disk.recorder.expired == [("a", [1]), ("a", [2, 3])]


@pytest.mark.parametrize("cut", [1, 2, 3, 6])
def test_a_tumbling_count_begins_empty(tmp_path: Path, cut: int) -> None:
    """5.1: after each three rows those three, in batches of any size."""
    disk = TupleDisk(TupleWindow.tumbling(count(3), unbounded=True), tmp_path)
    made = [view for at in range(0, 6, cut) for view in views(disk, rows(*[0] * cut, first=at + 1))]
    assert made == [([1, 2, 3], [1, 2, 3], []), ([4, 5, 6], [4, 5, 6], [1, 2, 3])]


def test_durations_in_event_time_jump_over_what_has_no_rows(tmp_path: Path) -> None:
    """5.3: (end - 20, end] each 10; rows that leave without a window are told to `on_expired`."""
    disk = TupleDisk(TupleWindow(micros(20), micros(10), time=EVENT, unbounded=True), tmp_path)
    disk.batch([rows(603, 605, 607)], time=1)
    assert views(disk, [], time=2, watermark=609) == []
    disk.batch([rows(618, 626, 636, first=4)], time=3, watermark=609)
    assert views(disk, [], time=4, watermark=631) == [
        ([1, 2, 3], [1, 2, 3], []),
        ([1, 2, 3, 4], [4], []),
        ([4, 5], [5], [1, 2, 3]),
    ]
    disk.batch([rows(825, 826, 827, 839, first=7)], time=5, watermark=631)
    disk.recorder.expired.clear()
    assert views(disk, [], time=6, watermark=834) == [([5, 6], [6], [4]), ([6], [], [5]), ([7, 8, 9], [7, 8, 9], [])]
    assert disk.recorder.expired == [("a", [4]), ("a", [5]), ("a", [6])]


def test_a_count_in_event_time_fires_again_while_it_holds_rows(tmp_path: Path) -> None:
    """5.3: the last three at each multiple of ten, also where no row came."""
    disk = TupleDisk(TupleWindow(count(3), micros(10), time=EVENT, unbounded=True), tmp_path)
    disk.batch([rows(603, 605, 607, 618, 626, 636)], time=1)
    made = views(disk, [], time=2, watermark=631)
    assert [current for current, *_ in made] == [[1, 2, 3], [2, 3, 4], [3, 4, 5]]
    disk.batch([rows(665, 666, 667, 679, first=7)], time=3, watermark=631)
    made = views(disk, [], time=4, watermark=674)
    assert [current for current, *_ in made] == [[4, 5, 6]] * 3 + [[7, 8, 9]]


def test_a_duration_fires_after_each_third_row_in_event_time(tmp_path: Path) -> None:
    """5.3: at the largest time so far, among the rows after the last fired time and up to the watermark."""
    disk = TupleDisk(TupleWindow(micros(20), count(3), time=EVENT, unbounded=True), tmp_path)
    disk.batch([rows(603, 605, 607, 618, 625, 626, 629, 636)], time=1)
    assert [current for current, *_ in views(disk, [], time=2, watermark=631)] == [[1, 2, 3], [3, 4, 5, 6]]
    disk.batch([rows(665, 666, 667, 669, 679, first=9)], time=3, watermark=631)
    assert [current for current, *_ in views(disk, [], time=4, watermark=674)] == [[9], [9, 10, 11, 12]]


@pytest.mark.parametrize(
    ("length", "windows"),
    [
        (2, [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]),
        (5, [[1, 2], numbers(1, 4), numbers(2, 6), numbers(4, 8), numbers(6, 10)]),
    ],
)
def test_counts_do_not_mix_rows_of_one_time(tmp_path: Path, length: int, windows: list[list[int]]) -> None:
    """5.3: rows of equal event time go by the order of arrival."""
    disk = TupleDisk(TupleWindow(count(length), count(2), time=EVENT, unbounded=True), tmp_path)
    disk.batch([rows(10, 10, 11, 12, 12, 12, 12, 13, 14, 15)], time=1)
    assert [current for current, *_ in views(disk, [], time=2, watermark=20)] == windows


def test_rows_up_to_the_watermark_count_and_none_expire_before_it(tmp_path: Path) -> None:
    """5.3: a row at the watermark itself is one of those up to it."""
    disk = TupleDisk(TupleWindow(count(100), count(100), time=EVENT, unbounded=True), tmp_path)
    disk.batch([rows(*range(1, 101))], time=1)
    assert disk.recorder.expired == []
    assert [current for current, *_ in views(disk, [], time=2, watermark=100)] == [numbers(1, 100)]
    disk.batch([rows(*range(101, 201), first=101)], time=3, watermark=100)
    assert views(disk, [], time=4, watermark=201) == [(numbers(101, 200), numbers(101, 200), numbers(1, 100))]


def test_rows_out_of_order_stand_by_their_arrival(tmp_path: Path) -> None:
    """5.2, 5.3: a row that came late is in the window of its time."""
    window = TupleWindow(micros(20), micros(10), time=EVENT, lag=micros(5), unbounded=True)
    disk = TupleDisk(window, tmp_path)
    disk.batch([rows(603, 605, 607, 618, 626, 632, 629, 636)], time=1)
    made = views(disk, [], time=2, watermark=636)
    assert [current for current, *_ in made] == [[1, 2, 3], [1, 2, 3, 4], [4, 5, 7]]


AGGREGATE = {"n": agg.count()}


@pytest.mark.parametrize(
    ("window", "aggregates"),
    [
        pytest.param(TupleWindow(count(2), count(5), unbounded=True), AGGREGATE, id="counts, as panes"),
        pytest.param(TupleWindow(count(2), count(5), unbounded=True), None, id="counts, as rows"),
        pytest.param(TupleWindow(micros(2), micros(5), unbounded=True), None, id="durations of batch time"),
        pytest.param(TupleWindow(micros(2), micros(5), time=EVENT, unbounded=True), None, id="durations of event time"),
    ],
)
def test_rows_between_windows_are_in_no_window(tmp_path: Path, window: TupleWindow, aggregates: Any) -> None:
    """2.10, 5.7: of five rows the windows have the last two, at 4 and 5; each batch counts its own rows."""
    disk = TupleDisk(window, tmp_path, aggregates=aggregates)
    counted = []
    for time in range(1, 8):
        made = disk.batch([rows(time, first=time)], time=time, watermark=time if window.time is EVENT else None)
        counted.append((made.counts["in_no_window"], made.counts["merged"]))
    assert counted == [(1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (1, 0), (1, 0)]


def test_rows_that_no_window_will_have_expire_at_once(tmp_path: Path) -> None:
    """5.2: the last five each hour; of a hundred rows 95 expire in the batches that push them out, and five are kept."""
    disk = TupleDisk(TupleWindow(count(5), hours(1), unbounded=True), tmp_path)
    told = []
    for batch in range(10):
        disk.recorder.expired.clear()
        made = disk.batch([rows(*[0] * 10, first=10 * batch + 1)], time=batch + 1)
        told += [n for _, gone in disk.recorder.expired for n in gone]
        assert made.counts["expired"] == (5 if batch == 0 else 10)
        assert disk.shown().num_rows == 5
    assert told == numbers(1, 95)
    assert views(disk, [], time=3_600_000_000) == [(numbers(96, 100), numbers(96, 100), [])]


@pytest.mark.parametrize("restored", [False, True])
def test_rows_of_a_window_expire_when_later_ones_push_them_out(tmp_path: Path, *, restored: bool) -> None:
    """5.2: they are told once, in that batch, and the next view has them as expired."""
    disk = TupleDisk(TupleWindow(count(3), micros(10), unbounded=True), tmp_path)
    assert views(disk, rows(0, 0, 0), time=10) == [([1, 2, 3], [1, 2, 3], [])]
    assert views(disk, rows(0, 0, first=4), time=12) == []
    assert disk.recorder.expired == [("a", [1, 2])]
    if restored:
        disk.rescale(1)
    assert views(disk, rows(0, 0, first=6), time=14) == []
    assert disk.recorder.expired == [("a", [1, 2]), ("a", [3, 4])]
    assert disk.shown().num_rows == 6
    assert views(disk, [], time=20) == [([5, 6, 7], [5, 6, 7], [1, 2, 3])]
    assert views(disk, [], time=30) == [([5, 6, 7], [], [])]
    assert disk.recorder.expired == [("a", [1, 2]), ("a", [3, 4])]
    assert disk.shown().num_rows == 3
