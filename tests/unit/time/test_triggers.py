"""Batch times are as SEMANTICS 1.1, 1.3 and 1.4 say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.driver.next_batch import TickClock
from penstock.time.clock import ManualClock
from penstock.time.triggers import AsFastAsPossible, FixedInterval, Tick, multiple_from


def test_the_first_batch_comes_one_interval_after_zero() -> None:
    """SEMANTICS 1.1: the zero time is the start floored to the interval; the first batch's time is zero + interval."""
    trigger = FixedInterval(10)
    assert trigger.zero(37) == 30
    assert trigger.next(30, None, 37) == Tick(40, wait=3)
    assert FixedInterval(10, start=5).zero(37) == 5


@given(st.integers(-50, 50), st.integers(1, 20), st.integers(-20, 20))
def test_a_multiple_is_the_first_that_is_not_before(time: int, every: int, zero: int) -> None:
    """SEMANTICS 3.2: counted from the zero time, in both directions."""
    multiple = multiple_from(time, every, zero)
    assert (multiple - zero) % every == 0
    assert 0 <= multiple - time < every


def test_missed_ticks_are_merged_into_the_newest() -> None:
    """SEMANTICS 1.3: merged into one, not queued, and counted."""
    assert FixedInterval(10).next(0, 20, 57) == Tick(50, merged=2)
    assert FixedInterval(10).next(0, 20, 30) == Tick(30)


@pytest.mark.fault("F45")
@given(st.integers(1, 50), st.lists(st.integers(-200, 500), min_size=1, max_size=30))
def test_batch_times_strictly_increase_whatever_the_wall_clock_does(interval: int, clock: list[int]) -> None:
    """SEMANTICS 1.1: strictly increasing multiples of the interval; a clock set back (F45) changes nothing."""
    trigger, last = FixedInterval(interval), None
    zero = trigger.zero(clock[0])
    for now in clock:
        tick = trigger.next(zero, last, now)
        assert (tick.time - zero) % interval == 0
        assert tick.time > (zero if last is None else last)
        assert tick.wait == max(0, tick.time - now)
        last = tick.time


@given(st.lists(st.integers(-200, 500), min_size=1, max_size=30))
def test_as_fast_as_possible_uses_wall_time_strictly_increasing(clock: list[int]) -> None:
    """SEMANTICS 1.4."""
    trigger, last = AsFastAsPossible(), None
    for now in clock:
        tick = trigger.next(0, last, now)
        assert tick.time >= now
        assert last is None or tick.time > last
        last = tick.time


def test_a_clock_that_is_set_right_in_part_moves_no_batch_time_on() -> None:
    """F76: a clock that was a day ahead, then a day back, then an hour behind: time goes on from the last batch."""
    hour, minute = 3_600_000_000, 60_000_000
    ticks, trigger, last = TickClock(5 * minute), FixedInterval(1_000_000), 100 * hour
    assert ticks.now(ManualClock(last - 24 * hour), trigger, last) == last
    assert ticks.now(ManualClock(last - 24 * hour + minute), trigger, last) == last + minute
    assert ticks.now(ManualClock(last - hour), trigger, last) == last
    assert ticks.now(ManualClock(last - hour + minute), trigger, last) == last + minute
    assert ticks.now(ManualClock(last + minute), trigger, last) == last + minute
