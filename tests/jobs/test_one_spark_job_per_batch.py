"""A batch is one Spark job (DESIGN 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness_jobs import flights_like, order

from penstock.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
