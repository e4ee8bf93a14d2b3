"""Hold the state of a window step in segments and manifests, as a task of a batch does; each batch opens it anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.protocol import HASHED, Due, Emit, Tally
from penstock.operators.windows.early_step import EarlyWindowStep
from penstock.operators.windows.time_windows import WindowStep
from penstock.operators.windows.window_step import WindowStepWork
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.staging import TaskFiles
from penstock.state.row_layout import HASH
from penstock.state.writer import Change, Written


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch left: the output, with event times, and what was written of the state."""

    output: pa.Table
    due: int | None
    rows: int
    written: Written
    due_time: int | None = None


def sent(delta: pa.Table) -> pa.Table:
    """Return slices as the map side sends them through the shuffle."""
    return delta.rename_columns({HASH: HASHED})


class SliceDisk:
    """One partition of the step `w` in a folder; `ref` names its manifest."""

    def __init__(self, spec: WindowStep, root: Path, ref: Mapping[str, Any] | None = None, batches: int = 0) -> None:
        kind = EarlyWindowStep if spec.window.has_early else WindowStepWork
        self.work = kind(window=spec.window, plan=spec.plan, keys=spec.keys)
        self.root, self.ref, self.batches = root, ref, batches
        self.base: Mapping[str, Any] | None = None
        """The manifest of a fold on which the next batch stands."""

    def state(self) -> PartitionState:
        """Open what the last batch left."""
        return PartitionState.open(self.root, "w", 0, self.ref, work=self.work, base=self.base)

    def batch(
        self, deltas: Sequence[pa.Table], *, late: int | None, close: int | None, time: int | None = None
    ) -> Batch:
        """Run a batch, and write what it changed; its time is its number, unless given."""
        state, pieces, change, due, rows = self.state(), [], Change(), Due(None), 0
        facts = self.facts(late, close, time).of_step("w")
        for made in self.work.run(state, [[sent(delta) for delta in deltas]], facts):
            match made:
                case Emit():
                    pieces.append(made.rows)
                case Change():
                    change = made
                case Due():
                    due = made
                case Tally():
                    rows += made.counts["merged"]
        written = self.write(state, change)
        self.batches += 1
        output = pa.concat_tables(pieces) if pieces else self.work.outlets[MAIN_OUTLET].empty_table()
        return Batch(output, due.watermark, rows, written, due.time)

    def write(self, state: PartitionState, change: Change) -> Written:
        """Write a change of the state, as the batch that is next."""
        written = state.write(change, TaskFiles(self.facts(None, None), self.batches, "0b0"), partitions=1)
        if written.ref is not None:
            self.ref, self.base = (
                {"path": written.ref.path, "size": written.ref.size, "checksum": written.ref.checksum},
                None,
            )
        return written

    def facts(self, late: int | None, close: int | None, time: int | None = None) -> BatchContext:
        """Return what the tasks of the next batch are told."""
        return BatchContext(
            batch=self.batches,
            time=self.batches if time is None else time,
            epoch=1,
            run="0123456789ab",
            spans={},
            late={"w": late},
            close={"w": close},
            manifests={},
            state_folder=str(self.root),
            staging={},
        )
