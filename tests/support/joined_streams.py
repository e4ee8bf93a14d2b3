"""Streams that a join may be given as an input."""

from __future__ import annotations

from penstock import Job, agg, seconds
from penstock.graph.job import Stream
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Tumbling


def source(job: Job, name: str, schema: str) -> Stream:
    """Return a source with event time in its last column."""
    return job.source(name, MemorySource(schema), event_time=schema.split()[-2], max_out_of_order=seconds(0))


def untimed(job: Job, schema: str) -> Stream:
    """Return the output of a step that does not say the event time of its rows."""
    made = source(job, "c", schema).key_by("id")
    return made.map_with_state_arrow("step", lambda *_: None, state="v long", output="id string", unbounded=True)


def late(job: Job, schema: str) -> Stream:
    """Return a side stream of late rows."""
    spec = Tumbling(seconds(1)).late_to("late")
    windows = source(job, "c", schema).key_by("id").window("w", spec)
    windows.aggregate(n=agg.count()).write("windows", MemorySink())
    return job.late("late")
