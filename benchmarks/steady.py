"""Run 300 batches and show what must stay flat: batch time, plan, files, memory; and what compaction rewrites (P9)."""

from __future__ import annotations

import gc
import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch
from benchmarks.data import Input
from benchmarks.engine_side import BatchTime, EngineSide
from benchmarks.jobs import sliding_job
from benchmarks.report import Claim, report, thirds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_steady"]

COLUMNS = ("batches", "plan, characters", "files beside the log", "slots of the log", "heap, MiB", "driver, MiB")
BATCHES, EVERY = 300, 50
MIB = 2**20


def run_steady(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Run a sliding window of 60 s by 1 s over 10,000 keys, 10,000 rows a batch, 300 batches long."""
    given = Input(rows=10_000, keys=10_000, step=1_000_000)
    warm = 20 if quick else 100
    given.prepare(warm + BATCHES)
    with report("300 batches") as found, scratch() as root:
        side = EngineSide(spark, given, sliding_job("v", root / "table"), root / "checkpoints")
        side.batches(warm)
        seen: list[tuple[int, int, int, int, float, float]] = []
        times: list[BatchTime] = []
        for _ in range(0, BATCHES, EVERY):
            times += side.batches(EVERY)
            slots, files = _files(side)
            seen.append((len(times), _plan_size(side), files, slots, _heap_mib(spark), _resident_mib()))
        side.close()
        found.table("after so many batches", COLUMNS, seen)
        found.note("the log keeps every slot after the newest multiple of 4,096, two a batch, and then begins anew")
        first, last, slope = thirds([t.whole for t in times])
        found.note(f"batch time: first third {first:.1f} ms, last third {last:.1f} ms, {slope:+.1f} ms per 100 batches")
        ratios = [
            t.commit.written["rewritten"] / (4 * t.commit.written["segments"] + MIB)
            for t in times
            if t.commit.written.get("segments")
        ]
        found.note(f"compaction: median {statistics.median(ratios):.2f} of its budget of 4x written + 1 MiB")
        found.claim(
            Claim("batch time, last third by first third", last / first, 1.15, at_most=True),
            Claim("plan size, last by first", seen[-1][1] / seen[0][1], 1.0, at_most=True),
            Claim("files beside the log, last by first", seen[-1][2] / seen[0][2], 1.25, at_most=True),
            Claim("heap, last by first", seen[-1][4] / seen[0][4], 1.25, at_most=True),
            Claim("memory of the driver's Python, last by first", seen[-1][5] / seen[0][5], 1.25, at_most=True),
            Claim("compaction, the most of 4x bytes written + 1 MiB", max(ratios), 1.0, at_most=True),
        )
    return found.claims


def _files(side: EngineSide) -> tuple[int, int]:
    """Return how many slots the log has, and how many other files the checkpoint."""
    slots = sum(1 for _ in (side.run.folder / "log").iterdir())
    return slots, sum(1 for path in side.run.folder.rglob("*") if path.is_file()) - slots


def _plan_size(side: EngineSide) -> int:
    """Return the characters of the plan as Spark prints it, numbers as one: they grow by a digit now and then."""
    shown = side.run.engine.built.frame.select("*")._jdf.queryExecution().toString()  # noqa: SLF001 - no public way
    return len(re.sub(r"\d+", "0", shown))


def _resident_mib() -> float:
    """Return what the driver's Python process has in memory."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(re.findall(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)[0]) / 1024


def _heap_mib(spark: SparkSession) -> float:
    """Return what the driver's heap holds after a collection."""
    gc.collect()
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr] # noqa: SLF001
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / MIB
