"""Run an as-of join as the tasks of a batch do, on state in segments and manifests that each batch opens anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.join_arguments import JoinKind
from penstock.graph.specs.join_as_of import AsOfJoin
from penstock.operators.join_as_of import AsOfStep, bind, bind_side
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

KEYS = pa.schema([("k", pa.float64())])
VISIBLE = (pa.schema([*KEYS, ("x", pa.int64())]), pa.schema([*KEYS, ("y", pa.int64())]))
Row = Mapping[str, Any]
"""A row of an input: `k`, `t` in microseconds, and `x` or `y`."""


@dataclass
class Made:
    """What a batch did: pairs with their event times in the order of arrival, counts, and when the step is due."""

    pairs: list[tuple[int, int, int | None]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    due: int | None = None


def hash_of(key: float | None, hashes: int) -> int:
    """Return a hash of a key; few hashes make keys share one."""
    return 0 if key is None or key != key else int(key * 7919) % hashes  # noqa: PLR0124 - NaN


class AsOfDisk:
    """The partitions of a step `s` that joins by the column `k`."""

    def __init__(
        self, root: Path | str, *, within: int, how: JoinKind = JoinKind.LEFT, partitions: int = 1, hashes: int = 1000
    ) -> None:
        spec = AsOfJoin(within=within, how=how)
        self.sides = [
            bind_side(spec, BoundSide(name="s", side=side, keys=KEYS, columns=("k",), visible=VISIBLE[side], inputs={}))
            for side in (0, 1)
        ]
        self.step: AsOfStep = bind(spec, self.sides, StepContext(name="s", event=True, timed=True))
        self.root, self.partitions, self.hashes = Path(root), partitions, hashes
        self.refs: list[dict[str, Any] | None] = [None] * partitions
        self.batches = 0

    def batch(
        self,
        left: Sequence[Row],
        right: Sequence[Row],
        *,
        late: int | None,
        close: int | None,
        judged: int | None = None,
    ) -> Made:
        """Run a batch; rows of each input arrived in their order, the left ones first."""
        made = Made()
        facts = StepFacts(batch=self.batches, time=self.batches, watermark=close, late=late, judged_least=judged)
        inputs: list[list[list[pa.Table]]] = [[[], []] for _ in range(self.partitions)]
        for side, rows in enumerate((left, right)):
            for piece in self.sides[side].prepare(self._branch(side, rows), facts):
                match piece:
                    case Send():
                        owner = partition_of(piece.rows[HASHED].to_numpy(), self.partitions)
                        for number in range(self.partitions):
                            inputs[number][side].append(piece.rows.filter(pa.array(owner == number)))
                    case Tally():
                        made.counts.update(piece.counts)
        emitted: list[tuple[bytes, tuple[int, int, int | None], int]] = []
        for number in range(self.partitions):
            self._state_work(number, inputs[number], facts, made, emitted)
        emitted.sort(key=lambda of: of[0])
        made.pairs = [pair for _, pair, _ in emitted]
        made.times = [time for *_, time in emitted]
        self.batches += 1
        return made

    def held(self) -> list[dict[str, Any]]:
        """Return the rows that the main table shows."""
        return self._shown().to_pylist()

    def rows_in(self, part: str) -> int:
        """Return how many rows the files have of a part, dead ones and superseded ones included."""
        states = [self._open(number) for number in range(self.partitions)]
        return sum(table.num_rows for state in states for table in state.scan(part))

    def rescale(self, partitions: int, watermark: int | None) -> None:
        """Rebuild the state in another number of partitions from what the tables show."""
        rows = self._shown()
        rows = rows.append_column(HASHED, pa.array([hash_of(k, self.hashes) for k in rows["k"].to_pylist()]))
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

    def _state_work(
        self,
        number: int,
        tables: list[list[pa.Table]],
        facts: StepFacts,
        made: Made,
        emitted: list[tuple[bytes, tuple[int, int, int | None], int]],
    ) -> None:
        state, before = self._open(number), 0
        for piece in self.step.run(state, tables, facts):
            match piece:
                case Emit():
                    assert piece.rows.drop_columns([TIME]).schema == self.step.outlets[""]
                    assert piece.stand is not None
                    places = piece.stand().arrivals(None, depth=1, place=2, before=before)
                    before += piece.rows.num_rows
                    columns = (piece.rows[name].to_pylist() for name in ("x", "y", TIME))
                    emitted += [
                        (place, (at, x, y), at) for place, x, y, at in zip(places.to_pylist(), *columns, strict=True)
                    ]
                case Tally():
                    made.counts.update(piece.counts)
                case Due():
                    made.due = min((d for d in (made.due, piece.watermark) if d is not None), default=None)
                case Change():
                    self._write(number, state, piece)

    def _open(self, number: int) -> PartitionState:
        return PartitionState.open(LocalFolder(self.root), "s", number, self.refs[number], work=self.step)

    def _write(self, number: int, state: PartitionState, change: Change) -> None:
        written = state.write(change, TaskFiles(self._context(), self.batches, "0b0"), partitions=self.partitions)
        if written.ref is not None:
            ref = written.ref
            self.refs[number] = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}

    def _shown(self) -> pa.Table:
        return pa.concat_tables([main_table(self.step, self._open(number)) for number in range(self.partitions)])

    def _branch(self, side: int, rows: Sequence[Row]) -> RowsOfBranch:
        n = len(rows)
        table = pa.table(
            {
                **{f.name: pa.array([row[f.name] for row in rows], f.type) for f in VISIBLE[side]},
                TIME: pa.array([row["t"] for row in rows], pa.int64()),
                "h": pa.array([hash_of(row["k"], self.hashes) for row in rows], pa.int64()),
                PARTITION: pa.array(np.zeros(n), pa.int32()),
                POSITION: pa.array(range(n), pa.int64()),
            }
        )
        return RowsOfBranch(
            table=table,
            visible=VISIBLE[side].names,
            keys={"k": "k"},
            inputs={},
            hash_column="h",
            place=side,
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
