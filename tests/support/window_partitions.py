"""Run a window step in its state partitions on disk, and compare it with the model of the definition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import agg
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.protocol import HASHED, MAIN, TIME
from penstock.operators.windows.lateness import judge
from penstock.operators.windows.time_windows import WindowStep, preaggregate
from penstock.runtime.tasks.partition_state import main_table
from penstock.testing.model import ModelBatch, WindowModel
from tests.support.slice_disk import SliceDisk
from tests.support.step_disk import cut
from tests.support.window_samples import rows_of_branch

Row = dict[str, Any]
KEYS = pa.schema([("k", pa.int64())])
EXACT = {"n": agg.count(), "total": agg.sum("v")}
ALL = EXACT | {"low": agg.min("v"), "last": agg.last("v"), "mean": agg.mean("v")}


def hash_of(key: int, hashes: int = 2**64) -> int:
    return (key * 7046029254386353131) % hashes - hashes // 2


def step_of(window: TimeWindow, aggregates=EXACT) -> WindowStep:
    types = {name: None if a.expression is None else pa.int64() for name, a in aggregates.items()}
    return WindowStep(window=window, plan=AggregatePlan.build(aggregates, types), keys=KEYS)


class Partitions:
    """The state partitions of a window step on disk; each batch opens them anew, as after a restart.

    `due` is for each partition when it is due next, by the watermark and by batch time. With `crashes` rows come in
    several tasks, which send in any order, and attempts of tasks crash, as in `StepDisk`.
    """

    due: dict[int, tuple[int | None, int | None]]

    def __init__(self, spec: WindowStep, root: Path, count: int, crashes: Random | None = None) -> None:
        self.spec, self.root, self.batches, self.scaled, self.crashes = spec, root, 0, 0, crashes
        self.disks = self._made(count)

    def _made(self, count: int) -> list[SliceDisk]:
        self.due = {}
        folder = LocalFolder(self.root / str(self.scaled))
        disks = [SliceDisk(self.spec, folder / str(p), batches=self.batches) for p in range(count)]
        for disk in disks:
            disk.crashes = self.crashes
        return disks

    def batch(
        self, rows: Sequence[Row], *, late: int | None, close: int | None, at: int | None = None
    ) -> tuple[list[Row], list[Row]]:
        """Return the output and the late rows; the batch time is the number of the batch, unless given."""
        judged = judge(np.array([row["t"] for row in rows], np.int64), self.spec.window, late)
        counted = [row for row, counts in zip(rows, judged.counted, strict=True) if counts]
        out: list[Row] = []
        for number, disk in enumerate(self.disks):
            own = [row for row in counted if hash_of(row["k"]) % len(self.disks) == number]
            made = disk.batch(self._sent(own), late=late, close=close, time=at)
            out += made.output.to_pylist()
            self.due[number] = (made.due, made.due_time)
        self.batches += 1
        return out, [row for row, is_late in zip(rows, judged.late, strict=True) if is_late]

    def crash(self, rows: Sequence[Row], *, late: int | None, close: int | None, at: int | None = None) -> None:
        """Run a batch that is never committed."""
        before = [disk.ref for disk in self.disks]
        self.batch(rows, late=late, close=close, at=at)
        for disk, ref in zip(self.disks, before, strict=True):
            disk.ref = ref

    def rescale(self, count: int, watermark: int | None, at: int | None = None) -> None:
        """Rebuild the state in another number of partitions, from the tables that a batch at a time has left."""
        tables = [main_table(disk.work, disk.state()) for disk in self.disks]
        table = pa.concat_tables(tables)
        hashes = np.array([hash_of(key) for key in table["k"].to_pylist()], np.int64)
        table = table.append_column(HASHED, pa.array(hashes)).take(pa.array(np.argsort(hashes, kind="stable")))
        self.scaled += 1
        self.disks = self._made(count)
        for number, disk in enumerate(self.disks):
            own = table.filter(pa.array(np.sort(hashes) % count == number))
            moment = disk.facts(watermark, watermark, at).of_step("w")
            made = disk.work.rebuilt({MAIN: own}, moment)
            disk.write(0, disk.state(), made.change)
            self.due[number] = (made.due, made.due_time)
            disk.batches += 1
        self.batches += 1

    def _sent(self, rows: Sequence[Row]) -> list[pa.Table]:
        """Return what the tasks send of rows that arrived in this order."""
        if self.crashes is None:
            return [self._delta(rows)]
        sent = [self._delta(rows[lo:hi], task) for task, (lo, hi) in enumerate(cut(len(rows), self.crashes))]
        self.crashes.shuffle(sent)
        return sent

    def _delta(self, rows: Sequence[Row], task: int = 0) -> pa.Table:
        table = pa.table(
            {
                "k": pa.array([row["k"] for row in rows], pa.int64()),
                "h": pa.array([hash_of(row["k"]) for row in rows], pa.int64()),
                TIME: pa.array([row["t"] for row in rows], pa.int64()),
                "v": pa.array([row["v"] for row in rows], pa.int64()),
                "p": pa.array(range(len(rows)), pa.int64()),
            }
        )
        plan = self.spec.plan
        branch = rows_of_branch(table, ["k"], {a.expression: "v" for a in plan.aggregates if a.expression})
        return preaggregate(branch, (self.batches, 0, task, "p"), plan=plan, window=self.spec.window)


def place(row: Row) -> tuple[Any, ...]:
    start, end = (round(row[name].timestamp() * 1e6) for name in ("window_start", "window_end"))
    return (start, end, row["k"], row.get("_pane", "ON_TIME"), row.get("_revision", 0))


def assert_right(actual: tuple[list[Row], list[Row]], expected: ModelBatch) -> None:
    output, late = actual
    emitted = {place(row): row for row in output}
    assert len(emitted) == len(output)
    wanted = {(w.start, w.end, w.key[0], w.pane.value, w.revision): w.results for w in expected.windows}
    assert emitted.keys() == wanted.keys()
    for where, results in wanted.items():
        wrong = {name: emitted[where][name] for name, v in results.items() if not v.matches(emitted[where][name])}
        assert not wrong, where
    assert late == expected.late


def model_of(window: TimeWindow, aggregates=EXACT) -> WindowModel:
    return WindowModel(window, ("k",), aggregates, time=lambda row: row["t"])


def emitted(output: list[Row]) -> list[tuple[Any, ...]]:
    """Return what a batch emitted, in order: pane, revision, window end, key, count and sum."""
    return [
        (pane, number, end, key, row["n"], row["total"]) for row in output for _, end, key, pane, number in [place(row)]
    ]
