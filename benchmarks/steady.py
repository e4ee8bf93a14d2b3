"""Run 5,000 batches and show what must stay flat: batch time, plan, memory, files; what compaction rewrites (P9)."""

from __future__ import annotations

import gc
import os
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch
from benchmarks.data import Input
from benchmarks.engine_side import BatchTime, EngineSide
from benchmarks.jobs import sliding_job
from benchmarks.report import Claim, Trend, report
from penstock import EveryBatches
from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy, HelperProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_steady", "worker_memory"]

EVERY = 100
"""Batches between two looks, and between two data checkpoints: each stretch has one."""
SHOWN = 10
MIB = 2**20

TIME, PLAN = "batch time, ms", "plan, characters"
PYTHON, WORKERS = "driver's Python, MiB", "workers, MiB"
HEAP, BESIDE, JAVA = "heap, MiB", "Java's memory beside the heap, MiB", "Java's process, MiB"
SLOTS, FILES, LOAD = "slots of the log", "files beside the log", "load average"
JUDGED = (TIME, PLAN, PYTHON, HEAP, BESIDE, WORKERS, FILES)
"""Not the size of Java's process: it takes of its 4 GiB what it likes, and gives back hundreds of MiB or does not."""


def run_steady(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Run a sliding window of 60 s by 1 s over 1,000 keys, 1,000 rows a batch, as fast as it goes.

    With purge, compaction and data checkpoints; with --quick 500 batches.
    """
    given = Input(rows=1_000, keys=1_000, step=1_000_000)
    # Before the first look every version of a data checkpoint that is kept is there, and the logs of their tables are
    # as long as they get.
    warm, batches = (100, 500) if quick else (2_000, 5_000)
    given.prepare(warm + batches)
    policy = DataCheckpointPolicy(schedule=EveryBatches(EVERY), make=HelperProcess)
    with report("5,000 batches") as results, scratch() as root:
        side = EngineSide(spark, given, sliding_job("v", root / "table"), root / "checkpoints", data=policy)
        side.batches(warm)
        seen: list[dict[str, float]] = []
        ratios: list[float] = []
        for _ in range(0, batches, EVERY):
            stretch = side.batches(EVERY)  # not kept: five thousand commits would be the growth that is looked for
            ratios += _rewritten(stretch)
            taken = {TIME: statistics.median(t.whole for t in stretch), PLAN: _plan_size(side)}
            taken[LOAD] = os.getloadavg()[0]
            seen.append(taken | _memory(spark) | _files(side.run.driver.janitor.root.here))
        side.close()
        kinds = list(dict.fromkeys(kind for look in seen for kind in look))
        shown = range(0, len(seen), max(1, len(seen) // SHOWN))
        results.table(
            "after so many batches",
            ("batches", *(str((look + 1) * EVERY) for look in shown)),
            [(kind, *(round(seen[look].get(kind, 0.0), 1) for look in shown)) for kind in kinds],
        )
        trends = {kind: Trend.of([look[kind] for look in seen]) for kind in JUDGED}
        for kind, trend in trends.items():
            results.note(f"{kind}: {trend.level:,.1f}, {trend}")
        results.numbers["looks"] = seen
        results.numbers["trends"] = {kind: str(trend) for kind, trend in trends.items()}
        results.note("the log keeps every slot after the newest multiple of 4,096, two a batch, and then begins anew")
        results.note(f"compaction: median {statistics.median(ratios):.2f} of its budget of 4x written + 1 MiB")
        for kind, trend in trends.items():
            results.claim(Claim(f"{kind}: growth that noise does not explain", trend.surely, 2, "%", at_most=True))
        results.claim(
            Claim("slots of the log, the most", max(look[SLOTS] for look in seen), 4_096 + 300, at_most=True),
            Claim("compaction, the most of 4x bytes written + 1 MiB", max(ratios), 1.0, at_most=True),
        )
    return results.claims


def worker_memory() -> int:
    """Return the anonymous memory of all Python workers below this process, bytes; one daemon forks them."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = _status(folder, "PPid")
            if b"penstock.runtime.spark.worker_daemon" in (folder / "cmdline").read_bytes().split(b"\0"):
                sizes[int(folder.name)] = _status(folder, "RssAnon")
    return sum(size for process, size in sizes.items() if _is_below(process, parents))


def _is_below(process: int, parents: Mapping[int, int]) -> bool:
    while process in parents and process != os.getpid():
        process = parents[process]
    return process == os.getpid()


def _rewritten(batches: Sequence[BatchTime]) -> list[float]:
    """Return what compaction rewrote in each batch, as a share of what it may: 4x the bytes written and 1 MiB."""
    written = [batch.commit.written for batch in batches]
    return [counts["rewritten"] / (4 * counts["segments"] + MIB) for counts in written if counts.get("segments")]


def _memory(spark: SparkSession) -> dict[str, float]:
    """Return what the driver's processes hold, Java after a collection."""
    gc.collect()
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr] # noqa: SLF001
    runtime = java.Runtime.getRuntime()
    runtime.gc()
    return {
        PYTHON: _status(Path("/proc/self"), "VmRSS") / MIB,
        HEAP: float(runtime.totalMemory() - runtime.freeMemory()) / MIB,
        BESIDE: _beside_heap(spark) / MIB,
        JAVA: _status(Path(f"/proc/{java.ProcessHandle.current().pid()}"), "VmRSS") / MIB,
        WORKERS: worker_memory() / MIB,
    }


def _beside_heap(spark: SparkSession) -> int:
    """Return the bytes that Java uses beside its heap: classes, compiled code, buffers of its own and mapped ones."""
    metrics, env = spark.sparkContext._jvm.org.apache.spark.metrics, spark.sparkContext._jsc.sc().env()  # type: ignore[union-attr] # noqa: SLF001
    kinds = (getattr(metrics, f"{name}$") for name in ("JVMOffHeapMemory", "DirectPoolMemory", "MappedPoolMemory"))
    return sum(int(getattr(kind, "MODULE$").getMetricValue(env.memoryManager())) for kind in kinds)


def _status(process: Path, line: str) -> int:
    """Return what a line of a process's status says; sizes in bytes."""
    match = re.search(rf"^{line}:\s+(\d+)( kB)?$", (process / "status").read_text(encoding="utf-8"), re.MULTILINE)
    return int(match[1]) * (1024 if match[2] else 1) if match else 0


def _files(checkpoint: Path) -> dict[str, float]:
    """Return how many files of each kind a checkpoint has."""
    files: Counter[str] = Counter()
    for path in checkpoint.rglob("*"):
        if path.is_file():
            top, *folders = path.relative_to(checkpoint).parts[:-1] or (".",)
            inside = next((name for name in folders if name.startswith("_")), path.suffix or "no suffix")
            files[SLOTS if top == "log" else f"files: {top} {inside}"] += 1
    return {FILES: files.total() - files[SLOTS], **dict(sorted(files.items()))}


def _plan_size(side: EngineSide) -> int:
    """Return the characters of the plan as Spark prints it, numbers as one: they grow by a digit now and then."""
    shown = side.run.engine.built.frame.select("*")._jdf.queryExecution().toString()  # noqa: SLF001 - no public way
    return len(re.sub(r"\d+", "0", shown))
