"""Hold the state of a window step in segments and manifests, as a task of a batch does; each batch opens it anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.protocol import HASHED, Due, Emit, Tally
from penstock.operators.windows.early_step import EarlyWindowStep
from penstock.operators.windows.time_windows import WindowStep
from penstock.operators.windows.window_step import WindowStepWork
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.state.row_layout import HASH
from penstock.state.writer import Change, Written
from tests.support.step_disk import StepDisk


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


class SliceDisk(StepDisk):
    """One partition of the step `w` in a folder; `ref` names its manifest."""

    def __init__(self, spec: WindowStep, root: Path, ref: Mapping[str, Any] | None = None, batches: int = 0) -> None:
        super().__init__("w", root)
        kind = EarlyWindowStep if spec.window.has_early else WindowStepWork
        self.step = kind(window=spec.window, plan=spec.plan, keys=spec.keys)
        self.ref, self.batches = ref, batches
        self.base: Mapping[str, Any] | None = None
        """The manifest of a fold on which the next batch stands."""

    @property
    def work(self) -> Any:
        """Return the step."""
        return self.step

    @property
    def ref(self) -> Mapping[str, Any] | None:
        """Return what names the manifest."""
        return self.refs[0]

    @ref.setter
    def ref(self, ref: Mapping[str, Any] | None) -> None:
        self.refs = [ref]

    def state(self) -> PartitionState:
        """Open what the last batch left."""
        return PartitionState.open(self.root, self.name, 0, self.ref, work=self.step, base=self.base)

    def opened(self, number: int = 0) -> PartitionState:
        """Open the same."""
        assert number == 0
        return self.state()

    def batch(
        self,
        deltas: Sequence[pa.Table],
        *,
        late: int | None,
        close: int | None,
        time: int | None = None,
        before: int | None = None,
    ) -> Batch:
        """Run a batch, and write what it changed; its time is its number, unless given."""
        pieces, due, rows = [], Due(None), 0
        facts = replace(self.facts(late, close, time).of_step("w"), before=before)
        for made in self.worked(0, [[sent(delta) for delta in deltas]], facts):
            match made:
                case Emit():
                    pieces.append(made.rows)
                case Due():
                    due = made
                case Tally():
                    rows += made.counts["merged"]
        self.batches += 1
        output = pa.concat_tables(pieces) if pieces else self.step.outlets[MAIN_OUTLET].empty_table()
        return Batch(output, due.watermark, rows, self.written, due.time)

    def write(self, number: int, state: PartitionState, change: Change) -> Written:
        """Write a change of the state, as the batch that is next."""
        self.written = super().write(number, state, change)
        if self.written.ref is not None:
            self.base = None
        return self.written
