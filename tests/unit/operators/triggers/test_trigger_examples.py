"""Worked examples of global windows: what users of Beam and Flink know of their triggers and evictors (SEMANTICS 6).

Each batch has the rows of one key that are given, numbered on, so that a batch of one row is an element of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from global_disk import GlobalDisk, numbers_of

from penstock import count, micros
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
    Never,
    OrFinally,
    Purging,
    Repeatedly,
)
from penstock.windows import GlobalWindow

Step = tuple[int, list[int] | None]


def disk_of(root: Path, trigger: Any, evictor: Any = None) -> GlobalDisk:
    """Return a window with a function that lists the numbers of its rows."""
    window = GlobalWindow(unbounded=True).trigger(trigger)
    window = window if evictor is None else window.evict(evictor)
    return GlobalDisk(GlobalWindows(window=window, function=WindowFunction(numbers_of, "-")), root)


def given(number: int, *, at: int = 0, v: float = 0.0) -> dict[str, Any]:
    """Return a row."""
    return {"k": "a", "n": number, "v": v, "t": at}


def fired(made: Any) -> list[int] | None:
    """Return the rows of the window that a batch emitted, None where it emitted none."""
    assert len(made.output) <= 1
    return made.output[0]["rows"] if made.output else None


def upto(number: int) -> list[int]:
    """Return the numbers from 1."""
    return [*range(1, number + 1)]


TWO, THREE = AfterCount(2), AfterCount(3)
BY_ROWS: dict[str, tuple[Any, list[list[int] | None]]] = {
    "a count finishes": (TWO, [None, upto(2), None, None]),
    "repeatedly": (Repeatedly(TWO), [None, upto(2), None, upto(4)]),
    "repeatedly, discarding": (Purging(Repeatedly(TWO)), [None, [1, 2], None, [3, 4]]),
    "the first of two": (AfterFirst(THREE, TWO), [None, upto(2), None]),
    "the first of two, again": (Repeatedly(AfterFirst(THREE, TWO)), [None, upto(2), None, upto(4)]),
    "all of two": (AfterAll(TWO, THREE), [None, None, upto(3), None]),
    "all of two, again": (Repeatedly(AfterAll(TWO, THREE)), [None, None, upto(3), None, None, upto(6)]),
    "one after the other": (AfterEach(TWO, THREE), [None, upto(2), None, None, upto(5), None, None, None]),
    "one after the other, again": (
        Repeatedly(AfterEach(AfterCount(1), TWO)),
        [upto(1), None, upto(3), upto(4), None, upto(6)],
    ),
    "what goes on for ever has no next": (
        AfterEach(Repeatedly(TWO), AfterCount(1)),
        [None, upto(2), None, upto(4)],
    ),
    "until a count of all rows": (OrFinally(Repeatedly(TWO), THREE), [None, upto(2), upto(3), None, None]),
    "until, where main finishes first": (OrFinally(TWO, THREE), [None, upto(2), None, None]),
    "until a next one": (
        AfterEach(OrFinally(Repeatedly(TWO), THREE), Repeatedly(TWO)),
        [None, upto(2), upto(3), None, upto(5), None, upto(7)],
    ),
    "until all of two": (
        OrFinally(Repeatedly(Never()), AfterAll(TWO, AfterCount(1))),
        [None, upto(2), None],
    ),
    "each of two, until one has finished": (
        AfterAny(Repeatedly(TWO), AfterCount(5)),
        [None, upto(2), None, upto(4), upto(5), None],
    ),
    "purging within": (Repeatedly(AfterEach(Purging(TWO), TWO)), [None, [1, 2], None, [3, 4], None, [3, 4, 5, 6]]),
}


@pytest.mark.parametrize("name", list(BY_ROWS))
def test_triggers_finish_and_begin_again(tmp_path: Path, name: str) -> None:
    """6: a row a batch; rows after the finish are in no window."""
    trigger, wanted = BY_ROWS[name]
    disk = disk_of(tmp_path, trigger)
    made = [fired(disk.batch([given(number)], time=number)) for number in range(1, len(wanted) + 1)]
    assert made == wanted


BY_TIME: dict[str, tuple[Any, Sequence[tuple[int, int, list[int] | None]]]] = {
    "a delay of the first row": (
        AfterProcessingTime(micros(5)),
        [(1, 10, None), (1, 13, None), (0, 15, upto(2)), (1, 30, None)],
    ),
    "a delay begins with the next row": (
        Repeatedly(AfterProcessingTime(micros(5))),
        [(1, 10, None), (0, 15, [1]), (0, 25, None), (1, 30, None), (0, 34, None), (0, 35, upto(2))],
    ),
    "rows or a delay": (
        Repeatedly(AfterFirst(THREE, AfterProcessingTime(micros(5)))),
        [(1, 10, None), (0, 15, [1]), (1, 16, None), (2, 17, upto(4)), (1, 20, None), (0, 21, None), (0, 25, upto(5))],
    ),
    "rows and a delay": (
        AfterAll(TWO, AfterProcessingTime(micros(5))),
        [(1, 10, None), (0, 15, None), (1, 16, upto(2)), (1, 17, None)],
    ),
    "a delay, then rows": (
        AfterEach(AfterProcessingTime(micros(5)), Repeatedly(TWO)),
        [(3, 10, None), (0, 15, upto(3)), (1, 16, None), (1, 17, upto(5))],
    ),
    "rows until a delay": (
        OrFinally(Repeatedly(TWO), AfterProcessingTime(micros(5))),
        [(2, 10, upto(2)), (1, 12, None), (0, 15, upto(3)), (2, 16, None)],
    ),
    "multiples, while there are rows": (
        Every(micros(10)),
        [(1, 1, None), (0, 10, [1]), (0, 20, [1]), (1, 25, None), (0, 30, upto(2))],
    ),
    "multiples, discarding": (
        Purging(Every(micros(10))),
        [(1, 1, None), (0, 10, [1]), (0, 20, None), (1, 25, None), (0, 30, [2])],
    ),
}


@pytest.mark.parametrize("name", list(BY_TIME))
def test_triggers_wait_for_batch_time(tmp_path: Path, name: str) -> None:
    """6, 1.4: a delay counts from the first row, and a batch at its end fires."""
    trigger, trace = BY_TIME[name]
    disk, number, made = disk_of(tmp_path, trigger), 1, []
    for rows, time, _ in trace:
        made.append(fired(disk.batch([given(n) for n in range(number, number + rows)], time=time)))
        number += rows
    assert made == [wanted for *_, wanted in trace]


BY_WATERMARK: dict[str, tuple[Any, Sequence[tuple[list[int], int | None, list[int] | None]]]] = {
    "a delay of the earliest row": (
        AfterEventTime(micros(5)),
        [([12, 10], None, None), ([], 14, None), ([], 15, upto(2))],
    ),
    "multiples, as the watermark reaches them": (
        Every(micros(3), clock=EVENT),
        [([1], 0, None), ([2], 2, None), ([4], 3, upto(3)), ([], 6, upto(3)), ([], 8, None), ([], 20, upto(3))],
    ),
    "early, then at the end": (
        OrFinally(Repeatedly(TWO), AtEnd()),
        [([1], 0, None), ([2], 0, upto(2)), ([3], 0, None), ([], END_OF_TIME, upto(3))],
    ),
    "at the end alone": (AtEnd(), [([1, 2, 3], 0, None), ([], 10**9, None), ([], END_OF_TIME, upto(3))]),
}


@pytest.mark.parametrize("name", list(BY_WATERMARK))
def test_triggers_wait_for_the_watermark(tmp_path: Path, name: str) -> None:
    """6, 2.2: a moment has come when the watermark reaches it, and the end of time once."""
    trigger, trace = BY_WATERMARK[name]
    disk, number, made = disk_of(tmp_path, trigger), 1, []
    for batch, (times, watermark, _) in enumerate(trace, 1):
        rows = [given(n, at=at) for n, at in enumerate(times, number)]
        made.append(fired(disk.batch(rows, time=batch, watermark=watermark)))
        number += len(times)
    assert made == [wanted for *_, wanted in trace]


EVICTED: dict[str, tuple[Any, Any, list[tuple[int, float]], list[list[int] | None]]] = {
    "the last four, each two rows": (
        Every(count(2)),
        KeepLast(4),
        [(0, 0.0)] * 8,
        [None, [1, 2], None, upto(4), None, [3, 4, 5, 6], None, [5, 6, 7, 8]],
    ),
    "later than the latest less ten": (
        Every(count(1)),
        KeepNewest(micros(10)),
        [(0, 0.0), (9, 0.0), (10, 0.0), (5, 0.0), (30, 0.0)],
        [[1], [1, 2], [2, 3], [2, 3, 4], [5]],
    ),
    "nearer to the last value than two": (
        Every(count(1)),
        KeepDelta("v", 2),
        [(0, 1.0), (0, 2.0), (0, 3.0), (0, 4.5), (0, 0.0)],
        [[1], [1, 2], [2, 3], [3, 4], [5]],
    ),
    "a delta of values, and the last of them": (
        Repeatedly(AfterDelta("v", 3)),
        KeepLast(2),
        [(0, 1.0), (0, 4.0), (0, 4.5), (0, 7.0), (0, 1.0)],
        [None, None, [2, 3], None, [4, 5]],
    ),
    "discarding leaves nothing to evict": (
        Purging(Every(count(3))),
        KeepLast(2),
        [(0, 0.0)] * 6,
        [None, None, [2, 3], None, None, [5, 6]],
    ),
}


@pytest.mark.parametrize("name", list(EVICTED))
def test_evictors_run_before_the_function(tmp_path: Path, name: str) -> None:
    """6: what they take is gone for good, also for the next firing."""
    trigger, evictor, rows, wanted = EVICTED[name]
    disk = disk_of(tmp_path, trigger, evictor)
    made = [fired(disk.batch([given(n, at=at, v=v)], time=n)) for n, (at, v) in enumerate(rows, 1)]
    assert made == wanted
