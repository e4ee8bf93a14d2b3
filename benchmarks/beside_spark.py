"""Run P1 and P6 of DESIGN 12: the same work by Penstock and by Structured Streaming, in turn, in one Java process."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import BENCH, Input
from benchmarks.duel import Duel, Turns, duel, percentile
from benchmarks.engine_side import EngineSide
from benchmarks.jobs import Build, discard, query, session_job, session_query, sliding_job, to_delta, tumbling_job
from benchmarks.parts import COLUMNS as PARTS
from benchmarks.report import Claim, Report, report
from benchmarks.spark_side import SparkSide

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["duel_of", "run_p1", "run_p2", "run_p6", "run_session", "scratch", "show"]

COLUMNS = ("side", "batches", "median ms", "mean ms", "p90 ms", "rows a second")
KEYS = 10_000


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder for checkpoints and tables, gone afterwards; on the disk of the project."""
    BENCH.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="run-", dir=BENCH))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def run_p1(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P1: sliding 60 s / 1 s, keyed count and sum, 100,000 rows a batch; the peer's output is thrown away."""
    given = Input(rows=100_000, keys=KEYS, step=1_000_000)
    turns = (
        Turns(warm_engine=70, warm_peer=3, rounds=2, engine=13, peer=4)
        if quick
        else Turns(warm_engine=130, warm_peer=4, rounds=4, engine=31, peer=6)
    )
    with report("P1 sliding windows") as results:
        for kind, column in (("long", "v"), ("double", "d")):
            with scratch() as root:
                sliding = query(column, "60 seconds", "1 second")
                job = sliding_job(column, root / "table")
                what = f"{kind} sums, 100,000 rows a batch, {KEYS:,} keys"
                sides = duel_of(spark, given, root, job, sliding, discard, turns)
                show(results, what, given.rows, sides)
                results.claim(Claim(f"P1, {kind} sums, times Structured Streaming", sides.ratio, 8, "x"))
    return results.claims


def run_p2(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P2: the same with 1,000,000 rows a batch, sums of double; the peer needs a minute or two for a batch."""
    given = Input(rows=1_000_000, keys=KEYS, step=1_000_000)
    turns = (
        Turns(warm_engine=65, warm_peer=1, rounds=1, engine=13, peer=2)
        if quick
        else Turns(warm_engine=70, warm_peer=2, rounds=2, engine=13, peer=3)
    )
    with report("P2 sliding windows, a million rows a batch") as results, scratch() as root:
        job = sliding_job("d", root / "table")
        sides = duel_of(spark, given, root, job, query("d", "60 seconds", "1 second"), discard, turns)
        show(results, f"double sums, 1,000,000 rows a batch, {KEYS:,} keys", given.rows, sides)
        results.claim(Claim("P2, times Structured Streaming", sides.ratio, 40, "x"))
        return results.claims


def run_p6(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P6: a whole batch into Delta, tumbling keyed windows, 100 and 100,000 rows a batch."""
    turns = (
        Turns(warm_engine=40, warm_peer=8, rounds=2, engine=17, peer=6)
        if quick
        else Turns(warm_engine=200, warm_peer=20, rounds=5, engine=33, peer=13)
    )
    with report("P6 whole batch into Delta") as results:
        for rows in (100, 100_000):
            given = Input(rows=rows, keys=KEYS, step=10_000_000)
            with scratch() as root:
                job = tumbling_job("d", root / "ours")
                sides = duel_of(spark, given, root, job, query("d", "10 seconds"), to_delta(root / "peers"), turns)
                what = f"{rows:,} rows a batch"
                show(results, what, given.rows, sides)
                outside = statistics.median(batch.outside for batch in sides.batches)
                results.claim(
                    Claim(f"P6, {rows:,} rows, times Structured Streaming into Delta", sides.ratio, 3, "x"),
                    Claim(
                        f"P6, {rows:,} rows, outside the call that runs the Spark job", outside, 30, " ms", at_most=True
                    ),
                )
    return results.claims


def run_session(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Sessions of 30 s with a gap of 5 s, keyed count and sum, 100,000 rows and 10,000 keys a batch."""
    given = Input(rows=100_000, keys=KEYS, step=10_000_000)
    turns = (
        Turns(warm_engine=60, warm_peer=8, rounds=2, engine=21, peer=6)
        if quick
        else Turns(warm_engine=130, warm_peer=20, rounds=4, engine=31, peer=8)
    )
    with report("Session windows") as results, scratch() as root:
        sides = duel_of(spark, given, root, session_job(root / "table"), session_query, discard, turns)
        show(results, f"100,000 rows a batch, {KEYS:,} keys of which a third end", given.rows, sides)
        results.claim(Claim("sessions, times Structured Streaming", sides.ratio, 4, "x"))
        return results.claims


def duel_of(
    spark: SparkSession,
    given: Input,
    root: Path,
    job: Build,
    transform: Callable[[DataFrame], DataFrame],
    sink: Callable[[DataStreamWriter], DataStreamWriter],
    turns: Turns,
) -> Duel:
    """Let a job and a query take turns over the same input."""
    given.prepare(turns.batches)
    engine = EngineSide(spark, given, job, root / "checkpoints")
    peer = SparkSide(spark, given, root / "peer", transform=transform, sink=sink)
    try:
        return duel(engine, peer, turns)
    finally:
        peer.close()
        engine.close()


def show(results: Report, what: str, rows_a_batch: int, sides: Duel) -> None:
    """Print both sides, the engine's batch taken apart, and the ratios."""
    rows = []
    for name, turns in (("Penstock", sides.engine), ("Structured Streaming", sides.peer)):
        times = [time for turn in turns for time in turn]
        median = statistics.median(times)
        rows.append(
            (name, len(times), median, statistics.fmean(times), percentile(times, 0.9), rows_a_batch / median * 1000)
        )
    results.table(what, COLUMNS, rows)
    results.table(f"a batch of Penstock taken apart: {what}", PARTS, sides.parts)
    by_round = ", ".join(f"{ratio:.1f}" for ratio in sides.ratios)
    results.numbers[f"{what}: ratios"] = {
        "medians": sides.ratio,
        "means": sides.ratio_of_means,
        "by round": sides.ratios,
    }
    results.note(f"ratio of medians {sides.ratio:.1f} (by round {by_round}), of means {sides.ratio_of_means:.1f}")
