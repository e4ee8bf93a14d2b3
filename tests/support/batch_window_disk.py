"""Run a step of batch windows as the tasks of a batch do, on state on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from step_disk import Row, StepDisk, sooner

from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import BatchWindows, Form
from penstock.operators.batch_windows.batch_window_step import bind_side, step_of
from penstock.operators.protocol import TIME, BoundSide, Due, Emit, StepContext, StepFacts, Tally

VISIBLE = pa.schema([("k", pa.string()), ("v", pa.int64()), ("s", pa.string()), ("x", pa.float64())])


class BatchWindowDisk(StepDisk):
    """The partitions of a step `w` of batch windows; `keys` are the key columns, of which there is one or none."""

    visible = VISIBLE

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
        returned: pa.Schema | None = None,
        **more: Any,
    ) -> None:
        column = "count" if form is Form.COUNT else value or ""
        self.spec = BatchWindows(window=window, form=form, value=value, column=column, **more)
        bound = BoundSide(
            name="w",
            side=0,
            keys=pa.schema([VISIBLE.field(key) for key in keys]),
            columns=tuple(keys),
            visible=VISIBLE if self.spec.reads(0).rows else None,
            inputs={name: VISIBLE.field(name).type for name in self.spec.reads(0).expressions},
        )
        super().__init__("w", root, partitions=partitions, hashes=hashes)
        self.sides = [bind_side(self.spec, bound)]
        self.step = step_of(self.spec, self.sides[0], StepContext(name="w", event=False, timed=False), returned)
        self.zero, self.interval = zero, interval
        self.before: int | None = None
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
        self.due, self.times = None, []
        emitted: list[dict[str, Any]] = []
        for number, piece in self.pieces([self.branch(rows, task) for task, rows in enumerate(tasks)], facts):
            match piece:
                case Emit():
                    assert number is not None
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
                    self.due = sooner(self.due, piece.time)
        self.before = time
        return emitted

    def state(self) -> list[dict[str, Any]]:
        """Return the state as the main table shows it."""
        return self.shown().to_pylist()

    def rebuild(self, rows: pa.Table, partitions: int, **_: Any) -> Due:
        """Take rows of the main table for the state, at the time of the last batch."""
        return super().rebuild(rows, partitions, time=self.before or 0, zero=self.zero)
