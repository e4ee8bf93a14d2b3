"""SEMANTICS 3.2: a window says when it is emitted early, and the graph says it to people."""

from __future__ import annotations

import pytest

from penstock import Job, agg, count, seconds
from penstock.errors import DuplicateName, JobError
from penstock.graph.policies import Accumulation
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Cumulative, Sliding, Tumbling


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: Tumbling(seconds(1)).emit_on(5), "emit_on takes a number of rows"),
        (lambda: Tumbling(seconds(1)).emit_every(5), "emit_every is 5, which has no unit"),
        (lambda: Tumbling(seconds(1)).emit_every(seconds(0)), "too short"),
        (lambda: Tumbling(seconds(1)).emit_on(count(1)).emit_on(count(2)), "one emit_on"),
        (lambda: Tumbling(seconds(1)).emit_every(seconds(1)).emit_every(seconds(2)), "one emit_every"),
    ],
    ids=["rows without a unit", "time without a unit", "no time", "twice by rows", "twice by time"],
)
def test_early_panes_that_make_no_sense_are_refused(build, problem: str) -> None:
    """Bad input: refused when the window is built, with what is wrong."""
    with pytest.raises(JobError, match=problem):
        build()


def step_of(spec):
    """Return the step of a window in the graph of a job."""
    job = Job("early", partitions=1)
    rows = job.source("rows", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(5))
    rows.key_by("k").window("w", spec).aggregate(n=agg.count()).write("out", MemorySink())
    (step,) = job.graph().steps
    return step


@pytest.mark.parametrize(
    "window",
    [Tumbling(seconds(10)), Sliding(seconds(10), every=seconds(5)), Cumulative(seconds(10), step=seconds(5))],
    ids=["tumbling", "sliding", "cumulative"],
)
def test_each_time_window_has_early_panes(window) -> None:
    """API: both may be given, in any order with the other settings."""
    step = step_of(window.emit_every(seconds(5)).drop_late().emit_on(count(1_000)).discarding())
    assert step.spec.revises is Accumulation.DISCARDING
    assert "early panes every 5 s and after 1,000 new rows of the new rows, late rows dropped" in step.spec.words(
        step, ""
    )
    assert step.spec.settings() == {
        "late data": "dropped",
        "lateness rule": "window",
        "panes": "discarding",
        "early panes": "every 5 s and after 1,000 new rows",
    }


def test_panes_that_accumulate_say_so() -> None:
    """API: accumulating is what a window does unless it says otherwise."""
    step = step_of(Tumbling(seconds(10)).drop_late().emit_on(count(1)))
    assert "early panes after 1 new rows of all rows so far" in step.spec.words(step, "")


def test_the_columns_of_panes_are_taken() -> None:
    """API: `_pane` and `_revision` follow the aggregates."""
    job = Job("taken", partitions=1)
    rows = job.source("rows", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(5))
    windows = rows.key_by("k").window("w", Tumbling(seconds(1)).drop_late().emit_on(count(1)))
    with pytest.raises(DuplicateName, match="_revision"):
        windows.aggregate(_revision=agg.count())
