"""Event time advances as SEMANTICS 2.1 to 2.4 say: pure functions over what batches read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log.entries import END_OF_TIME, PartitionProgress
from penstock.runtime.driver.watermarks import (
    behind_by,
    idle_due,
    progressed,
    source_watermark,
    step_watermark,
)

PLAIN = {"max_out_of_order": 5}


def seen(highest: int | None, *, idle: bool = False, at: int | None = 0) -> PartitionProgress:
    return PartitionProgress(highest=highest, seen_at=at, idle=idle)


def test_a_source_is_as_far_as_its_slowest_partition_less_the_bound() -> None:
    """SEMANTICS 2.1: the minimum over the partitions that are not idle, minus max_out_of_order."""
    assert source_watermark({"0": seen(100), "1": seen(70)}, **PLAIN) == (65, True)
    assert source_watermark({"0": seen(100), "1": seen(70, idle=True)}, **PLAIN) == (95, True)


def test_a_partition_never_read_holds_the_source_at_the_beginning_of_time() -> None:
    """SEMANTICS 2.1: until idle_after."""
    assert source_watermark({"0": seen(100), "1": seen(None)}, **PLAIN) == (None, True)
    assert source_watermark({}, **PLAIN) == (None, True)


def test_idle_and_ended_sources_do_not_count() -> None:
    """SEMANTICS 2.1: a bounded source read to its end stops counting, or moves to the end of time."""
    assert source_watermark({"0": seen(100, idle=True)}, **PLAIN) == (None, False)
    assert source_watermark({"0": seen(100)}, **PLAIN, ended=True) == (None, False)
    assert source_watermark({"0": seen(100)}, **PLAIN, closes_at_end=True, ended=True) == (END_OF_TIME, True)


def test_what_a_source_says_stands_for_its_rows() -> None:
    """API, test kit: watermark= makes memory sources report that watermark."""
    assert source_watermark({"0": seen(100)}, **PLAIN, said=42) == (42, True)


@given(
    before=st.none() | st.integers(-100, 100),
    sources=st.lists(st.tuples(st.none() | st.integers(-100, 100), st.booleans()), max_size=4),
)
@pytest.mark.fault("F45")
def test_a_step_never_goes_back(before: int | None, sources: list[tuple[int | None, bool]]) -> None:
    """SEMANTICS 2.1: the minimum over its counting sources; it stays where all are idle, and never goes back."""
    after = step_watermark(before, sources)
    counting = [mark for mark, counts in sources if counts]
    if before is not None:
        assert after is not None
        assert after >= before
    if not counting or None in counting:
        assert after == before
    else:
        assert after == max([m for m in (before,) if m is not None] + [min(m for m in counting if m is not None)])


def test_a_partition_becomes_idle_by_batch_time() -> None:
    """SEMANTICS 2.4: with nothing new for idle_after of batch time; new rows wake it."""
    first = progressed({}, ["0", "1"], {"0": 7}, {"0": 1}, time=10, idle_after=5)
    assert first == {
        "0": PartitionProgress(highest=7, seen_at=10, idle=False),
        "1": PartitionProgress(highest=None, seen_at=10, idle=False),
    }
    assert idle_due(first, 5) == 15
    later = progressed(first, [], {}, {}, time=15, idle_after=5)
    assert [p.idle for p in later.values()] == [True, True]
    assert idle_due(later, 5) is None
    awake = progressed(later, ["1"], {"1": 3}, {"1": 2}, time=16, idle_after=5)
    assert awake["1"] == PartitionProgress(highest=3, seen_at=16, idle=False)
    assert progressed(first, [], {}, {}, time=99, idle_after=None)["0"].idle is False


def test_a_partition_that_is_held_back_is_not_idle() -> None:
    """SEMANTICS 2.4: one that is merely held back by limits keeps holding the watermark; others do not wait for it."""
    first = progressed({}, ["0", "1"], {"0": 7, "1": 7}, {"0": 1, "1": 1}, time=10, idle_after=5)
    limited = progressed(first, [], {}, {}, time=50, idle_after=5, held_back={"0"})
    assert {name: p.idle for name, p in limited.items()} == {"0": False, "1": True}
    assert progressed(limited, [], {}, {}, time=54, idle_after=5)["0"].idle is False


def test_time_in_which_nobody_could_read_makes_nothing_idle() -> None:
    """SEMANTICS 2.4: at a start the count begins anew; what was idle before is, until it brings a row."""
    first = progressed({}, ["0", "1"], {"0": 7}, {"0": 1}, time=10, idle_after=5)
    woken = progressed(first, ["1"], {"1": 3}, {"1": 1}, time=3610, idle_after=5, since=3610)
    assert {name: p.idle for name, p in woken.items()} == {"0": False, "1": False}
    assert idle_due(woken, 5, since=3610) == 3615
    assert progressed(woken, [], {}, {}, time=3615, idle_after=5, since=3610)["0"].idle is True
    idle = progressed(first, [], {}, {}, time=15, idle_after=5)
    assert progressed(idle, [], {}, {}, time=3610, idle_after=5, since=3610)["0"].idle is True


def test_a_partition_that_its_source_no_longer_has_stops_counting_at_once() -> None:
    """SEMANTICS 2.4: also without idle_after; one that is there again holds the watermark from then on."""
    first = progressed({}, ["0", "1"], {"0": 7, "1": 100}, {"0": 1, "1": 1}, time=10, idle_after=None)
    left = progressed(first, [], {}, {}, time=11, idle_after=None, gone={"0"})
    assert left["0"] == PartitionProgress(highest=7, seen_at=10, idle=False, gone=True)
    assert source_watermark(left, **PLAIN) == (95, True)
    none = progressed(first, [], {}, {}, time=11, idle_after=None, gone={"0", "1"})
    assert source_watermark(none, **PLAIN) == (None, False)
    back = progressed(left, [], {}, {}, time=99, idle_after=5)
    assert (back["0"].gone, back["0"].idle, back["1"].idle) == (False, False, True)


def test_the_highest_time_of_a_partition_never_falls() -> None:
    """SEMANTICS 2.1: highest event time seen."""
    first = progressed({}, ["0"], {"0": 7}, {"0": 1}, time=10, idle_after=None)
    assert progressed(first, ["0"], {"0": 3}, {"0": 1}, time=11, idle_after=None)["0"].highest == 7


@pytest.mark.parametrize(
    ("mark", "behind"),
    [(None, None), (100, 93), (END_OF_TIME, END_OF_TIME), (-(2**63) + 3, -(2**63))],
    ids=["none yet", "a time", "the end of time", "the beginning"],
)
def test_steps_behind_a_lag_have_a_watermark_that_is_behind(mark: int | None, behind: int | None) -> None:
    """SEMANTICS 2.1: so that no window that waited for its lag is late for them."""
    assert behind_by((mark, True), 7) == (behind, True)
