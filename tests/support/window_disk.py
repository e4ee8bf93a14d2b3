"""Run a step of event-time windows as the tasks of a batch do, on state on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from step_disk import Row, StepDisk, sooner

from penstock.graph.specs.time_windows import WindowSpec
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.protocol import TIME, BoundSide, Due, Emit, RowsOfBranch, StepContext, StepFacts
from penstock.operators.registry import operator_of
from penstock.operators.windows.applied_windows import AppliedFunction
from penstock.operators.windows.panes import PANE_FIELDS
from penstock.state.hashing import hash_columns, normalise


@dataclass
class Made:
    """What a batch did: rows of the output in the order of arrival of each partition, their times, and late rows."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    due: int | None = None


class WindowDisk(StepDisk):
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
        retracts: bool = False,
    ) -> None:
        super().__init__("w", root, partitions=partitions)
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
        self.sides = [operator.bind_side(spec, bound)]
        step = operator.bind(
            replace(spec, function=None), self.sides, StepContext(name="w", event=True, timed=True, retracts=retracts)
        )
        if output is not None:
            more = PANE_FIELDS if spec.window.has_panes else ()
            step = replace(step, applied=AppliedFunction("w", fn, output, pa.schema([*output, *more])))
        self.step = step
        self.spec, self.visible, self.keys, self.time = spec, visible, of_keys, time

    def batch(self, tasks: Sequence[Sequence[Row]], *, late: int | None, close: int | None) -> Made:
        """Run a batch whose rows came in these tasks; arrival is by task, then by place."""
        made = Made()
        facts = StepFacts(
            batch=self.batches, time=self.batches, watermark=close, late=late, read=frozenset({"late", "quarantine"})
        )
        for _, piece in self.pieces([self.branch(rows, task) for task, rows in enumerate(tasks)], facts):
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
                    made.due = sooner(made.due, piece.watermark)
        return made

    def hashed(self, rows: pa.Table) -> pa.Array:
        """Return the hash of each row's keys, as of all columns."""
        columns = [normalise(rows[name].combine_chunks()) for name in self.keys.names]
        return pa.array(hash_columns(columns, rows.num_rows))

    def branch(self, rows: Sequence[Row], task: int = 0, *, side: int = 0) -> RowsOfBranch:
        """Return the rows of a task, with their keys as they are compared."""
        branch = super().branch(rows, task, side=side)
        table = branch.table
        for name in self.keys.names:
            table = table.append_column(f"_k_{name}", normalise(table[name].combine_chunks()))
        return replace(branch, table=table, keys={name: f"_k_{name}" for name in self.keys.names})
