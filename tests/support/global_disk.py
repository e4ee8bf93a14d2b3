"""Run a step of global windows as the tasks of a batch do, on state on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from step_disk import Row, StepDisk, sooner

from penstock.graph.specs.global_windows import GlobalWindows
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.protocol import TIME, BoundSide, Due, Emit, StepFacts, Tally
from penstock.operators.triggers.global_step import bind_side, step_of

KEYS = pa.schema([("k", pa.string())])
VISIBLE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.float64())])
OUTPUT = pa.schema([("k", pa.string()), ("rows", pa.list_(pa.int64()))])
"""The columns that functions return."""


@dataclass
class Made:
    """What a batch did: the rows of the output, the numbers of late rows, counts, and what is due."""

    output: list[dict[str, Any]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    due: int | None = None
    due_time: int | None = None
    times: list[int] = field(default_factory=list)


def numbers_of(key: Any, view: Any) -> list[dict[str, Any]]:
    """Return the key, the rows of the window by number, and how many there are: a function for `apply`."""
    given = view.current["n"].to_pylist()
    return [{"k": key, "rows": given}]


class GlobalDisk(StepDisk):
    """The partitions of a step `w` of global windows by the column `k`."""

    visible = VISIBLE

    def __init__(
        self,
        spec: GlobalWindows,
        root: Path | str,
        *,
        partitions: int = 1,
        hashes: int = 1000,
        keys: pa.Schema = KEYS,
    ) -> None:
        super().__init__("w", root, partitions=partitions, hashes=hashes)
        self.keys = keys
        self.change_spec(spec)

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
        self.sides = [bind_side(spec, bound)]
        # Only Spark reads DDL, and there is none.
        self.step = step_of(spec, self.side, "w", None if spec.function is None else OUTPUT)

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
        made = Made()
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
        tasks = [self.branch(mine, task) for task, mine in enumerate([rows[:half], rows[half:]])]
        # What arrived last comes first through the shuffle.
        for _, piece in self.pieces(reversed(tasks), facts):
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
                    made.due = sooner(made.due, piece.watermark)
                    made.due_time = sooner(made.due_time, piece.time)
        return made

    def table(self) -> list[dict[str, Any]]:
        """Return the rows of the main table."""
        rows: list[dict[str, Any]] = self.shown().to_pylist()
        return rows

    def rescale(self, partitions: int, time: int, watermark: int | None) -> tuple[int | None, int | None]:
        """Rebuild the state in another number of partitions from what the tables show; return what is due."""
        due = super().rescale(partitions, watermark, time=time)
        return due.watermark, due.time

    def evolution(self) -> Any:
        """Return how the state of the first partition differs from the step."""
        return self.step.evolution(self.opened())
