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


NOW = {"max_out_of_order": seconds(0)}


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


def test_a_plan_without_a_shuffle_is_made_once(spark: SparkSession, tmp_path: Path) -> None:
    """DESIGN 4, FACTS 5: it computes the rows of each batch, on both ways into Python, from two sources, and of none."""
    job = Job("copies", partitions=2)
    orders, others = (job.source(name, MemorySource(ORDERS), event_time="t", **NOW) for name in ("orders", "others"))
    orders.union(others).write("plain", MemorySink())
    orders.filter("length(user) = 1").write("out", MemorySink())
    with Harness(job, tmp_path / "checkpoints") as h:
        engine = h._running().engine
        for n in range(5):
            several = [("a", n), ("bb", n)][: n % 3]
            shown = h.batch({"orders": [order(user, n, v) for user, v in several], "others": [order("c", n, n)]})
            assert sorted((row["user"], row["v"]) for row in shown["plain"]) == [*several, ("c", n)]
            assert [(row["user"], row["v"]) for row in shown["out"]] == several[:1]
        assert engine._planned(engine.built.frame) is engine._planned(engine.built.frame)
    with Harness(flights_like(tmp_path / "tables"), tmp_path / "others") as h:
        engine = h._running().engine
        assert engine._planned(engine.built.frame) is not engine._planned(engine.built.frame)


def test_the_time_of_spark_does_not_stand_still(spark: SparkSession, tmp_path: Path) -> None:
    """Decision 178: an optimised plan has current_timestamp() as a literal, so its job plans each batch."""
    for name, now in (("function", "current_timestamp()"), ("text", "to_timestamp('Now')")):
        job = Job("stamped", partitions=2)
        rows = job.source("orders", MemorySource(ORDERS), event_time="t", **NOW)
        more = {f"c{number}": "v" for number in range(30)}  # of which Spark's text of a plan shows 25
        rows.with_columns(**more, read_at=now).write("out", MemorySink())
        with Harness(job, tmp_path / name) as h:
            first, second = (h.batch({"orders": [order("a", n, n)]})["out"][0]["read_at"] for n in range(2))
        assert first < second


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
