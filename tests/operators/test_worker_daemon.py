"""What Spark's Python workers carry along: every collection of garbage, one a task, looks through it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa

from penstock import Job
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness

MANY = 5_000
"""Objects; a worker that freezes nothing has 25,000 to look through, or 75,000 with those of its daemon."""


def counted(frame):
    """Replace `n` by how many objects a collection in this worker looks through."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            at = batch.schema.get_field_index("n")
            yield batch.set_column(at, "n", pa.array([len(gc.get_objects())] * batch.num_rows, pa.int64()))

    return frame.mapInArrow(count, frame.schema)


def test_a_worker_looks_through_little_after_its_first_task(tmp_path):
    """Modules, and all that the first task has left for good, are frozen (a third of a small batch, otherwise)."""
    job = Job("collects", partitions=1)
    job.source("rows", MemorySource("n long")).transform("count", counted).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        seen = [h.batch({"rows": [{"n": 0}]})["out"][0]["n"] for _ in range(8)]
    assert max(seen[4:]) < MANY, seen
