"""Compare windows of batch time that are reduced with an inverse with those that are reduced from all rows.

By the time of the CPU, in one partition: of the operator alone, and of the operator with the reading and writing of its
state. The rest of a batch, which is Spark's and the commit's, is the same for both. Reducing from all rows is what the
operator does without an inverse, as DStreams do: what each batch has reduced to is reduced again for each window.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.beside_spark import scratch
from benchmarks.report import Claim, report
from penstock import micros
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import BatchWindows, Form
from penstock.operators.batch_windows.batch_window_step import bind, bind_side
from penstock.operators.protocol import TIME, BoundSide, RowsOfBranch, Send, StepContext, StepFacts
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.staging import TaskFiles
from penstock.sources.base import PARTITION, POSITION
from penstock.state.writer import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_inverse"]

LENGTH = 60
"""Batches of a window; one enters and one leaves with each."""
CYCLE = 64
"""Batches from one merge of all segments of the state to the next: each of them costs more or less."""
KEYS = 10_000
"""Keys of the claim. With few, what a batch of any size costs counts for more than the rows."""


@dataclass(frozen=True, slots=True)
class _Times:
    """The milliseconds of batches: of the operator, and with the reading and writing of its state."""

    operator: list[float]
    whole: list[float]


def run_inverse(_spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Sums of 2,000 and 10,000 keys over 60 batches, each with a row of every key; quick measures half a cycle."""
    with report("inverse reduction") as results, scratch() as root:
        for keys in (2_000, KEYS):
            taken = {
                name: _times(root / f"{keys} {name}", keys, inverse, batches=CYCLE // 2 if quick else CYCLE)
                for name, inverse in _WAYS.items()
            }
            rows = [
                (name, statistics.median(each.operator), statistics.median(each.whole), max(each.whole))
                for name, each in taken.items()
            ]
            columns = ("", "operator, median", "with its state, median", "worst")
            results.table(f"{keys:,} keys, {LENGTH} batches a window, ms a batch", columns, rows)
        (_, *slow, _), (_, *fast, _) = rows
        results.claim(
            Claim("inverse, times as fast as from all rows, in the operator", slow[0] / fast[0], 10, "x"),
            Claim("with the reading and writing of its state", slow[1] / fast[1], 10, "x"),
        )
    return results.claims


def _add(a: int, b: int) -> int:
    return a + b


def _subtract(a: int, b: int) -> int:
    return a - b


_WAYS = {"from all rows": None, "by an inverse": _subtract}


def _times(root: Path, keys: int, inverse: Any, *, batches: int) -> _Times:
    """Return what batches take whose windows are full."""
    root.mkdir(parents=True)
    spec = BatchWindows(
        window=BatchWindow(micros(LENGTH)), form=Form.REDUCE, value="v", column="v", fn=_add, inverse=inverse
    )
    key = pa.schema([("k", pa.int64())])
    bound = BoundSide(name="w", side=0, keys=key, columns=("k",), visible=None, inputs={"v": pa.int64()})
    side = bind_side(spec, bound)
    step = bind(spec, [side], StepContext(name="w", event=False, timed=False))
    ref: dict[str, Any] | None = None
    operator, whole = list[float](), list[float]()
    for batch in range(1, LENGTH + batches + 1):
        facts = StepFacts(batch=batch, time=batch, watermark=None, interval=1, before=batch - 1 or None)
        sent = [piece.rows for piece in side.prepare(_rows(keys, batch), facts) if isinstance(piece, Send)]
        started = time.process_time()
        state = PartitionState.open(LocalFolder(root), "w", 0, ref, work=step)
        opened = time.process_time()
        change = _change(step, state, sent, facts)
        changed = time.process_time()
        written = state.write(change, TaskFiles(_context(batch, root), 0, "0b0"), partitions=1)
        if written.ref is not None:
            ref = {"path": written.ref.path, "size": written.ref.size, "checksum": written.ref.checksum}
        whole.append((time.process_time() - started) * 1_000)
        operator.append((changed - opened) * 1_000)
    return _Times(operator[LENGTH:], whole[LENGTH:])


def _change(step: Any, state: PartitionState, sent: list[pa.Table], facts: StepFacts) -> Change:
    """Run a batch up to its change, and return that."""
    return next(piece for piece in step.run(state, [sent], facts) if isinstance(piece, Change))


def _rows(keys: int, batch: int) -> RowsOfBranch:
    numbers = np.arange(keys, dtype=np.int64)
    table = pa.table(
        {
            "k": numbers,
            "v": numbers + batch,
            TIME: pa.nulls(keys, pa.int64()),
            "h": numbers * np.int64(-7046029254386353131),
            PARTITION: pa.array(np.zeros(keys, dtype=np.int32)),
            POSITION: numbers,
        }
    )
    names = {"k": "k"}
    return RowsOfBranch(
        table=table, visible=("k", "v"), keys=names, inputs={"v": "v"}, hash_column="h", place=0, way=0, ways=1
    )


def _context(batch: int, root: Path) -> BatchContext:
    marks = {"w": None}
    return BatchContext(
        batch=batch,
        time=batch,
        epoch=1,
        run="0" * 12,
        spans={},
        late=marks,
        close=marks,
        manifests={},
        state_folder=str(root),
        staging={},
    )
