"""Run a step of global windows as the tasks of a batch do, on state in segments that each batch opens anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.specs.global_windows import GlobalWindows
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
    StepFacts,
    Tally,
)
from penstock.operators.triggers.global_step import GlobalStep, bind_side, step_of
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState, main_table
from penstock.runtime.tasks.staging import TaskFiles
from penstock.sources.base import PARTITION, POSITION
from penstock.state.keys import partition_of
from penstock.state.writer import Change

KEYS = pa.schema([("k", pa.string())])
VISIBLE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.float64())])
OUTPUT = pa.schema([("k", pa.string()), ("rows", pa.list_(pa.int64()))])
"""The columns that functions return."""
Row = Mapping[str, Any]


@dataclass
class Made:
    """What a batch did: the rows of the output, the numbers of late rows, counts, and what is due."""

    output: list[dict[str, Any]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    due: int | None = None
    due_time: int | None = None
    times: list[int] = field(default_factory=list)


def hash_of(key: str | None, hashes: int) -> int:
    """Return a hash of a key; few hashes make keys share one."""
    return 0 if key is None else (sum(map(ord, key)) * 7919) % hashes


def numbers_of(key: Any, view: Any) -> list[dict[str, Any]]:
    """Return the key, the rows of the window by number, and how many there are: a function for `apply`."""
    given = view.current["n"].to_pylist()
    return [{"k": key, "rows": given}]


class GlobalDisk:
    """The partitions of a step `w` of global windows by the column `k`."""

    def __init__(
        self,
        spec: GlobalWindows,
        root: Path | str,
        *,
        partitions: int = 1,
        hashes: int = 1000,
        keys: pa.Schema = KEYS,
    ) -> None:
        self.root, self.partitions, self.hashes, self.keys = Path(root), partitions, hashes, keys
        self.change_spec(spec)
        self.refs: list[dict[str, Any] | None] = [None] * partitions
        self.batches = 0

    def change_spec(self, spec: GlobalWindows) -> None:
        """Go on with another job."""
        bound = BoundSide(
            name="w",
            side=0,
            keys=self.keys,
            columns=tuple(self.keys.names),
            visible=VISIBLE if spec.reads(0).rows else None,
            inputs={sql: VISIBLE.field(sql).type for sql in spec.reads(0).expressions},
        )
        self.side = bind_side(spec, bound)
        # Only Spark reads DDL, and there is none.
        self.step: GlobalStep = step_of(spec, self.side, "w", None if spec.function is None else OUTPUT)

    def batch(
        self,
        rows: Sequence[Row],
        *,
        time: int,
        watermark: int | None = None,
        zero: int = 0,
        reached: int | None = None,
        judged: int | None = None,
    ) -> Made:
        """Run a batch of rows, which came in this order, in two tasks where there are several."""
        made, inputs = Made(), [[] for _ in range(self.partitions)]
        facts = StepFacts(
            batch=self.batches,
            time=time,
            watermark=watermark,
            late=watermark,
            judged=judged,
            reached=reached,
            zero=zero,
            read=frozenset(self.step.spec.side_streams("w")),
        )
        half = len(rows) // 2
        for task, mine in enumerate([rows[:half], rows[half:]]):
            for piece in self.side.prepare(self._branch(mine, task), facts):
                match piece:
                    case Send():
                        owner = partition_of(piece.rows[HASHED].to_numpy(), self.partitions)
                        for number in range(self.partitions):
                            inputs[number].insert(0, piece.rows.filter(pa.array(owner == number)))
                    case Tally():
                        made.counts.update(piece.counts)
        for number in range(self.partitions):
            self._state_work(number, inputs[number], facts, made)
        self.batches += 1
        return made

    def shown(self) -> pa.Table:
        """Return the main table of all partitions."""
        return pa.concat_tables([main_table(self.step, self._open(number)) for number in range(self.partitions)])

    def table(self) -> list[dict[str, Any]]:
        """Return the same as dicts."""
        rows: list[dict[str, Any]] = self.shown().to_pylist()
        return rows

    def rescale(self, partitions: int, time: int, watermark: int | None) -> tuple[int | None, int | None]:
        """Rebuild the state in another number of partitions from what the tables show; return what is due."""
        return self.rebuild(self.shown(), partitions, time, watermark)

    def rebuild(
        self, rows: pa.Table, partitions: int, time: int = 0, watermark: int | None = None
    ) -> tuple[int | None, int | None]:
        """Make the state of a table in so many partitions; return what is due."""
        keys = rows["k"].to_pylist() if "k" in self.keys.names else [None] * rows.num_rows
        rows = rows.append_column(HASHED, pa.array([hash_of(key, self.hashes) for key in keys], pa.int64()))
        rows = rows.take(pa.array(np.argsort(rows[HASHED].to_numpy(), kind="stable")))
        owner = partition_of(rows[HASHED].to_numpy(), partitions)
        moment = StepFacts(batch=self.batches, time=time, watermark=watermark)
        made = [
            self.step.rebuilt({MAIN: rows.filter(pa.array(owner == number))}, moment) for number in range(partitions)
        ]
        self.root, self.partitions = self.root / f"rescaled{self.batches}", partitions
        self.root.mkdir()
        self.refs = [None] * partitions
        for number, rebuilt in enumerate(made):
            self._write(number, self._open(number), rebuilt.change)
        self.batches += 1
        event = [rebuilt.due for rebuilt in made if rebuilt.due is not None]
        times = [rebuilt.due_time for rebuilt in made if rebuilt.due_time is not None]
        return min(event, default=None), min(times, default=None)

    def evolution(self) -> Any:
        """Return how the state of the first partition differs from the step."""
        return self.step.evolution(self._open(0))

    def _state_work(self, number: int, tables: list[pa.Table], facts: StepFacts, made: Made) -> None:
        state = self._open(number)
        running = self.step.run(state, [tables], facts)
        answer = None
        while True:
            try:
                piece = running.send(answer)
            except StopIteration:
                return
            answer = None
            match piece:
                case Emit() if piece.outlet == MAIN_OUTLET:
                    assert piece.rows.select(self.step.output.names).schema == self.step.output
                    assert piece.stand is not None
                    assert len(piece.stand().rows) == piece.rows.num_rows
                    made.output += piece.rows.drop_columns([TIME]).to_pylist()
                    made.times += piece.rows[TIME].to_pylist()
                case Emit():
                    made.late += piece.rows["n"].to_pylist()
                case Tally():
                    made.counts.update(piece.counts)
                case Due():
                    made.due = min((d for d in (made.due, piece.watermark) if d is not None), default=None)
                    made.due_time = min((d for d in (made.due_time, piece.time) if d is not None), default=None)
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
        hashes = [hash_of(row["k"], self.hashes) if "k" in self.keys.names else 0 for row in rows]
        table = pa.table(
            {
                **{f.name: pa.array([row[f.name] for row in rows], f.type) for f in VISIBLE},
                TIME: pa.array([row.get("t") for row in rows], pa.int64()),
                "h": pa.array(hashes, pa.int64()),
                PARTITION: pa.array(np.full(n, task), pa.int32()),
                POSITION: pa.array(range(n), pa.int64()),
            }
        )
        return RowsOfBranch(
            table=table,
            visible=VISIBLE.names,  # as where another step reads whole rows
            keys={name: name for name in self.keys.names},
            inputs={name: name for name in VISIBLE.names},
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
