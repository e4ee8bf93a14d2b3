"""Run an interval join and deduplication beside Structured Streaming: RocksDB with changelog checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import duel_of, scratch, show
from benchmarks.data import Input
from benchmarks.duel import Turns
from benchmarks.folder_source import NumberedFiles
from benchmarks.jobs import Build, discard
from benchmarks.report import Claim, report
from penstock import Job, seconds
from penstock.sinks import Delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run_deduplicate", "run_join"]

ROWS = 100_000
"""Rows of each stream in a batch, which has a second of event time."""
SECOND = "unix_seconds(t) AS second"
"""Among the keys of a pair, so that a row has one match, and not one in each second."""
WITHIN = 10
"""Seconds between the rows of a pair, at most."""
REMEMBERED = 100
"""Seconds for which deduplication remembers a key: ten million rows are held once they have passed."""


def run_join(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Interval join: two streams of 100,000 rows a batch, each row with one match, within 10 s."""
    given = Input(rows=2 * ROWS, keys=2 * ROWS, step=1_000_000)  # each key once in each batch
    turns = _turns(quick=quick, warm=25)
    with report("interval join") as results, scratch() as root:
        sides = duel_of(spark, given, root, _joined(root / "table"), _joined_query, discard, turns)
        show(results, f"two streams of {ROWS:,} rows a batch, matches 1:1", 2 * ROWS, sides)
        results.claim(Claim("interval join, times Structured Streaming", sides.ratio, 3, "x"))
        return results.claims


def run_deduplicate(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Deduplication: 100,000 rows a batch by keys of which none is a duplicate, 10 million held (quick: 2 million)."""
    held = REMEMBERED // 5 if quick else REMEMBERED
    given = Input(rows=ROWS, keys=2**40, step=1_000_000)
    # Both sides are warm when they hold all keys: a peer that took as many batches again would need ten minutes more.
    rounds, counted = (2, 9) if quick else (3, 13)
    turns = Turns(warm_engine=held + 5, warm_peer=held + 2, rounds=rounds, engine=counted, peer=4)
    with report("deduplication") as results, scratch() as root:
        job = _deduplicated(root / "table", held)

        def query(rows: DataFrame) -> DataFrame:
            return rows.withWatermark("t", f"{held} seconds").dropDuplicatesWithinWatermark(["k"])

        sides = duel_of(spark, given, root, job, query, discard, turns)
        show(results, f"{ROWS:,} rows a batch, {held * ROWS:,} keys held", ROWS, sides)
        results.claim(Claim("deduplication, times Structured Streaming", sides.ratio, 3, "x"))
        return results.claims


def _turns(*, quick: bool, warm: int) -> Turns:
    if quick:
        return Turns(warm_engine=warm, warm_peer=4, rounds=2, engine=9, peer=4)
    return Turns(warm_engine=2 * warm, warm_peer=8, rounds=4, engine=21, peer=8)


def _joined(table: Path) -> Build:
    def build(source: NumberedFiles) -> Job:
        job = Job("joined", partitions=2)
        rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0))
        left = rows.filter("k % 2 = 0").select("k div 2 AS id", SECOND, "v")
        right = rows.filter("k % 2 = 1").select("k div 2 AS id", SECOND, "d")
        left.join("pairs", right, on=["id", "second"], within=(seconds(-WITHIN), seconds(WITHIN))).write(
            "out", Delta(table)
        )
        return job

    return build


def _joined_query(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    rows = rows.withWatermark("t", "0 seconds")
    left = rows.where("k % 2 = 0").selectExpr("k div 2 AS id", SECOND, "v", "t AS at")
    right = rows.where("k % 2 = 1").selectExpr("k div 2 AS other", "unix_seconds(t) AS others", "d", "t AS other_at")
    near = f"other_at BETWEEN at - INTERVAL {WITHIN} SECONDS AND at + INTERVAL {WITHIN} SECONDS"
    return left.join(right, F.expr(f"id = other AND second = others AND {near}")).select("id", "second", "v", "d")


def _deduplicated(table: Path, held: int) -> Build:
    def build(source: NumberedFiles) -> Job:
        job = Job("deduplicated", partitions=2)
        rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0))
        rows.deduplicate("first", by=["k"], within=seconds(held)).write("out", Delta(table))
        return job

    return build
