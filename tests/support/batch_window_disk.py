"""Run a step of batch windows as the tasks of a batch do, on state in segments that each batch opens anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import BatchWindows, Form
from penstock.operators.batch_windows.batch_window_step import BatchWindowStep, bind, bind_side
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    TIME,
    BoundSide,
    Due,
    Emit,
    RowsOfBranch,
    Send,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState, main_table
from penstock.runtime.tasks.staging import TaskFiles
from penstock.sources.base import PARTITION, POSITION
from penstock.state.keys import partition_of
from penstock.state.writer import Change

VISIBLE = pa.schema([("k", pa.string()), ("v", pa.int64()), ("s", pa.string()), ("x", pa.float64())])
Row = Mapping[str, Any]


def hash_of(key: object, hashes: int) -> int:
    """Return a hash of a key; few hashes make keys share one."""
    return 0 if key is None else (sum(map(ord, str(key))) * 7919) % hashes


class BatchWindowDisk:
    """The partitions of a step `w` of batch windows; `keys` are the key columns, of which there is one or none."""

    def __init__(
        self,
        window: BatchWindow,
        form: Form,
        root: Path | str,
        *,
        value: str | None = None,
        keys: Sequence[str] = ("k",),
        partitions: int = 1,
        hashes: int = 1000,
        zero: int = 0,
        interval: int = 1,
        **more: Any,
    ) -> None:
        column = "count" if form is Form.COUNT else value or ""
        self.spec = BatchWindows(window=window, form=form, value=value, column=column, **more)
        bound = BoundSide(
            name="w",
            side=0,
            keys=pa.schema([VISIBLE.field(key) for key in keys]),
            columns=tuple(keys),
            visible=VISIBLE if form is Form.ROWS else None,
            inputs={} if value is None else {value: VISIBLE.field(value).type},
        )
        self.side = bind_side(self.spec, bound)
        self.step: BatchWindowStep = bind(self.spec, [self.side], StepContext(name="w", event=False, timed=False))
        self.root, self.partitions, self.hashes = Path(root), partitions, hashes
        self.refs: list[dict[str, Any] | None] = [None] * partitions
        self.zero, self.interval = zero, interval
        self.before: int | None = None
        self.batches = 0
        self.due: int | None = None
        self.counts: Counter[str] = Counter()
        self.times: list[int] = []
        self.more: dict[str, Any] = {}

    def batch(self, time: int, tasks: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
        """Run a batch whose rows came in these tasks, and return what it emits; arrival is by task, then by place."""
        facts = StepFacts(
            batch=self.batches,
            time=time,
            watermark=None,
            zero=self.zero,
            interval=self.interval,
            before=self.before,
            **self.more,
        )
        inputs: list[list[pa.Table]] = [[] for _ in range(self.partitions)]
        for task, rows in enumerate(tasks):
            for piece in self.side.prepare(self._branch(rows, task), facts):
                if isinstance(piece, Tally):
                    self.counts.update(piece.counts)
                    continue
                assert isinstance(piece, Send)
                owner = partition_of(piece.rows[HASHED].to_numpy(), self.partitions)
                for number in range(self.partitions):
                    inputs[number].append(piece.rows.filter(pa.array(owner == number)))
        self.due, self.times = None, []
        made = [row for number in range(self.partitions) for row in self._state_work(number, inputs[number], facts)]
        self.before, self.batches = time, self.batches + 1
        return made

    def state(self) -> list[dict[str, Any]]:
        """Return the state as the main table shows it."""
        return pa.concat_tables([main_table(self.step, self._open(n)) for n in range(self.partitions)]).to_pylist()

    def rescale(self, partitions: int) -> None:
        """Rebuild the state in another number of partitions from what the tables show."""
        self.rebuild(
            pa.concat_tables([main_table(self.step, self._open(n)) for n in range(self.partitions)]), partitions
        )

    def rebuild(self, rows: pa.Table, partitions: int) -> None:
        """Take these rows of the main table for the state."""
        hashes = (
            [hash_of(key, self.hashes) for key in rows["k"].to_pylist()] if len(self.step.keys) else [0] * len(rows)
        )
        rows = rows.append_column(HASHED, pa.array(hashes, pa.int64())).sort_by(HASHED)
        owner = partition_of(rows[HASHED].to_numpy(), partitions)
        self.root, self.partitions = self.root / f"rescaled{self.batches}", partitions
        self.root.mkdir()
        self.refs = [None] * partitions
        moment = StepFacts(batch=self.batches, time=self.before or 0, watermark=None, zero=self.zero)
        for number in range(partitions):
            rebuilt = self.step.rebuilt({MAIN: rows.filter(pa.array(owner == number))}, moment)
            self._write(number, self._open(number), rebuilt.change)
        self.batches += 1

    def opened(self, number: int = 0) -> PartitionState:
        """Return the state of a partition."""
        return self._open(number)

    def _state_work(self, number: int, tables: list[pa.Table], facts: StepFacts) -> list[dict[str, Any]]:
        state = self._open(number)
        running = self.step.run(state, [tables], facts)
        emitted: list[dict[str, Any]] = []
        answer = None
        while True:
            try:
                piece = running.send(answer)
            except StopIteration:
                return emitted
            answer = None
            match piece:
                case Emit():
                    rows = piece.rows.drop_columns([TIME])
                    assert rows.schema == self.step.output
                    assert piece.stand is not None
                    assert len(piece.stand().rows) == rows.num_rows
                    emitted += rows.to_pylist()
                    self.times += piece.rows[TIME].to_pylist()
                case Tally():
                    self.counts.update(piece.counts)
                case Due():
                    assert piece.watermark is None
                    self.due = min((d for d in (self.due, piece.time) if d is not None), default=None)
                case Change():
                    answer = state.at(self._write(number, state, piece))

    def _open(self, number: int) -> PartitionState:
        return PartitionState.open(LocalFolder(self.root), "w", number, self.refs[number], work=self.step)

    def _write(self, number: int, state: PartitionState, change: Change) -> Any:
        written = state.write(change, TaskFiles(self._context(), self.batches, "0b0"), partitions=self.partitions)
        if written.ref is not None:
            ref = written.ref
            self.refs[number] = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
        return written

    def _branch(self, rows: Sequence[Row], task: int) -> RowsOfBranch:
        n = len(rows)
        hashes = [hash_of(row["k"], self.hashes) if len(self.step.keys) else 0 for row in rows]
        columns = {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in VISIBLE}
        table = pa.table(
            {
                **columns,
                TIME: pa.nulls(n, pa.int64()),
                "h": pa.array(hashes, pa.int64()),
                PARTITION: pa.array(np.full(n, task), pa.int32()),
                POSITION: pa.array(range(n), pa.int64()),
            }
        )
        return RowsOfBranch(
            table=table,
            visible=VISIBLE.names,
            keys={name: name for name in self.step.keys.names},
            inputs={} if self.spec.value is None else {self.spec.value: self.spec.value},
            hash_column="h",
            place=0,
            way=0,
            ways=1,
        )

    def _context(self) -> BatchContext:
        return BatchContext(
            batch=self.batches,
            time=self.batches,
            epoch=1,
            run="0123456789ab",
            spans={},
            late={"w": None},
            close={"w": None},
            manifests={},
            state_folder=str(self.root),
            staging={},
        )
