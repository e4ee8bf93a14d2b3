"""Slices and lateness against the definitions of SEMANTICS 2.3, 2.5 and the table of 3, taken word for word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_samples import TIMES, WINDOWS, all_windows, array, by_definition

from penstock import seconds
from penstock.errors import JobError
from penstock.graph.windows import Extent, TimeWindow
from penstock.operators.windows.slices import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    check_window,
    due_ends,
    first_end_after,
    floor_slice,
    in_no_window,
    last_ends,
    next_due_end,
    slice_starts,
    slices_per_window,
    start_of,
)
from penstock.windows import Sliding


def cuts(window: TimeWindow) -> list[int]:
    """Return every start and end of a window."""
    return sorted({bound for bounds in all_windows(window) for bound in bounds})


@given(WINDOWS, TIMES)
def test_a_slice_runs_from_cut_to_cut(window, time):
    """DESIGN 7: slices are cut at window starts and ends, and nowhere else."""
    start = int(slice_starts(array(time), window)[0])
    assert start == max(cut for cut in cuts(window) if cut <= time)


@given(WINDOWS, st.lists(TIMES))
def test_each_row_of_a_batch_has_its_slice(window, times):
    """DESIGN 7: the slice of a row does not depend on the rows beside it, of one slice or of several."""
    alone = [int(slice_starts(array(time), window)[0]) for time in times]
    assert slice_starts(array(*times), window).tolist() == alone


@given(WINDOWS, TIMES)
def test_rows_of_a_slice_share_their_windows(window, time):
    """DESIGN 7: a slice stands for its rows in every window."""
    start = int(slice_starts(array(time), window)[0])
    assert by_definition(start, window) == by_definition(time, window)


@given(WINDOWS, TIMES)
def test_a_row_between_windows_is_in_none(window, time):
    """3: every > size is allowed, rows between count as in no window."""
    assert bool(in_no_window(array(time), window)[0]) == (not by_definition(time, window))


@given(WINDOWS, TIMES)
def test_ends_around_a_time(window, time):
    """2.5: what closes first and last among the windows of a row."""
    ends = [end for _, end in all_windows(window)]
    assert first_end_after(time, window) == min(end for end in ends if end > time)
    if held := by_definition(time, window):
        assert int(last_ends(array(time), window)[0]) == held[-1][1]
        assert first_end_after(time, window) == held[0][1]


@given(WINDOWS, TIMES)
def test_the_floor_is_the_start_of_the_first_open_window(window, watermark):
    """DESIGN 7: what no window needs any more goes."""
    open_starts = [start for start, end in all_windows(window) if end > watermark]
    assert floor_slice(watermark, window) == min(open_starts)


@given(WINDOWS)
def test_a_window_is_made_of_so_many_slices(window):
    """DESIGN 7: at most two slices a slide."""
    start, end = max(((s, e) for s, e in all_windows(window) if 0 <= s < 50), key=lambda w: w[1] - w[0])
    inside = [cut for cut in cuts(window) if start <= cut < end]
    assert slices_per_window(window) == len(inside)
    assert slices_per_window(window) <= 2 * -(-window.size // window.every)


@given(WINDOWS, TIMES)
def test_a_window_is_known_by_its_end(window, time):
    """3: no two windows of a step end together, so an end tells the start."""
    for start, end in by_definition(time, window):
        assert start_of(end, window) == start
        assert start_of(array(end), window).tolist() == [start]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (0, [(0, 2), (0, 4), (0, 6)]),
        (1, [(0, 2), (0, 4), (0, 6)]),
        (2, [(0, 4), (0, 6)]),
        (5, [(0, 6)]),
        (6, [(6, 8), (6, 10), (6, 12)]),
        (-1, [(-6, 0)]),
        (-6, [(-6, -4), (-6, -2), (-6, 0)]),
    ],
    ids=str,
)
def test_cumulative_windows_grow_and_begin_again(time, expected):
    """3: [s, s + k * step) for each k whose end is after the row, negative times included."""
    window = TimeWindow(size=6, every=2, extent=Extent.GROWING)
    first, last = first_end_after(time, window), int(last_ends(array(time), window)[0])
    assert [(start_of(end, window), end) for end in range(first, last + 1, 2)] == expected


def ends_of(live: np.ndarray, after: int | None, to: int | None, window: TimeWindow) -> list[int]:
    return [end for ends in due_ends(live, after, to, window) for end in ends.tolist()]


@given(WINDOWS, st.lists(TIMES), st.none() | TIMES, st.none() | TIMES)
def test_due_ends_are_the_ends_of_windows_with_rows(window, times, after, to):
    """2.5 and 3.1: windows with after < end <= to that hold a row, in order; nothing else."""
    live = np.unique(slice_starts(array(*(t for t in times if by_definition(t, window))), window))
    ends = {end for t in live.tolist() for _, end in by_definition(t, window)}
    expected = sorted(e for e in ends if (after is None or e > after) and to is not None and e <= to)
    assert ends_of(live, after, to, window) == expected
    assert next_due_end(live, after, window) == min((e for e in ends if after is None or e > after), default=None)


def test_a_jump_of_a_year_costs_nothing():
    """3: ends without rows are not visited one by one (this would be 31 million steps)."""
    window = Sliding(seconds(2), every=seconds(1)).drop_late()
    year = 365 * 86_400_000_000
    live = array(0, year)
    assert ends_of(live, 0, 2 * year, window) == [1_000_000, 2_000_000, year + 1_000_000, year + 2_000_000]


def test_the_end_of_time_closes_everything_and_overflows_nothing():
    """2.1: a bounded source that ends moves to the end of time and all windows close."""
    window = Sliding(seconds(3), every=seconds(1)).drop_late()
    live = array(0)
    assert ends_of(live, None, END_OF_TIME, window) == [1_000_000, 2_000_000, 3_000_000]
    assert ends_of(live, END_OF_TIME, END_OF_TIME, window) == []
    assert floor_slice(END_OF_TIME, window) == END_OF_TIME - 2_775_807
    assert floor_slice(None, window) == floor_slice(BEGINNING_OF_TIME, window) == BEGINNING_OF_TIME


def test_a_window_wider_than_time_is_refused():
    """Bounds are 64-bit integers, so a window of 100,000 years is refused when the step is made."""
    with pytest.raises(JobError, match="wider than time"):
        check_window(TimeWindow(size=2**62, every=1))
