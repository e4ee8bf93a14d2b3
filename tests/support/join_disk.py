"""Run a step of joins as the tasks of a batch do, on state on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from step_disk import StepDisk, hash_of, sooner

from penstock.graph.specs.join import IntervalJoin, JoinKind, OuterJoin
from penstock.operators.join import bind, bind_side
from penstock.operators.protocol import TIME, BoundSide, Due, Emit, StepContext, StepFacts, Tally
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.state.writer import Change, Written

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


class JoinDisk(StepDisk):
    """The partitions of a step `j` of joins by the column `k`."""

    def __init__(
        self, within: tuple[int, int], how: str, root: Path | str, *, partitions: int = 1, hashes: int = 1000
    ) -> None:
        super().__init__("j", root, partitions=partitions, hashes=hashes)
        self.written = 0
        self.use(within, how)

    def use(self, within: tuple[int, int], how: str) -> None:
        """Go on with a join of other bounds, or another kind."""
        of_kind = IntervalJoin if how == "inner" else OuterJoin
        spec = of_kind(earliest=within[0], latest=within[1], how=JoinKind(how))
        self.sides = [
            bind_side(spec, BoundSide(name="j", side=n, keys=KEYS, columns=("k",), visible=VISIBLE[n], inputs={}))
            for n in (0, 1)
        ]
        self.step = bind(spec, self.sides, StepContext(name="j", event=True, timed=True))

    def batch(
        self, rows: Sequence[Sequence[Row]], *, late: int | None, close: int | None, judged: int | None = None
    ) -> Made:
        """Run a batch with these rows of the left and of the right input, which arrive in this order."""
        facts = StepFacts(batch=self.batches, time=self.batches, watermark=close, late=late, judged_least=judged)
        branches = [
            branch
            for side in (0, 1)
            for branch in self.tasks([{"k": k, "t": time, "xy"[side]: n} for k, time, n in rows[side]], side=side)
        ]
        made, arrived = Made(), []
        before: Counter[int | None] = Counter()
        for number, piece in self.pieces(branches, facts):
            match piece:
                case Emit():
                    assert piece.stand is not None
                    places = piece.stand().arrivals(piece.arrivals, depth=1, place=0, before=before[number])
                    before[number] += piece.rows.num_rows
                    times = piece.rows[TIME].to_pylist()
                    arrived += zip(places.to_pylist(), piece.rows.to_pylist(), times, strict=True)
                    made.pieces.append(piece.rows.num_rows)
                case Tally():
                    made.counts.update(piece.counts)
                case Due():
                    made.due = sooner(made.due, piece.watermark)
        for _, row, time in sorted(arrived, key=lambda of: of[0]):
            made.output.append((row["k"], row["x"], row["y"]))
            made.times.append(time)
        return made

    def state(self) -> list[dict[str, Any]]:
        """Return what the main table shows."""
        return self.shown().to_pylist()

    def rescale(self, partitions: int, watermark: int | None) -> int | None:
        """Rebuild the state in another number of partitions from what the tables show; return what is due."""
        return super().rescale(partitions, watermark).watermark

    def refused(self) -> tuple[str, ...]:
        """Return what forbids the step to resume from its state."""
        return self.step.evolution(self.opened()).refused

    def write(self, number: int, state: PartitionState, change: Change) -> Written:
        """Write a change of a partition, and count its bytes."""
        written = super().write(number, state, change)
        self.written += written.written
        return written

    def columns_of(self, side: int) -> pa.Schema:
        """Return the columns of the rows of an input."""
        return VISIBLE[side]
