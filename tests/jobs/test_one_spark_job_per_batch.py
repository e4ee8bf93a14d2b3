"""A batch is one Spark job, and its plan stays as it is (DESIGN 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness_jobs import ORDERS, order

from penstock import Job, agg, seconds
from penstock.quality import OnFail
from penstock.sinks import Delta, MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import Sliding, Tumbling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUITE = {
    "name": "totals",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": 50, "mostly": 0.9}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}, "severity": "warning"},
    ],
}


def flights_like(tables: Path) -> Job:
    """Build a job with everything the demo has: late rows, a gate with quarantine, Delta, and a chained window."""
    job = Job("everything", partitions=2)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    windows = (
        orders.filter("v IS NOT NULL")
        .key_by("user")
        .window("w", Sliding(seconds(10), every=seconds(5)).late_to("late"))
        .aggregate(n=agg.count(), total=agg.sum("v"))
    )
    windows.check("gate", suite=SUITE, on_fail=OnFail.QUARANTINE).write("out", Delta(tables / "out"))
    windows.window("chained", Tumbling(seconds(20)).drop_late()).aggregate(k=agg.count()).write("sums", MemorySink())
    job.late("late").write("late_out", MemorySink())
    job.quarantine("gate").write("bad", MemorySink())
    return job


def test_each_batch_is_exactly_one_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    """DESIGN 4: reading, windows, late rows, gates and staging in one job; publishing in none."""
    jobs = spark.sparkContext._jsc.sc().dagScheduler()
    with Harness(flights_like(tmp_path / "tables"), tmp_path / "checkpoints") as h:
        before = jobs.numTotalJobs()
        for second in (1, 12, 31, 55):
            h.batch({"orders": [order("a", second, 60), order("b", second, 1), order("c", second - 30, 2)]})
        batches = h.commit().batch + 1
        assert batches > 4, "windows were closed by batches without rows"
        assert jobs.numTotalJobs() - before == batches
        shown = h.output()
        assert shown["out"]
        assert shown["bad"]
        assert shown["sums"]
        assert shown["late_out"]
