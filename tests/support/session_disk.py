"""Run a step of sessions as the tasks of a batch do, on state in segments and manifests that each batch opens anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.aggregates import Aggregate
from penstock.graph.specs.session_windows import SessionWindow, SessionWindows
from penstock.graph.steps import MAIN_OUTLET
from penstock.graph.windows import LateTo
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
from penstock.operators.sessions.session_step import SessionStep, bind, bind_side
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.staging import TaskFiles
from penstock.sources.base import PARTITION, POSITION
from penstock.state.full_compaction import live_rows
from penstock.state.keys import partition_of
from penstock.state.writer import Change

KEYS = pa.schema([("k", pa.string())])
VISIBLE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.int64()), ("g", pa.int64())])
Row = Mapping[str, Any]


@dataclass
class Made:
    """What a batch did: sessions that closed, the numbers of late and quarantined rows, counts, and what is due."""

    closed: list[dict[str, Any]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    due: int | None = None
    times: list[int] = field(default_factory=list)


def hash_of(key: str | None, hashes: int) -> int:
    """Return a hash of a key; few hashes make keys share one."""
    return 0 if key is None else (sum(map(ord, key)) * 7919) % hashes


class SessionDisk:
    """The partitions of a step `s` of sessions by the column `k`."""

    def __init__(
        self,
        window: SessionWindow,
        aggregates: Mapping[str, Aggregate],
        root: Path | str,
        *,
        partitions: int = 1,
        hashes: int = 1000,
        keys: pa.Schema = KEYS,
        retracts: bool = False,
    ) -> None:
        self._keys, self._retracts = keys, retracts
        self.become(window, aggregates)
        self.root, self.partitions, self.hashes = Path(root), partitions, hashes
        self.refs: list[dict[str, Any] | None] = [None] * partitions
        self.batches = 0

    def become(self, window: SessionWindow, aggregates: Mapping[str, Aggregate]) -> None:
        """Run on with other windows or aggregates, as a restart of a changed job does."""
        keys, retracts = self._keys, self._retracts
        spec = SessionWindows(window=window, aggregates=aggregates)
        whole = isinstance(window.late, LateTo) or isinstance(window.gap, str)
        bound = BoundSide(
            name="s",
            side=0,
            keys=keys,
            columns=tuple(keys.names),
            visible=VISIBLE if whole else None,
            inputs={name: pa.int64() for name in ("n", "v", "g")},
        )
        self.side = bind_side(spec, bound)
        self.step: SessionStep = bind(
            spec, [self.side], StepContext(name="s", event=True, timed=True, retracts=retracts)
        )

    def batch(
        self, tasks: Sequence[Sequence[Row]], *, late: int | None, close: int | None, judged: int | None = None
    ) -> Made:
        """Run a batch whose rows came in these tasks; arrival is by task, then by place."""
        made, inputs = Made(), [[] for _ in range(self.partitions)]
        facts = StepFacts(
            batch=self.batches,
            time=self.batches,
            watermark=close,
            late=late,
            judged=judged,
            read=frozenset({"late", "quarantine"}),
        )
        for task, rows in enumerate(tasks):
            for piece in self.side.prepare(self._branch(rows, task), facts):
                match piece:
                    case Send():
                        owner = partition_of(piece.rows[HASHED].to_numpy(), self.partitions)
                        for number in range(self.partitions):
                            inputs[number].append(piece.rows.filter(pa.array(owner == number)))
                    case Emit():
                        made.aside += piece.rows["n"].to_pylist()
                    case Tally():
                        made.counts.update(piece.counts)
        for number in range(self.partitions):
            self._state_work(number, inputs[number], facts, made)
        self.batches += 1
        return made

    def sessions(self) -> list[dict[str, Any]]:
        """Return the open sessions, as the main table shows them."""
        tables = [self._shown(number) for number in range(self.partitions)]
        return pa.concat_tables(tables).to_pylist()

    def rescale(self, partitions: int, watermark: int | None) -> None:
        """Rebuild the state in another number of partitions from what the tables show."""
        rows = pa.concat_tables([self._shown(number) for number in range(self.partitions)])
        keys = rows["k"].to_pylist() if "k" in rows.column_names else [None] * rows.num_rows
        rows = rows.append_column(HASHED, pa.array([hash_of(key, self.hashes) for key in keys], pa.int64()))
        rows = rows.sort_by(HASHED)
        owner = partition_of(rows[HASHED].to_numpy(), partitions)
        self.root, self.partitions = self.root / f"rescaled{self.batches}", partitions
        self.root.mkdir()
        self.refs = [None] * partitions
        moment = StepFacts(batch=self.batches, time=self.batches, watermark=watermark)
        for number in range(partitions):
            rebuilt = self.step.rebuilt({MAIN: rows.filter(pa.array(owner == number))}, moment)
            self._write(number, self._open(number), rebuilt.change)
        self.batches += 1

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
                    assert piece.rows.select(self.step.layout.output.names).schema == self.step.layout.output
                    made.closed += piece.rows.drop_columns([TIME]).to_pylist()
                    made.times += piece.rows[TIME].to_pylist()
                case Emit():
                    made.late += piece.rows["n"].to_pylist()
                    assert len(piece.arrivals()) == piece.rows.num_rows
                case Tally():
                    made.counts.update(piece.counts)
                case Due():
                    made.due = min((d for d in (made.due, piece.watermark) if d is not None), default=None)
                case Change():
                    answer = state.at(self._write(number, state, piece))

    def _open(self, number: int) -> PartitionState:
        return PartitionState.open(LocalFolder(self.root), "s", number, self.refs[number], work=self.step)

    def _write(self, number: int, state: PartitionState, change: Change) -> Any:
        written = state.write(change, TaskFiles(self._context(), self.batches, "0b0"), partitions=self.partitions)
        if written.ref is not None:
            ref = written.ref
            self.refs[number] = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
        return written

    def _shown(self, number: int) -> pa.Table:
        state = self._open(number)
        rows = live_rows(state, "sessions", self.step.parts)
        empty = self.step.tables[MAIN].empty_table()
        return pa.concat_tables([empty, *(self.step.shown("sessions", table) for table in rows)])

    def _branch(self, rows: Sequence[Row], task: int) -> RowsOfBranch:
        n = len(rows)
        table = pa.table(
            {
                **{f.name: pa.array([row[f.name] for row in rows], f.type) for f in VISIBLE},
                TIME: pa.array([row["t"] for row in rows], pa.int64()),
                "h": pa.array([hash_of(row["k"], self.hashes) for row in rows], pa.int64()),
                PARTITION: pa.array(np.full(n, task), pa.int32()),
                POSITION: pa.array(range(n), pa.int64()),
            }
        )
        if not len(self.step.keys):
            table = table.set_column(table.schema.get_field_index("h"), "h", pa.array(np.zeros(n, dtype=np.int64)))
        return RowsOfBranch(
            table=table,
            visible=VISIBLE.names,
            keys={name: name for name in self.step.keys.names},
            inputs={name: name for name in ("n", "v", "g")},
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
            late={"s": None},
            close={"s": None},
            manifests={},
            state_folder=str(self.root),
            staging={},
        )
