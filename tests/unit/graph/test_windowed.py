"""`graph/windowed.py`: windows of which nothing is computed yet."""

from __future__ import annotations

import pytest

from penstock import Job, agg, count, seconds
from penstock.errors import DuplicateName, JobError
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.triggers import Every
from penstock.windows import BatchWindow, GlobalWindow, Tumbling, TupleWindow


def rows_of(job: Job):
    """Return a stream with event time."""
    return job.source(
        "rows", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(0)
    ).key_by("k")


def test_windows_that_nobody_uses_are_refused_at_the_line_that_makes_them():
    """The error says what could follow, and names this file."""
    job = Job("j", partitions=1)
    rows_of(job).window("w", Tumbling(seconds(1)).drop_late())
    with pytest.raises(JobError, match=r"computes nothing: add \.aggregate.*test_windowed\.py"):
        job.graph()


def test_a_question_for_a_method_uses_no_windows():
    """`hasattr` computes nothing. The job may write the windows again, with a method that there is."""
    job = Job("j", partitions=1)
    rows = rows_of(job)
    assert not hasattr(rows.window("w", Tumbling(seconds(1)).drop_late()), "count")
    with pytest.raises(JobError, match=r"window 'w' computes nothing"):
        job.graph()
    rows.window("w", Tumbling(seconds(1)).drop_late()).aggregate(n=agg.count()).write("out", MemorySink())
    assert [step.name for step in job.graph().steps] == ["w"]


def test_windows_that_were_refused_are_not_unfinished():
    """The job may go on with others, under the same name."""
    job = Job("j", partitions=1)
    rows = rows_of(job)
    with pytest.raises(JobError, match="does not say what happens to late rows"):
        rows.window("w", Tumbling(seconds(1)))
    rows.window("w", Tumbling(seconds(1)).drop_late()).aggregate(n=agg.count()).write("out", MemorySink())
    assert [step.name for step in job.graph().steps] == ["w"]


@pytest.mark.parametrize("spec", [seconds(1), None, agg.count()], ids=["a duration", "nothing", "an aggregate"])
def test_what_describes_no_windows_is_refused(spec):
    """With an example of what does."""
    with pytest.raises(JobError, match=r"needs a window such as Tumbling"):
        rows_of(Job("j", partitions=1)).window("w", spec)


KINDS = {
    "event time": Tumbling(seconds(1)).drop_late(),
    "batch time": BatchWindow(seconds(2), slide=seconds(1)),
    "rows": TupleWindow(count(3), unbounded=True),
    "global": GlobalWindow().trigger(Every(count(1))),
}


@pytest.mark.parametrize("spec", KINDS.values(), ids=KINDS)
def test_a_column_is_there_once_in_letters_of_either_case(spec):
    """API: columns are keys, bounds and aggregates. The error says what to change, and Spark tells no case apart."""
    windows = rows_of(Job("j", partitions=1, interval=seconds(1))).window("w", spec)
    with pytest.raises(DuplicateName, match=r"'K' already; give the aggregate another name.*test_windowed\.py"):
        windows.aggregate(K=agg.count())
    with pytest.raises(DuplicateName, match="'N' already"):
        windows.aggregate(n=agg.count(), N=agg.max("t"))
    windows.aggregate(n=agg.count(), newest=agg.max("t"))
