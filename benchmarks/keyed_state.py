"""Run P3, P4 and P5 of DESIGN 12, and expiry: keyed state beside Structured Streaming on RocksDB, and beside itself."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch, show
from benchmarks.bytewax_side import bytewax_ms
from benchmarks.data import Input
from benchmarks.duel import Duel, Turns, duel
from benchmarks.engine_side import BatchTime, EngineSide
from benchmarks.jobs import discard, grouped, keyed_job, processed
from benchmarks.parts import COLUMNS as PARTS
from benchmarks.parts import batch_parts, spark_parts
from benchmarks.report import Claim, Report, report
from benchmarks.spark_side import SparkSide
from benchmarks.steady import worker_memory
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.time.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["keyed_duel", "row_by_row", "run_expiry", "run_p3", "run_p4", "run_p5", "with_keys"]

TOUCHED = 100_000
MILLION = 1_000_000
GIB = 1 << 30


def run_p3(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P3: count and sum by key, 100,000 touched of 1M and of 10M keys; the peer's output is thrown away."""
    with report("P3 keyed aggregate") as results:
        for keys in (MILLION,) if quick else (MILLION, 10 * MILLION):
            full = keys // TOUCHED  # batches until every key has state
            turns = Turns(warm_engine=full + 20, warm_peer=full + 4, rounds=2 if quick else 3, engine=11, peer=6)
            sides = keyed_duel(spark, Input(rows=TOUCHED, keys=keys, step=MILLION), grouped, turns)
            show(results, f"100,000 touched of {keys:,} keys", TOUCHED, sides)
            results.claim(Claim(f"P3, {keys:,} keys, times Structured Streaming", sides.ratio, 3, "x"))
    return results.claims


def run_p4(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P4: a state function in Python, 100,000 touched of 1M keys, vectorised and row by row.

    Beside transformWithState, and row by row beside Bytewax as well. The first needs many seconds a batch: with --quick
    its state is not full yet when it is timed, which favours it.
    """
    given = Input(rows=TOUCHED, keys=MILLION, step=MILLION)
    full = MILLION // TOUCHED
    turns = Turns(warm_engine=full + 40, warm_peer=1 if quick else full + 1, rounds=1, engine=41, peer=3)
    with report("P4 state functions") as results:
        sides = keyed_duel(spark, given, processed, turns)
        show(results, "vectorised, 100,000 touched of 1,000,000 keys", TOUCHED, sides)
        results.claim(Claim("P4, vectorised, times transformWithState", sides.ratio, 60, "x"))
        batches = row_by_row(results, spark, given, warm=full + 20, batches=turns.engine)
        rows_ms = statistics.median(batch.whole for batch in batches)
        results.note(f"row by row {rows_ms:,.0f} ms a batch, the peer {sides.peer_ms:,.0f}")
        results.claim(Claim("P4, row by row, times transformWithState", sides.peer_ms / rows_ms, 25, "x"))
        with scratch() as root:
            other_ms = bytewax_ms(given, root, warm=full + 2, batches=turns.engine - 1)
        mean_ms = statistics.fmean(batch.whole for batch in batches)  # as of Bytewax only the whole is known
        results.note(f"on average {mean_ms:,.0f} ms, Bytewax on two workers {other_ms:,.0f} ms for the rows of a batch")
        results.claim(Claim("P4, row by row, times Bytewax", other_ms / mean_ms, 1, "x"))
    return results.claims


def row_by_row(
    results: Report,
    spark: SparkSession,
    given: Input,
    *,
    warm: int,
    batches: int,
    checkpoints: Path | CheckpointFolder | None = None,
) -> list[BatchTime]:
    """Run the function that is called for each row, and return all batches behind the warm ones but the first."""
    given.prepare(warm + batches)
    with scratch() as root:
        engine = EngineSide(spark, given, keyed_job(root / "table", form="rows"), checkpoints or root / "checkpoints")
        engine.batches(warm)
        timed = engine.batches(batches)[1:]
        engine.close()
    _parts(results, spark, engine, timed, "row by row")
    return timed


def run_p5(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P5: the time of a batch at 50M keys against 1M, and the anonymous memory of the Python workers.

    The state is loaded by a process of its own (`initial=`), so that workers hold what batches need and no more.
    """
    sizes = (MILLION, 5 * MILLION) if quick else (MILLION, 50 * MILLION)
    medians: list[float] = []
    with report("P5 size of the state") as results:
        for keys in sizes:
            with scratch() as root:
                began = time.monotonic()
                subprocess.run([sys.executable, "-m", "benchmarks.load", str(root), str(keys)], check=True)
                loaded = time.monotonic() - began
                memory = _Memory()
                batches = with_keys(results, spark, keys, root / "table", root / "checkpoints", after_batch=memory.look)
            medians.append(statistics.median(batch.whole for batch in batches))
            held = f"workers {memory.most / GIB:.2f} GiB"
            results.note(f"{keys:,} keys: {medians[-1]:,.0f} ms a batch, loaded in {loaded:.0f} s, {held}")
        results.claim(
            Claim(f"P5, {sizes[1]:,} keys against {sizes[0]:,}", medians[1] / medians[0], 1.3, "x", at_most=True),
            Claim(f"memory of the Python workers at {sizes[1]:,} keys", memory.most / GIB, 1, " GiB", at_most=True),
        )
    return results.claims


def with_keys(
    results: Report,
    spark: SparkSession,
    keys: int,
    table: Path,
    checkpoints: Path | CheckpointFolder,
    *,
    after_batch: Callable[[], None] = lambda: None,
) -> list[BatchTime]:
    """Run batches that touch 100,000 of so many keys; where the checkpoint has no state yet, it is loaded first."""
    given = Input(rows=TOUCHED, keys=keys, step=MILLION)
    given.prepare(60)
    engine = EngineSide(spark, given, keyed_job(table, held=keys, partitions=8), checkpoints)
    engine.after_batch = after_batch
    engine.batches(30)
    timed = engine.batches(21)[1:]
    engine.close()
    _parts(results, spark, engine, timed, f"{keys:,} keys")
    return timed


def run_expiry(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Keys that come once and are forgotten: 100,000 new ones a batch, and as many that expire, or none."""
    held = 20 if quick else 100  # batches' worth of keys
    given = Input(rows=TOUCHED, keys=10**15, step=MILLION)
    turns, each = 3, 8
    given.prepare(held + 10 + turns * each)
    took: dict[str, list[float]] = {"expiring": [], "kept": []}
    with report("expiry") as results, scratch() as root:
        engines = {}
        for name, idle_for in (("expiring", held), ("kept", 10 * held)):
            clock = _Stepped()
            engines[name] = EngineSide(
                spark, given, keyed_job(root / name, idle_for=idle_for), root / f"c-{name}", clock=clock
            )
            engines[name].after_batch = clock.step
            engines[name].batches(held + 10)
        for _ in range(turns):
            for name, engine in engines.items():
                batches = engine.batches(each)[1:]
                took[name] += [batch.whole for batch in batches]
                _parts(results, spark, engine, batches, name)
        for engine in engines.values():
            engine.close()
        medians = {name: statistics.median(times) for name, times in took.items()}
        share = 100 / held
        times = (
            f"{medians['expiring']:.0f} ms with {share:.0f}% of them expiring a batch, {medians['kept']:.0f} with none"
        )
        results.note(f"{held * TOUCHED:,} keys: {times}")
        ratio = medians["expiring"] / medians["kept"]
        results.claim(
            Claim(f"expiry of {share:.0f}% of {held * TOUCHED:,} keys against none", ratio, 2, "x", at_most=True)
        )
    return results.claims


class _Stepped(SystemClock):
    """A second of wall time a batch, so that what expires is the same in every run."""

    def __init__(self) -> None:
        self._wall = MILLION

    def wall(self) -> int:
        """Return the time of the batch."""
        return self._wall

    def step(self) -> None:
        """Come to the next batch."""
        self._wall += MILLION


class _Memory:
    """The most anonymous memory that Spark's Python workers had together, bytes."""

    most = 0

    def look(self) -> None:
        """Ask once more."""
        self.most = max(self.most, worker_memory())


def keyed_duel(
    spark: SparkSession,
    given: Input,
    transform: Callable[[DataFrame], DataFrame],
    turns: Turns,
    *,
    checkpoints: Path | CheckpointFolder | None = None,
    peer_at: str | None = None,
) -> Duel:
    """Let both sides take turns; `checkpoints` is where the engine has them, `peer_at` the peer, if not beside it."""
    given.prepare(turns.batches)
    with scratch() as root:
        engine = EngineSide(spark, given, keyed_job(root / "table"), checkpoints or root / "checkpoints")
        peer = SparkSide(
            spark, given, root / "peer", transform=transform, sink=discard, mode="update", checkpoint=peer_at
        )
        try:
            return duel(engine, peer, turns)
        finally:
            peer.close()
            engine.close()


def _parts(results: Report, spark: SparkSession, engine: EngineSide, batches: list[BatchTime], what: str) -> None:
    parts = batch_parts(batches, spark_parts(spark, engine.run.engine.graph.name, batches))
    results.table(f"a batch of Penstock taken apart: {what}", PARTS, parts)
