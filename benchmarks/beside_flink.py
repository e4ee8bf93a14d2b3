"""Run sliding windows beside Flink SQL: HOP, state on the heap, two slots, mini-batches."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import KEYS, scratch
from benchmarks.data import Input
from benchmarks.engine_side import EngineSide
from benchmarks.jobs import sliding_job
from benchmarks.peer_environment import peer_environment, plain_variables
from benchmarks.report import Claim, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FLINK", "run_p11"]

FLINK = "2.2.1"
_QUERY = Path(__file__).with_name("flink_query.py")
_PATIENCE = 1_800.0
_SHORT, _LONG = 70, 90
"""Seconds of event time of two queries. What the longer takes more is without start and end of a query.

Both are longer than a window: Flink merges the slices of a window as it fires, and only then has each all 60.
"""
_TURNS = 3
"""How often either side is timed; its figure is the median. One difference of two queries may be off by half."""
_WARM = 7 * _SHORT
"""Seconds of event time that either JVM computes before those that count: Flink's in six queries and a seventh.

Times are level by then. Ours fall for some 400 batches, while Java's compiler takes a fifth of both cores.
"""
COLUMNS = ("side", "seconds of event time", "ms for each", "rows a second", "ms by turn")


def run_p11(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P11: sliding 60 s / 1 s, keyed count and sum, 100,000 and 1,000,000 rows in a second of event time.

    Penstock reads files and writes a Delta table, the peer makes its rows and throws its output away.
    """
    with report("P11 beside Flink SQL") as results:
        for rows, goal in ((100_000, 1.5),) if quick else ((100_000, 1.5), (1_000_000, 5.0)):
            peer = _flink_ms(rows)
            ours = _engine_ms(spark, rows, warm=_WARM, batches=_LONG - _SHORT)
            shown = [
                (
                    name,
                    _LONG - _SHORT,
                    ms := statistics.median(turns),
                    rows / ms * 1_000,
                    ", ".join(f"{t:.0f}" for t in turns),
                )
                for name, turns in (("Penstock", ours), (f"Flink SQL {FLINK}", peer))
            ]
            results.table(f"{rows:,} rows in a second of event time, {KEYS:,} keys", COLUMNS, shown)
            ratio = statistics.median(peer) / statistics.median(ours)
            results.claim(Claim(f"P11, {rows:,} rows a second, times Flink SQL", ratio, goal, "x"))
        return results.claims


def _engine_ms(spark: SparkSession, rows: int, *, warm: int, batches: int) -> list[float]:
    """Return by turn the milliseconds of a batch, which has the rows of one second: the mean, as that of the peer."""
    given = Input(rows=rows, keys=KEYS, step=1_000_000)
    given.prepare(warm + batches * _TURNS)
    with scratch() as root:
        job = sliding_job("v", root / "table")
        # The peer does not make the column that its query has no use for, either.
        engine = EngineSide(spark, given, job, root / "checkpoints", columns=("k", "v", "t"))
        try:
            engine.batches(warm)
            return [statistics.fmean(batch.whole for batch in engine.batches(batches)) for _ in range(_TURNS)]
        finally:
            engine.close()


def _flink_ms(rows: int) -> list[float]:
    """Return by turn the milliseconds for a second of event time; queries that do not count warm the JVM up before."""
    python = peer_environment(f"flink-{FLINK}", [f"apache-flink=={FLINK}"])
    warm = [_SHORT] * (_WARM // _SHORT - 1)
    asked = {"rows": rows, "keys": KEYS, "column": "v", "seconds": [*warm, *[_SHORT, _LONG] * _TURNS]}
    ended = subprocess.run(
        [str(python), str(_QUERY), json.dumps(asked)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_PATIENCE,
        env=plain_variables(),
    )
    took = [json.loads(line)["seconds"] for line in ended.stdout.splitlines() if line.startswith("{")]
    short, long = took[len(warm) :: 2], took[len(warm) + 1 :: 2]
    return [(b - a) * 1_000 / (_LONG - _SHORT) for a, b in zip(short, long, strict=True)]
