"""A listener is refused when it would hear nothing, and delays are differences of times."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock import BatchInfo, Job
from penstock.errors import JobError
from penstock.sinks import MemorySink
from penstock.sources import MemorySource

T = datetime(2026, 11, 25, tzinfo=UTC)


class Hears:
    """A listener of one event."""

    def on_batch_completed(self, info):
        """Hear it."""


def test_a_job_has_the_listeners_that_its_code_names():
    """In their order."""
    job = Job("heard")
    first, second = Hears(), Hears()
    job.listen(first)
    job.listen(second)
    job.source("s", MemorySource("x int")).write("out", MemorySink())
    assert job.graph().listeners == (first, second)


@pytest.mark.parametrize(
    ("listener", "problem"),
    [(Hears, "the class Hears itself"), (object(), "on_batch_completed"), (print, "on_batch_completed")],
)
def test_what_would_hear_nothing_is_refused(listener, problem):
    """At the line of the job."""
    with pytest.raises(JobError, match=problem) as refused:
        Job("heard").listen(listener)
    assert refused.value.where.startswith(__file__)


def test_delays_are_known_as_far_as_the_batch_has_come():
    """Scheduling until it is computed, processing until it is published."""
    info = BatchInfo(batch=1, time=T, submitted=T)
    assert (info.scheduling_delay, info.processing_delay, info.total_delay) == (None, None, None)
    info = BatchInfo(batch=1, time=T, submitted=T, started=T + timedelta(seconds=2))
    assert (info.scheduling_delay, info.processing_delay, info.total_delay) == (2.0, None, None)
    info = BatchInfo(batch=1, time=T, submitted=T, started=T + timedelta(seconds=2), completed=T + timedelta(seconds=5))
    assert (info.scheduling_delay, info.processing_delay, info.total_delay) == (2.0, 3.0, 5.0)
