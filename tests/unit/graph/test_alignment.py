"""SEMANTICS 2.8: how far a source may be ahead of others is said where it is named."""

from __future__ import annotations

import pytest

from penstock import Job, align, minutes, seconds
from penstock.errors import JobError
from penstock.sinks import MemorySink
from penstock.sources import MemorySource


def test_only_a_source_with_event_time_can_be_aligned() -> None:
    """Bad input: refused when the source is named."""
    job = Job("aligned", partitions=1)
    with pytest.raises(JobError, match="align to bound"):
        job.source("a", MemorySource("t timestamp"), align=align(max_drift=minutes(1)))
    with pytest.raises(JobError, match=r"write align\(max_drift="):
        job.source("b", MemorySource("t timestamp"), event_time="t", max_out_of_order=seconds(0), align=minutes(1))
    with pytest.raises(JobError, match="max_drift="):
        align(max_drift=5)
    rows = job.source(
        "c", MemorySource("t timestamp"), event_time="t", max_out_of_order=seconds(0), align=align(max_drift=minutes(1))
    )
    rows.write("out", MemorySink())
    assert job.graph().sources[0].align == 60_000_000
