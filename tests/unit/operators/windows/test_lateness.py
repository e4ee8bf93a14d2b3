"""SEMANTICS 2.3, 2.5, 2.10: which rows are late for their windows, and which lie in none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_samples import WINDOWS, array, by_definition

from penstock import seconds
from penstock.graph.policies import LatenessRule
from penstock.operators.windows.lateness import judge
from penstock.operators.windows.slices import BEGINNING_OF_TIME, END_OF_TIME, FARTHEST, slice_starts
from penstock.windows import Sliding, Tumbling


@given(WINDOWS, st.lists(st.integers(-30, 30)), st.none() | st.integers(-30, 70))
def test_rows_are_judged_by_the_windows_that_are_forgotten(window, times, watermark):
    """2.3, 2.5, 2.10: late when all windows are forgotten, partly late when some are; WATERMARK is stricter."""
    judged = judge(array(*times), window, watermark)
    forgotten = -(2**63) if watermark is None else watermark
    for i, time in enumerate(times):
        ends = [end for _, end in by_definition(time, window)]
        open_ends = [end for end in ends if end > forgotten]
        if window.rule is LatenessRule.WATERMARK and time < forgotten:
            expected = "late"
        elif not ends:
            expected = "nowhere"
        elif not open_ends:
            expected = "late"
        else:
            expected = "partly" if len(open_ends) < len(ends) else "counted"
        assert bool(judged.late[i]) == (expected == "late")
        assert bool(judged.no_window[i]) == (expected == "nowhere")
        assert bool(judged.partly_late[i]) == (expected == "partly")
        assert bool(judged.counted[i]) == (expected in ("partly", "counted"))


@pytest.mark.fault("F43")
def test_times_whose_windows_cannot_be_written_are_in_none():
    """2.10: a time near the ends of 64 bits is counted as in no window, and is nobody else's."""
    window = Tumbling(seconds(7)).drop_late()
    times = array(BEGINNING_OF_TIME, -FARTHEST - 1, -FARTHEST, 0, FARTHEST, FARTHEST + 1, END_OF_TIME)
    judged = judge(times, window, 5)
    assert judged.no_window.tolist() == [True, True, False, False, False, True, True]
    assert judged.late.tolist() == [False, False, True, False, False, False, False]
    starts = slice_starts(times[judged.counted], window)
    assert (starts <= times[judged.counted]).all()
    assert (starts > times[judged.counted] - window.size).all()


def test_no_rows_are_judged_without_complaint():
    """An empty batch is a batch (1.4)."""
    assert judge(array(), Tumbling(seconds(1)).drop_late(), 0).counted.tolist() == []


def test_the_end_of_time_makes_every_row_late_and_its_beginning_none():
    """2.1: a bounded source that ends moves the watermark to the end of time."""
    window = Sliding(seconds(3), every=seconds(1)).drop_late()
    assert judge(array(0, 10**15), window, END_OF_TIME).late.all()
    assert not judge(array(0, 10**15), window, BEGINNING_OF_TIME).late.any()
