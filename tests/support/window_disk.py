"""Run a step of event-time windows as the tasks of a batch do, on state that each batch opens anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.specs.time_windows import WindowSpec
from penstock.graph.steps import MAIN_OUTLET
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
from penstock.operators.registry import operator_of
from penstock.operators.windows.applied_windows import AppliedFunction
from penstock.operators.windows.panes import PANE_FIELDS
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState, main_table
from penstock.runtime.tasks.staging import TaskFiles
from penstock.sources.base import PARTITION, POSITION
from penstock.state.hashing import hash_columns, normalise
from penstock.state.keys import partition_of
from penstock.state.writer import Change

Row = Mapping[str, Any]


@dataclass
class Made:
    """What a batch did: rows of the output in the order of arrival of each partition, their times, and late rows."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    due: int | None = None


class WindowDisk:
    """The partitions of a window step `w` over rows of these columns; `time` gives their event time.

    `fn` is called with each window where `output` has the columns that it returns.
    """

    def __init__(
        self,
        spec: WindowSpec,
        visible: pa.Schema,
        root: Path | str,
        *,
        keys: Sequence[str] = ("k",),
        fn: Callable[..., Any] | None = None,
        output: pa.Schema | None = None,
        partitions: int = 1,
        time: str = "t",
    ) -> None:
        of_keys = pa.schema([visible.field(name) for name in keys])
        bound = BoundSide(
            name="w",
            side=0,
            keys=of_keys,
            columns=tuple(keys),
            visible=visible if spec.reads(0).rows else None,
            inputs={name: visible.field(name).type for name in spec.reads(0).expressions},
        )
        operator = operator_of(spec)
        self.side = operator.bind_side(spec, bound)
        step = operator.bind(replace(spec, function=None), [self.side], StepContext(name="w", event=True, timed=True))
        if output is not None:
            more = PANE_FIELDS if spec.window.has_panes else ()
            step = replace(step, applied=AppliedFunction("w", fn, output, pa.schema([*output, *more])))
        self.step = step
        self.spec, self.visible, self.keys, self.time = spec, visible, of_keys, time
        self.root, self.partitions = Path(root), partitions
        self.refs: list[dict[str, Any] | None] = [None] * partitions
        self.batches = 0

    def batch(self, tasks: Sequence[Sequence[Row]], *, late: int | None, close: int | None) -> Made:
        """Run a batch whose rows came in these tasks; arrival is by task, then by place."""
        made, inputs = Made(), [[] for _ in range(self.partitions)]
        facts = StepFacts(
            batch=self.batches, time=self.batches, watermark=close, late=late, read=frozenset({"late", "quarantine"})
        )
        for task, rows in enumerate(tasks):
            for piece in self.side.prepare(self._branch(rows, task), facts):
                match piece:
                    case Send():
                        owner = partition_of(piece.rows[HASHED].to_numpy(), self.partitions)
                        for number in range(self.partitions):
                            inputs[number].append(piece.rows.filter(pa.array(owner == number)))
                    case Emit(outlet="late"):
                        made.late += piece.rows.to_pylist()
        for number in range(self.partitions):
            self._work(number, inputs[number], facts, made)
        self.batches += 1
        return made

    def shown(self) -> pa.Table:
        """Return the main table of all partitions."""
        return pa.concat_tables([main_table(self.step, self._open(number)) for number in range(self.partitions)])

    def rescale(self, partitions: int, watermark: int | None) -> None:
        """Rebuild the state in another number of partitions from what the main table shows."""
        rows = self.shown()
        rows = rows.append_column(HASHED, pa.array(self._hashes(rows))).sort_by(HASHED)
        owner = partition_of(rows[HASHED].to_numpy(), partitions)
        self.root, self.partitions = self.root / f"rescaled{self.batches}", partitions
        self.root.mkdir()
        self.refs = [None] * partitions
        moment = StepFacts(batch=self.batches, time=self.batches, watermark=watermark)
        for number in range(partitions):
            rebuilt = self.step.rebuilt({MAIN: rows.filter(pa.array(owner == number))}, moment)
            self._write(number, self._open(number), rebuilt.change)
        self.batches += 1

    def _work(self, number: int, tables: list[pa.Table], facts: StepFacts, made: Made) -> None:
        state = self._open(number)
        running, answer = self.step.run(state, [tables], facts), None
        while True:
            try:
                piece = running.send(answer)
            except StopIteration:
                return
            answer = None
            match piece:
                case Emit() if piece.outlet == MAIN_OUTLET:
                    wanted = self.step.outlets[MAIN_OUTLET]
                    assert piece.rows.select(wanted.names).schema == wanted
                    made.rows += piece.rows.drop_columns([TIME]).to_pylist()
                    made.times += piece.rows[TIME].to_pylist()
                    assert piece.stand().times.tolist() == piece.rows[TIME].to_pylist()
                case Emit(outlet="late"):
                    made.late += piece.rows.to_pylist()
                case Due():
                    made.due = min((d for d in (made.due, piece.watermark) if d is not None), default=None)
                case Change():
                    answer = state.at(self._write(number, state, piece))
                case Tally():
                    pass

    def _open(self, number: int) -> PartitionState:
        return PartitionState.open(LocalFolder(self.root), "w", number, self.refs[number], work=self.step)

    def _write(self, number: int, state: PartitionState, change: Change) -> Any:
        written = state.write(change, TaskFiles(self._context(), self.batches, "0b0"), partitions=self.partitions)
        if written.ref is not None:
            ref = written.ref
            self.refs[number] = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
        return written

    def _hashes(self, rows: pa.Table) -> np.ndarray:
        columns = [normalise(rows[name].combine_chunks()) for name in self.keys.names]
        return hash_columns(columns, rows.num_rows)

    def _branch(self, rows: Sequence[Row], task: int) -> RowsOfBranch:
        n = len(rows)
        columns = {f.name: pa.array([row[f.name] for row in rows], f.type) for f in self.visible}
        own = {
            TIME: pa.array([row[self.time] for row in rows], pa.int64()),
            PARTITION: pa.array(np.full(n, task), pa.int32()),
            POSITION: pa.array(range(n), pa.int64()),
        }
        table = pa.table({**columns, **own})
        table = table.append_column("_h", pa.array(self._hashes(table)))
        for name in self.keys.names:
            table = table.append_column(f"_k_{name}", normalise(table[name].combine_chunks()))
        return RowsOfBranch(
            table=table,
            visible=self.visible.names,
            keys={name: f"_k_{name}" for name in self.keys.names},
            inputs={name: name for name in self.spec.reads(0).expressions},
            hash_column="_h",
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
