"""Compute in which windows of its key each row is (SEMANTICS 5). Pure.

A batch evaluates the window of a key in rounds, which count from 1. A row is in the windows of the rounds from its
`enter` on that are before its `leave`. It leaves in the round `leave`, or in `enter` where that is later: then no
window has had it. A row that was in a window of an earlier batch has `enter` 0. NEVER is a round beyond all.

Times are int64 microseconds, keys are numbers from 0.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from penstock.operators.interval_pairs import shifted
from penstock.state.keys import Bools, Ints

__all__ = ["NEVER", "KeyRows", "Rounds", "ceil_div", "outside_counts", "rounds_by_count", "rounds_by_time"]

NEVER = 2**62


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The rows of some keys that windows may hold, sorted by key, and by arrival within it.

    `entered` are those that were in a window, or left one, in an earlier batch.
    """

    ids: Ints
    times: Ints
    entered: Bools
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The rounds of a batch.

    `last` is for each key the number of its rounds. Rounds that rows cause have `ends` and, in `firing`, these rows,
    those of a key after each other. The other rounds end at `origin` + `every` times the round.
    """

    enter: Ints
    leave: Ints
    last: Ints
    origin: int = 0
    every: int = 0
    ends: Ints | None = None
    firing: Ints | None = None

    @property
    def out(self) -> Ints:
        """Return the round in which each row leaves."""
        return np.maximum(self.enter, self.leave)

    def at(self, keys: Ints, rounds: Ints) -> tuple[Ints, Ints | None]:
        """Return the ends of rounds of keys, and the rows that caused them where rows did."""
        if self.ends is None or self.firing is None:
            return self.origin + self.every * rounds, None
        place = (np.cumsum(self.last) - self.last)[keys] + rounds - 1
        return self.ends[place], self.firing[place]


def rounds_by_time(
    rows: KeyRows,
    slide: int,
    *,
    ends: tuple[int, int | None],
    origin: int,
    length: int | None,
    count: int | None,
    reached: int | None = None,
) -> Rounds:
    """Return rounds that end at the multiples of `slide` from `origin`.

    Args:
        rows: The rows that are not later than the last end.
        slide: The slide.
        ends: The numbers of the first and of the last multiple. There are no rounds where the last is less. None is the
            end of time: each key has rounds until its last row is in. Windows of a `length` last until it is out, and
            those of a `count` until `reached`.
        origin: The multiple 0.
        length: The length of windows, where it is a duration.
        count: The rows of a window, where the length is a count.
        reached: The number of the first multiple that is not before any event time that the sources have shown.
    """
    first, last = ends
    enter = ceil_div(rows.times, slide, origin) - first + 1
    if length is not None:
        enter = np.maximum(enter, 0)
        leave = ceil_div(rows.times, slide, origin - length) - first + 1
    else:
        assert count is not None
        # A row at the end of a round that was over when it came enters in the next one.
        enter = np.where(rows.entered, 0, np.maximum(enter, 1))
        leave = _leave_by_count(rows.ids, enter, count)
    rounds = np.full(rows.keys, 0 if last is None else max(last - first + 1, 0), dtype=np.int64)
    if last is None:
        np.maximum.at(rounds, rows.ids, enter if length is None else np.maximum(enter, leave))
        if length is None and reached is not None:
            rounds = np.maximum(rounds, reached - first + 1)
    return Rounds(enter=enter, leave=leave, last=rounds, origin=origin + (first - 1) * slide, every=slide)


def rounds_by_count(
    rows: KeyRows, slide: int, *, length: int | None, count: int | None, fired: Ints | None, now: int | None
) -> Rounds:
    """Return rounds that end after every `slide` rows.

    Args:
        rows: The rows that have arrived, in event time those up to the watermark.
        slide: How many rows a round takes.
        length: The length of windows, where it is a duration.
        count: The rows of a window, where the length is a count.
        fired: In event time the end of the last round of each key. Only later rows count.
        now: In batch time the end of each round.
    """
    counts = ~rows.entered
    if fired is not None:
        counts &= rows.times > fired[rows.ids]
    at = np.flatnonzero(counts)
    ids = rows.ids[at]
    total = np.bincount(ids, minlength=rows.keys)
    number = np.arange(len(at)) - (np.cumsum(total) - total)[ids]
    last = (total // slide).astype(np.int64)
    enter = np.where(rows.entered, 0, 1)  # one at the end of the last round counts no more, and enters in the next
    enter[at] = number // slide + 1
    enter[enter > last[rows.ids]] = NEVER
    firing = at[(number + 1) % slide == 0]
    ends = _highest_so_far(rows, at)[(number + 1) % slide == 0] if now is None else np.full(len(firing), now)
    if count is not None:
        leave = _leave_by_count(rows.ids, enter, count)
    else:
        assert length is not None
        left = shifted(rows.times, length)
        if now is None:
            enter = np.where(rows.entered, 0, _first_not_before(rows, rows.times, ends, last))
            leave = _first_not_before(rows, left, ends, last)
        else:
            leave = np.where(left <= now, 1, NEVER)
    return Rounds(enter=enter, leave=leave, last=last, ends=ends, firing=firing)


def outside_counts(numbers: Ints, length: int, slide: int) -> Bools:
    """Return which rows of a key are in no window, by their numbers from 0: `slide` is greater than `length`."""
    return slide - numbers % slide > length


def ceil_div(times: Ints, slide: int, origin: int) -> Ints:
    """Return the number of the first multiple of a slide, from an origin, that is not before each time."""
    return -((origin - times) // slide)


def _highest_so_far(rows: KeyRows, at: Ints) -> Ints:
    """Return the highest time of the rows of a key up to each of these."""
    distinct, ranks = np.unique(rows.times[at], return_inverse=True)
    base = rows.ids[at] * len(distinct)
    highest: Ints = distinct[np.maximum.accumulate(base + ranks) - base] if len(at) else distinct
    return highest


def _first_not_before(rows: KeyRows, times: Ints, ends: Ints, last: Ints) -> Ints:
    """Return for each row the first round of its key that ends not before its time; NEVER where none does."""
    distinct, ranks = np.unique(np.concatenate([ends, times]), return_inverse=True)
    of_ends = np.repeat(np.arange(rows.keys), last) * len(distinct) + ranks[: len(ends)]
    place = np.searchsorted(of_ends, rows.ids * len(distinct) + ranks[len(ends) :])
    number = place - (np.cumsum(last) - last)[rows.ids] + 1
    return np.where(number > last[rows.ids], NEVER, number)


def _leave_by_count(ids: Ints, enter: Ints, count: int) -> Ints:
    """Return the round in which `count` rows of the key that arrived later are in."""
    leave = np.full(len(ids), NEVER, dtype=np.int64)
    if len(ids) > count:
        same = np.flatnonzero(ids[count:] == ids[:-count])
        leave[same] = enter[same + count]
    # Rows seldom enter in another order than that of arrival: where event time is out of order by more than a slide.
    turned = np.flatnonzero((ids[1:] == ids[:-1]) & (enter[1:] < enter[:-1]))
    for key in np.unique(ids[turned]).tolist():
        start, end = np.searchsorted(ids, (key, key + 1))
        leave[start:end] = _nth_least_after(enter[start:end].tolist(), count)
    return leave


def _nth_least_after(enter: list[int], count: int) -> list[int]:
    """Return for each item the n-th least of those after it, NEVER where there are fewer."""
    least: list[int] = []
    leave = []
    for round_ in reversed(enter):
        leave.append(-least[0] if len(least) == count else NEVER)
        if len(least) < count:
            heapq.heappush(least, -round_)
        else:
            heapq.heappushpop(least, -round_)
    return leave[::-1]
