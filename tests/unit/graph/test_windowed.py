"""`graph/windowed.py`: windows of which nothing is computed yet."""

from __future__ import annotations

import pytest

from penstock import Job, agg, seconds
from penstock.errors import JobError
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Tumbling


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
