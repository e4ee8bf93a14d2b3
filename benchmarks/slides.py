"""Run P14 of DESIGN 12: the worst batch of a sliding window beside the median, over more than two window lengths."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.beside_spark import KEYS, scratch
from benchmarks.data import Input
from benchmarks.duel import percentile
from benchmarks.engine_side import EngineSide
from benchmarks.jobs import sliding_job
from benchmarks.report import Claim, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_p14", "run_slide"]

SLIDES = 60
"""Of a window of 60 s by 1 s; a batch closes one."""


def run_p14(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P14: sliding 60 s / 1 s, floating sums of 120,000 keys, each in every second; quick has 30,000 keys."""
    keys = 30_000 if quick else 120_000
    given = Input(rows=keys, keys=keys, step=1_000_000)
    warm, timed = SLIDES + 10, 2 * SLIDES + 5
    given.prepare(warm + timed)
    with report("P14 worst slide") as results, scratch() as root:
        side = EngineSide(spark, given, sliding_job("d", root / "table"), root / "checkpoints")
        side.batches(warm)
        batches = side.batches(timed)
        side.close()
        times = [batch.whole for batch in batches]
        written = [batch.commit.written["segments"] / 2**20 for batch in batches]
        rows = [
            (what, statistics.median(all_), percentile(all_, 0.9), max(all_))
            for what, all_ in (("batch, ms", times), ("state written, MiB", written))
        ]
        results.table(f"{keys:,} keys, {timed} slides", ("", "median", "p90", "worst"), rows)
        for what, median, _, worst in rows:
            results.claim(Claim(f"P14, worst {what}, times the median", worst / median, 3, "x", at_most=True))
    return results.claims


def run_slide(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Sliding 60 s / 1 s beside 60 s / 30 s: 100,000 rows a batch of one second, 10,000 keys, sums of long."""
    given = Input(rows=100_000, keys=KEYS, step=1_000_000)
    warm, batches = (70, 31) if quick else (130, 121)
    given.prepare(warm + batches)
    with report("slides") as results:
        medians, rows = {}, []
        for every in (1, 30):
            with scratch() as root:
                engine = EngineSide(spark, given, sliding_job("v", root / "table", every=every), root / "checkpoints")
                try:
                    engine.batches(warm)
                    times = [batch.whole for batch in engine.batches(batches)]
                finally:
                    engine.close()
            medians[every] = statistics.median(times)
            rows.append((f"every {every} s", len(times), medians[every], statistics.fmean(times), max(times)))
        columns = ("slide", "batches", "median ms", "mean ms", "worst ms")
        results.table("sliding 60 s, 100,000 rows a batch", columns, rows)
        ratio = medians[1] / medians[30]
        results.claim(Claim("sliding every 1 s, times every 30 s", ratio, 1.5, "x", at_most=True))
        return results.claims
