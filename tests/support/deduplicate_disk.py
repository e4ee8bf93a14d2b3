"""Run a step of deduplication as the tasks of a batch do, on state on disk, beside its definition in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from step_disk import Row, StepDisk

from penstock.graph.specs.deduplicate import Deduplicate
from penstock.operators.deduplicate import bind, bind_side
from penstock.operators.protocol import BoundSide, Emit, StepContext, StepFacts, Tally

KEYS = pa.schema([("k", pa.string())])
VISIBLE = pa.schema([("k", pa.string()), ("n", pa.int64())])


class DeduplicateDisk(StepDisk):
    """The partitions of a step `d` that keeps the first row of each `k`; `within` is in microseconds."""

    visible = VISIBLE

    def __init__(self, within: int, root: Path | str, *, partitions: int = 1, hashes: int = 1000) -> None:
        super().__init__("d", root, partitions=partitions, hashes=hashes)
        spec = Deduplicate(within=within)
        bound = BoundSide(name="d", side=0, keys=KEYS, columns=("k",), visible=VISIBLE, inputs={})
        self.sides = [bind_side(spec, bound)]
        self.step = bind(spec, self.sides, StepContext(name="d", event=True, timed=True))
        self.counts: Counter[str] = Counter()

    def batch(self, tasks: Sequence[Sequence[Row]], *, late: int | None, close: int | None) -> list[int]:
        """Run a batch whose rows came in these tasks; return the numbers of the rows that it emits, in order."""
        facts = StepFacts(batch=self.batches, time=self.batches, watermark=close, late=late)
        emitted: list[int] = []
        for _, piece in self.pieces([self.branch(rows, task) for task, rows in enumerate(tasks)], facts):
            match piece:
                case Emit():
                    emitted += piece.rows["n"].to_pylist()
                case Tally():
                    self.counts.update(piece.counts)
        return sorted(emitted)


@dataclass
class DeduplicateModel:
    """SEMANTICS 7.6: the first row of a key in arrival order, until its event time + `within` <= the watermark."""

    within: int
    first: dict[str | None, int] = field(default_factory=dict)
    late: int = 0

    def batch(self, rows: Sequence[Row], *, late: int | None) -> list[int]:
        """Return the numbers of the rows that are emitted."""
        if late is not None:
            self.first = {key: time for key, time in self.first.items() if time + self.within > late}
        emitted = []
        for row in rows:
            if late is not None and row["t"] + self.within <= late:
                self.late += 1
            elif row["k"] not in self.first:
                self.first[row["k"]] = row["t"]
                emitted.append(row["n"])
        return emitted
