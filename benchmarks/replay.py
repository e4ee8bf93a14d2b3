"""Run a whole replay, 50 batches of a million rows, beside one Spark batch job over the same files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.beside_spark import KEYS, scratch
from benchmarks.data import SCHEMA, Input
from benchmarks.engine_side import EngineSide
from benchmarks.jobs import query, tumbling_job
from benchmarks.report import Claim, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_p10"]

BATCHES = 50
COLUMNS = ("side", "seconds", "rows a second")


def run_p10(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P10: keyed windows of 10 s over the whole input, into Delta; a batch has the rows of 10 s; quick runs 10 of them.

    The session is warm: both sides run two batches before. Penstock's time has its start and the end of its log.
    """
    batches = BATCHES // 5 if quick else BATCHES
    given = Input(rows=1_000_000, keys=KEYS, step=10_000_000)
    given.prepare(batches)
    with report("P10 whole replay") as results:
        for n in (2, batches):
            ours, theirs = _replayed(spark, given, n), _spark_batch(spark, given, n)
        rows = batches * given.rows
        shown = [("Penstock", ours, rows / ours), ("one Spark batch job", theirs, rows / theirs)]
        results.table(f"{batches} batches of {given.rows:,} rows, {KEYS:,} keys", COLUMNS, shown)
        results.claim(Claim("P10, times one Spark batch job", ours / theirs, 1.5, "x", at_most=True))
        return results.claims


def _replayed(spark: SparkSession, given: Input, batches: int) -> float:
    with scratch() as root:
        began = time.perf_counter()
        engine = EngineSide(spark, given, tumbling_job("d", root / "table"), root / "checkpoints")
        try:
            engine.batches(batches)
        finally:
            engine.close()
        return time.perf_counter() - began


def _spark_batch(spark: SparkSession, given: Input, batches: int) -> float:
    with scratch() as root:
        began = time.perf_counter()
        paths = [str(path) for batch in range(batches) for path in given.files(batch)]
        made = query("d", "10 seconds")(spark.read.schema(SCHEMA).parquet(*paths))
        made.write.format("delta").save(str((root / "table").resolve()))
        return time.perf_counter() - began
