"""Time batches of a few rows in the Harness: what a test of somebody's job costs once it is warm."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch
from benchmarks.report import Claim, report
from penstock import Job, agg, minutes, seconds
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import Sliding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_harness"]

BATCHES = 30


def run_harness(_spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Run a sliding window in the Harness, five rows a batch; it takes the session that there is by itself."""
    warm = 10 if quick else 30
    job = Job("small", partitions=2)
    rows = job.source(
        "rows", MemorySource("k string, t timestamp, v long"), event_time="t", max_out_of_order=seconds(5)
    )
    windows = rows.key_by("k").window("w", Sliding(minutes(2), every=minutes(1)).drop_late())
    windows.aggregate(n=agg.count(), total=agg.sum("v")).write("out", MemorySink())
    took = []
    with report("the Harness") as results, scratch() as root, Harness(job, root / "checkpoint") as harness:
        for batch in range(warm + BATCHES):
            given = [{"k": f"k{i}", "t": 10 * batch + i, "v": i} for i in range(5)]
            began = time.perf_counter()
            harness.batch({"rows": given}, follow=False)
            took.append((time.perf_counter() - began) * 1_000)
        level = took[warm:]
        results.note(f"a batch of five rows: first {took[0]:.0f} ms, then warm {min(level):.0f} to {max(level):.0f} ms")
        results.claim(Claim("a batch of five rows in the Harness", statistics.median(level), 500, " ms", at_most=True))
    return results.claims
