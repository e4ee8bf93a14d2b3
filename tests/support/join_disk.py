"""Run a step of joins as the tasks of a batch do, on state in segments and manifests that each batch opens anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.specs.join import IntervalJoin, JoinKind, OuterJoin
from penstock.operators.join import JoinStep, bind, bind_side
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

__all__ = ["JoinDisk", "Made", "Row", "hash_of"]

KEYS = pa.schema([("k", pa.string())])
VISIBLE = [pa.schema([("k", pa.string()), (name, pa.int64())]) for name in "xy"]
Row = tuple[str | None, int, int]
"""Key, event time, and the number that the row has in its column."""


@dataclass
class Made:
    """What a batch did: its output in order of arrival, with event times, counts, and what is due."""

    output: list[tuple[str | None, int | None, int | None]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    due: int | None = None


def hash_of(key: str | None, hashes: int) -> int:
    """Return a hash of a key; few hashes make keys share one."""
    return 0 if key is None else (sum(map(ord, key)) * 7919) % hashes


class JoinDisk:
    """The partitions of a step `j` of joins by the column `k`."""

    def __init__(
        self, within: tuple[int, int], how: str, root: Path | str, *, partitions: int = 1, hashes: int = 1000
    ) -> None:
        self.root, self.partitions, self.hashes = Path(root), partitions, hashes
        self.refs: list[dict[str, Any] | None] = [None] * partitions
        self.batches, self.written = 0, 0
        self.use(within, how)

    def use(self, within: tuple[int, int], how: str) -> None:
        """Go on with a join of other bounds, or another kind."""
        of_kind = IntervalJoin if how == "inner" else OuterJoin
        spec = of_kind(earliest=within[0], latest=within[1], how=JoinKind(how))
        self.sides = [
            bind_side(spec, BoundSide(name="j", side=n, keys=KEYS, columns=("k",), visible=VISIBLE[n], inputs={}))
            for n in (0, 1)
        ]
        self.step: JoinStep = bind(spec, self.sides, StepContext(name="j", event=True, timed=True))

    def batch(
        self, rows: Sequence[Sequence[Row]], *, late: int | None, close: int | None, judged: int | None = None
    ) -> Made:
        """Run a batch with these rows of the left and of the right input, which arrive in this order."""
        facts = StepFacts(batch=self.batches, time=self.batches, watermark=close, late=late, judged_least=judged)
        made, arrived = Made(), []
        inputs: list[list[list[pa.Table]]] = [[[], []] for _ in range(self.partitions)]
        for side, map_side in enumerate(self.sides):
            for piece in map_side.prepare(self._branch(rows[side], side), facts):
                match piece:
                    case Send():
                        owner = partition_of(piece.rows[HASHED].to_numpy(), self.partitions)
                        for number in range(self.partitions):
                            inputs[number][side].append(piece.rows.filter(pa.array(owner == number)))
                    case Tally():
                        made.counts.update(piece.counts)
        for number in range(self.partitions):
            arrived += self._state_work(number, inputs[number], facts, made)
        for _, row, time in sorted(arrived, key=lambda of: of[0]):
            made.output.append((row["k"], row["x"], row["y"]))
            made.times.append(time)
        self.batches += 1
        return made

    def state(self) -> list[dict[str, Any]]:
        """Return what the main table shows."""
        return [
            row for number in range(self.partitions) for row in main_table(self.step, self._open(number)).to_pylist()
        ]

    def rescale(self, partitions: int, watermark: int | None) -> int | None:
        """Rebuild the state in another number of partitions from what the tables show; return what is due."""
        rows = pa.concat_tables([main_table(self.step, self._open(number)) for number in range(self.partitions)])
        hashes = [hash_of(key, self.hashes) for key in rows["k"].to_pylist()]
        rows = rows.append_column(HASHED, pa.array(hashes, pa.int64())).sort_by(HASHED)
        owner = partition_of(rows[HASHED].to_numpy(), partitions)
        self.root, self.partitions = self.root / f"rescaled{self.batches}", partitions
        self.root.mkdir()
        self.refs = [None] * partitions
        moment, due = StepFacts(batch=self.batches, time=self.batches, watermark=watermark), []
        for number in range(partitions):
            rebuilt = self.step.rebuilt({MAIN: rows.filter(pa.array(owner == number))}, moment)
            self._write(number, self._open(number), rebuilt.change)
            due.append(rebuilt.due)
        self.batches += 1
        return min((at for at in due if at is not None), default=None)

    def refused(self) -> tuple[str, ...]:
        """Return what forbids the step to resume from its state."""
        return self.step.evolution(self._open(0)).refused

    def _state_work(
        self, number: int, tables: Sequence[list[pa.Table]], facts: StepFacts, made: Made
    ) -> list[tuple[bytes, dict[str, Any], int]]:
        state = self._open(number)
        running = self.step.run(state, tables, facts)
        answer, arrived = None, []
        while True:
            try:
                piece = running.send(answer)
            except StopIteration:
                return arrived
            answer = None
            match piece:
                case Emit():
                    assert piece.stand is not None
                    places = piece.stand().arrivals(piece.arrivals, depth=1, place=0, before=len(arrived))
                    times = piece.rows[TIME].to_pylist()
                    arrived += zip(places.to_pylist(), piece.rows.to_pylist(), times, strict=True)
                    made.pieces.append(piece.rows.num_rows)
                case Tally():
                    made.counts.update(piece.counts)
                case Due():
                    made.due = min(at for at in (made.due, piece.watermark) if at is not None)
                case Change():
                    answer = state.at(self._write(number, state, piece))

    def _open(self, number: int) -> PartitionState:
        return PartitionState.open(LocalFolder(self.root), "j", number, self.refs[number], work=self.step)

    def _write(self, number: int, state: PartitionState, change: Change) -> Any:
        written = state.write(change, TaskFiles(self._context(), self.batches, "0b0"), partitions=self.partitions)
        self.written += written.written
        if written.ref is not None:
            ref = written.ref
            self.refs[number] = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
        return written

    def _branch(self, rows: Sequence[Row], side: int) -> RowsOfBranch:
        n, own = len(rows), VISIBLE[side].names
        table = pa.table(
            {
                "k": pa.array([key for key, _, _ in rows], pa.string()),
                own[1]: pa.array([number for _, _, number in rows], pa.int64()),
                TIME: pa.array([time for _, time, _ in rows], pa.int64()),
                "h": pa.array([hash_of(key, self.hashes) for key, _, _ in rows], pa.int64()),
                PARTITION: pa.array(np.zeros(n), pa.int32()),
                POSITION: pa.array(range(n), pa.int64()),
            }
        )
        keys = {"k": "k"}
        return RowsOfBranch(table=table, visible=own, keys=keys, inputs={}, hash_column="h", place=side, way=0, ways=1)

    def _context(self) -> BatchContext:
        return BatchContext(
            batch=self.batches,
            time=self.batches,
            epoch=1,
            run="0123456789ab",
            spans={},
            late={"j": None},
            close={"j": None},
            manifests={},
            state_folder=str(self.root),
            staging={},
        )
