"""Time batches while a data checkpoint is made beside them, and while none is: no commit may wait for one."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch
from benchmarks.data import Input
from benchmarks.engine_side import EngineSide
from benchmarks.jobs import keyed_job
from benchmarks.report import Claim, report
from penstock import EveryBatches
from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy, HelperProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_data_checkpoints"]

TOUCHED = 100_000
MILLION = 1_000_000
EVERY = 60


def run_data_checkpoints(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """100,000 keys touched a batch, as fast as possible on all cores, with a data checkpoint every 60 batches."""
    keys = MILLION if quick else 5 * MILLION
    given = Input(rows=TOUCHED, keys=keys, step=MILLION)
    warm, timed = keys // TOUCHED + 10, 4 * EVERY
    given.prepare(warm + timed)
    policy = DataCheckpointPolicy(schedule=EveryBatches(EVERY), make=HelperProcess)
    with report("data checkpoints") as results, scratch() as root:
        engine = EngineSide(spark, given, keyed_job(root / "table"), root / "checkpoints", data=policy)
        data = engine.run.driver.data
        engine.batches(warm)
        beside: list[float] = []
        alone: list[float] = []
        standing: list[float] = []
        for _ in range(timed):
            before, standing_on = data.behind is not None, bool(data.bases)
            (batch,) = engine.batches(1)
            after = data.behind is not None
            if standing_on:
                standing.append(batch.whole)
            elif before and after:
                beside.append(batch.whole)
            elif not (before or after):
                alone.append(batch.whole)
        newest = data.said()["last"]
        engine.close()
        medians = {
            "none made": statistics.median(alone),
            "one made beside it": statistics.median(beside),
            "standing on it": statistics.median(standing) if standing else float("nan"),
        }
        counts = {"none made": len(alone), "one made beside it": len(beside), "standing on it": len(standing)}
        results.table(
            f"{keys:,} keys",
            ("batches with", "number", "median, ms"),
            [(n, counts[n], round(m)) for n, m in medians.items()],
        )
        results.note(f"the newest is of batch {newest['batch'] if newest else 'none'}")
        ratio = medians["one made beside it"] / medians["none made"]
        results.claim(Claim("a batch beside a data checkpoint, times one without", ratio, 1.1, "x", at_most=True))
    return results.claims
