"""Run windows of counts in the operator alone, without Spark and without the writes of its state: rows a second."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.beside_spark import scratch
from benchmarks.report import Claim, report
from penstock import agg, count
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.specs.tuple_windows import TupleWindow, TupleWindows
from penstock.operators.protocol import TIME, BoundSide, RowsOfBranch, Send, Step, StepContext, StepFacts
from penstock.operators.tuple_windows.tuple_side import TupleSide
from penstock.operators.tuple_windows.tuple_step import bind, bind_side
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.staging import TaskFiles
from penstock.sources.base import PARTITION, POSITION
from penstock.state.writer import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_counts"]

ROWS, KEYS = 100_000, 10_000
GOAL = 1_000_000
WINDOWS = {
    "tumbling 10": TupleWindow.tumbling(count(10), unbounded=True),
    "100 every 10": TupleWindow(count(100), count(10), unbounded=True),
}


def run_counts(_spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Count windows: 100,000 rows a batch, 10,000 keys, a count and a sum; the goal is a million rows a second."""
    warm, timed = (12, 5) if quick else (20, 30)
    with report("count windows") as results:
        rows = []
        for name, window in WINDOWS.items():
            with scratch() as root:
                partition = _Partition(window, root)
                times = [partition.batch() for _ in range(warm + timed)][warm:]
            median = statistics.median(times)
            rows.append((name, ROWS / median, min(times) * 1000, median * 1000, max(times) * 1000))
            results.claim(Claim(f"count windows, {name}, rows a second", ROWS / median, GOAL))
        results.table(
            f"{ROWS:,} rows a batch, {KEYS:,} keys",
            ("window", "rows a second", "best ms", "median ms", "worst ms"),
            rows,
        )
    return results.claims


@dataclass
class _Partition:
    """One state partition of a step, with state on disk that each batch opens anew."""

    window: TupleWindow
    root: Path
    side: TupleSide = field(init=False)
    step: Step = field(init=False)
    ref: dict[str, Any] | None = None
    batches: int = 0

    def __post_init__(self) -> None:
        spec = TupleWindows(window=self.window, aggregates={"n": agg.count(), "total": agg.sum("v")})
        bound = BoundSide(
            name="s",
            side=0,
            keys=pa.schema([("k", pa.int64())]),
            columns=("k",),
            visible=None,
            inputs={"v": pa.int64()},
        )
        self.side = bind_side(spec, bound)
        self.step = bind(spec, [self.side], StepContext(name="s", event=False, timed=False))
        self.random = np.random.default_rng(7)
        self.root.mkdir(parents=True, exist_ok=True)

    def batch(self) -> float:
        """Run a batch; return the seconds of the step, without those that write its state."""
        facts = StepFacts(batch=self.batches, time=(self.batches + 1) * 1_000_000, watermark=None)
        sent = [piece.rows for piece in self.side.prepare(self._rows(), facts) if isinstance(piece, Send)]
        state = PartitionState.open(LocalFolder(self.root), "s", 0, self.ref, work=self.step)
        begun, writing, answer = time.perf_counter(), 0.0, None
        running = self.step.run(state, [sent], facts)
        while True:
            try:
                made = running.send(answer)
            except StopIteration:
                break
            answer = None
            if isinstance(made, Change):
                since = time.perf_counter()
                answer = state.at(self._written(state, made))
                writing = time.perf_counter() - since
        self.batches += 1
        return time.perf_counter() - begun - writing

    def _written(self, state: PartitionState, change: Change) -> Any:
        context = BatchContext(
            batch=self.batches,
            time=self.batches,
            epoch=1,
            run="0123456789ab",
            spans={},
            late={"s": None},
            close={"s": None},
            manifests={},
            state_folder=str(self.root),
            staging={},
        )
        written = state.write(change, TaskFiles(context, self.batches, "0b0"), partitions=1)
        if written.ref is not None:
            ref = written.ref
            self.ref = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
        return written

    def _rows(self) -> RowsOfBranch:
        keys, places = self.random.integers(0, KEYS, ROWS), np.arange(ROWS)
        table = pa.table(
            {
                "k": keys,
                "v": places,
                TIME: places,
                "h": keys * np.int64(-7046029254386353131),
                PARTITION: np.zeros(ROWS, dtype=np.int32),
                POSITION: places,
            }
        )
        return RowsOfBranch(
            table=table,
            visible=[],
            keys={"k": "k"},
            inputs={"v": "v"},
            hash_column="h",
            place=0,
            way=0,
            ways=1,
        )
