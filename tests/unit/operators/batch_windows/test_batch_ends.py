"""The ends of windows of batch time (SEMANTICS 1.3, 4.2)."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import micros
from penstock.graph.batch_window import BatchWindow
from penstock.operators.batch_windows.batch_ends import BatchEnds
from penstock.operators.protocol import StepFacts


def facts(time: int, before: int | None, *, zero: int = 0, interval: int | None = None) -> StepFacts:
    """Return the facts of a batch."""
    return StepFacts(batch=0, time=time, watermark=None, zero=zero, before=before, interval=interval)


@pytest.mark.parametrize(
    ("time", "before", "first", "last"),
    [(102, None, 102, 102), (101, None, 102, 100), (109, 103, 104, 108), (104, 102, 104, 104)],
    ids=["first", "none", "merged", "next"],
)
def test_a_batch_fires_each_multiple_since_the_one_before(time: int, before: int | None, first: int, last: int) -> None:
    """1.3: those in (last batch time, this one], counted from zero."""
    ends = BatchEnds(zero=100, slide=2, length=4)
    assert ends.fired(facts(time, before, zero=100)) == (first, last)


def test_without_a_slide_every_tick_is_an_end() -> None:
    """4.1: the slide is the job's interval where none is given."""
    assert BatchEnds.of(BatchWindow(micros(6)), facts(4, 2, interval=2)) == BatchEnds(zero=0, slide=2, length=6)


@settings(max_examples=examples(100))
@given(
    zero=st.integers(-20, 20),
    slide=st.integers(1, 9),
    length=st.integers(1, 9),
    batches=st.sets(st.integers(1, 60)),
    start=st.integers(0, 60),
)
def test_ends_equal_their_definition(zero: int, slide: int, length: int, batches: set[int], start: int) -> None:
    """4.2: windows are (T - length, T] at multiples T of the slide."""
    ends = BatchEnds(zero=zero, slide=slide, length=length)
    times = {zero + time for time in batches}
    all_ends = range(zero + slide, zero + 200, slide)
    end = ends.after(zero + start)
    assert end == next(e for e in all_ends if e > zero + start)
    holding = (e for e in all_ends if e >= end and any(e - length < time <= e for time in times))
    following = ends.next_with(end, lambda time: min((t for t in times if t > time), default=None))
    assert following == next(holding, None)
    for time in times:
        assert ends.holds(time) == any(e - length < time <= e for e in all_ends)
