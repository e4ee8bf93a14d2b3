"""Cut event time into slices, and say which windows a slice belongs to (SEMANTICS 3, DESIGN 7).

A window of fixed extent, [start, start + size), starts at `offset` plus a multiple of `every`.
Windows of growing extent start at `offset` plus a multiple of `size`, and end every `every` until they are `size` long.
A slice is the span between two neighbouring cuts, where a cut is the start or the end of a window.
All rows of a slice lie in the same windows, so a row is aggregated once, however many windows hold it.
There are at most two cuts a slide, and so at most two slices, however odd `size` is beside `every`.
Cutting at window edges only is the slicing of Cutty (Carbone et al., CIKM 2016) and Scotty (Traub et al., EDBT 2019).

Times, bounds and watermarks are integer microseconds since 1970, negative before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from penstock.errors import JobError
from penstock.graph.windows import Extent, TimeWindow
from penstock.state.keys import Bools, Ints
from penstock.time.clock import END_OF_TIME

__all__ = [
    "BEGINNING_OF_TIME",
    "FARTHEST",
    "check_window",
    "due_ends",
    "due_runs",
    "first_end_after",
    "floor_slice",
    "in_no_window",
    "last_ends",
    "next_due_end",
    "slice_starts",
    "slices_per_window",
    "start_of",
]

BEGINNING_OF_TIME = -(2**63)
FARTHEST = 2**62
"""The event times that windows can hold are those from -FARTHEST to FARTHEST, 146,000 years either way.
Beyond, the bounds of a window could not be written as a 64-bit integer."""
_WIDEST = 2**61
_ENDS_AT_ONCE = 65_536

WholeNumbers = TypeVar("WholeNumbers", int, Ints)


def check_window(window: TimeWindow) -> None:
    """Refuse a window so wide that its bounds overflow 64 bits: over 73,000 years."""
    if max(window.size, window.every) > _WIDEST:
        raise JobError(f"a window of {window.size} microseconds every {window.every} is wider than time itself")


def slices_per_window(window: TimeWindow) -> int:
    """Return the number of slices in the longest window."""
    whole, odd = divmod(window.size, window.every)
    return whole * (2 if odd else 1) + (1 if odd else 0)


def slice_starts(times: Ints, window: TimeWindow) -> Ints:
    """Return the start of the slice that holds each time; both arrays are int64.

    For a time in a gap between windows (`every` > `size`) it is the start of the gap: see `in_no_window`.
    Times must lie within FARTHEST.
    """
    if not len(times):
        return np.zeros(0, dtype=np.int64)
    first, last = _slice_starts(np.array([times.min(), times.max()]), window)
    # The rows of a batch are often of one slice; to see that takes a third of the time.
    return np.full(len(times), first) if first == last else _slice_starts(times, window)


def _slice_starts(times: Ints, window: TimeWindow) -> Ints:
    starts = _cuts(times, window, window.every)
    odd = window.size % window.every
    if odd:
        starts += np.where(times - starts >= odd, odd, 0)
    return starts


def in_no_window(times: Ints, window: TimeWindow) -> Bools:
    """Return which times lie in no window: in a gap between windows, or beyond FARTHEST.

    >>> from penstock import seconds
    >>> from penstock.windows import Sliding
    >>> in_no_window(np.array([0, 1_999_999, 2_000_000]), Sliding(seconds(2), every=seconds(3))).tolist()
    [False, False, True]
    """
    outside: Bools = np.zeros(len(times), dtype=np.bool_)
    if not len(times):
        return outside
    if int(times.min()) < -FARTHEST or int(times.max()) > FARTHEST:
        outside = (times < -FARTHEST) | (times > FARTHEST)
        times = np.where(outside, 0, times)
    if window.every > window.size:
        outside |= times - _cuts(times, window, window.every) >= window.size
    return outside


def last_ends(times: Ints, window: TimeWindow) -> Ints:
    """Return, for times or slice starts that lie in a window, the end of the last window that holds each."""
    return _cuts(times, window, _between_starts(window)) + window.size


def start_of(end: WholeNumbers, window: TimeWindow) -> WholeNumbers:
    """Return the start of the window with this end, or of each with one of these ends."""
    return end - window.size if window.extent is Extent.FIXED else _cuts(end - 1, window, window.size)


def first_end_after(time: int, window: TimeWindow) -> int:
    """Return the smallest end of a window that is greater than `time`.

    For a time that lies in a window, this is the end of the first window that holds it.
    """
    return time + window.every - (time - window.offset - window.size) % window.every


def floor_slice(watermark: int | None, window: TimeWindow) -> int:
    """Return the start of the oldest slice that a window still open at this watermark can hold.

    Slices before it can go.
    The answer is cut to 64 bits; None is the beginning of time.
    """
    if watermark is None:
        return BEGINNING_OF_TIME
    return min(max(start_of(first_end_after(watermark, window), window), BEGINNING_OF_TIME), END_OF_TIME)


def next_due_end(live: Ints, after: int | None, window: TimeWindow) -> int | None:
    """Return the end of the first window after `after` that holds a live slice, or None where there is none.

    `live` are starts of slices with rows, ascending.
    """
    return next((first for first, _ in due_runs(live, after, END_OF_TIME, window)), None)


def due_runs(live: Ints, after: int | None, to: int | None, window: TimeWindow) -> list[tuple[int, int]]:
    """Return the ends in (after, to] of windows that hold a live slice, as runs: a first and a last end, ascending.

    The ends of a run are `every` apart, so a run of a million windows is two numbers, and so is a gap between runs.
    `live` are starts of slices with rows, ascending.
    `after` None is the beginning of time; `to` None closes nothing.
    """
    if to is None or not len(live):
        return []
    least = BEGINNING_OF_TIME if after is None else first_end_after(after, window)
    most = first_end_after(to, window) - window.every
    if least > most or least > END_OF_TIME or most < BEGINNING_OF_TIME:
        return []
    firsts = live + window.every - (live - (window.offset + window.size) % window.every) % window.every
    firsts, lasts = np.maximum(firsts, least), np.minimum(last_ends(live, window), most)
    held = firsts <= lasts
    firsts, lasts = firsts[held], lasts[held]
    opens = np.r_[True, firsts[1:] > lasts[:-1] + window.every][: len(firsts)]
    closes = np.r_[opens[1:], True][: len(firsts)]
    return list(zip(firsts[opens].tolist(), lasts[closes].tolist(), strict=True))


def due_ends(live: Ints, after: int | None, to: int | None, window: TimeWindow) -> Iterator[Ints]:
    """Yield the ends of `due_runs` in order, some thousands at a time."""
    for first, last in due_runs(live, after, to, window):
        for start in range(first, last + 1, _ENDS_AT_ONCE * window.every):
            end = min(last, start + (_ENDS_AT_ONCE - 1) * window.every)
            yield np.arange(start, end + 1, window.every, dtype=np.int64)


def _between_starts(window: TimeWindow) -> int:
    return window.every if window.extent is Extent.FIXED else window.size


def _cuts(times: WholeNumbers, window: TimeWindow, width: int) -> WholeNumbers:
    """Return the last of the moments `width` apart, with the windows' offset, that is not after each time."""
    offset = window.offset % width
    # Division by one number is several times faster than remainder in numpy.
    return (times - offset) // width * width + offset
