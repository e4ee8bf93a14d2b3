"""Put the state of a window step in one partition into segments: what the slices read, and what a batch leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.partial_tables import HASH
from penstock.operators.time_windows import StepResult, WindowStep
from penstock.operators.window_strategies import FRONT, LATE, SLICES
from penstock.runtime.staging import TaskFiles
from penstock.state import (
    SLACK_BYTES,
    Change,
    Manifest,
    StateReader,
    Written,
    check_partition,
    segment_name,
    write_batch,
)
from penstock.state import ManifestRef as StateRef

__all__ = ["PartitionState"]

_LAYOUT = "layout"


class PartitionState:
    """Hold the state of one partition as the last Commit left it; a `SliceSource` for the window's step."""

    def __init__(self, reader: StateReader, work: WindowStep) -> None:
        self.reader = reader
        self.work = work
        self.layout = work.layout

    @classmethod
    def open(cls, root: Path, step: str, partition: int, ref: Mapping[str, Any] | None, *, work: WindowStep) -> Self:
        """Open what a Commit names; without a reference the partition is empty.

        Raises StateMissing and CheckpointCorrupt.
        """
        folder = root / step / str(partition)
        if ref is None:
            return cls(StateReader(folder, Manifest(step=step, partition=partition, keys=tuple(work.keys.names))), work)
        manifest = Manifest.read(folder / ref["path"], StateRef(ref["path"], ref["size"], ref["checksum"]))
        return cls(StateReader(folder, manifest), work)

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps: keys, aggregates and windows."""
        keys = ", ".join(f"{field.name} {field.type}" for field in self.work.keys)
        kept = ", ".join(f"{a.kind.value}({a.expression or ''}) {a.result}" for a in self.work.plan.aggregates)
        window = self.work.window
        return f"[{keys}] {kept} in windows of {window.size} us every {window.every} us from {window.offset}"

    @property
    def written_as(self) -> str:
        """Return in words what the state was written as."""
        return str(self.facts.get(_LAYOUT, self.layout_name))

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return the facts of the last `StepResult`; none before the first."""
        return self.reader.facts

    def scan(self, part: str, lo: int, hi: int) -> Sequence[pa.Table]:
        """Return the rows with lo <= `_group` < hi, zero-copy, one table a run."""
        return self.reader.scan(part, lo, hi, self._schema(part))

    def groups(self, part: str) -> npt.NDArray[np.int64]:
        """Return the distinct groups that have rows."""
        return self.reader.groups(part)

    def refuse_strangers(self, deltas: Sequence[pa.Table], partition: int, partitions: int, step: str) -> None:
        """Raise WrongPartition when a row is another partition's: each task checks, because Spark may not (FACTS 5)."""
        for delta in deltas:
            check_partition(delta[HASH].to_numpy(), partition, partitions, step=step)

    def write(self, result: StepResult, files: TaskFiles, *, partitions: int) -> Written:
        """Write what the batch changed, compact within the budget, and return the new manifest's reference.

        The slack of compaction, 1 MiB a batch, is shared among the step's partitions.
        """
        facts = files.facts
        name = segment_name(facts.batch, epoch=facts.epoch, attempt=files.attempt, run=facts.run)
        change = Change(
            append=result.append,
            replace=result.replace,
            floors=dict.fromkeys((SLICES, FRONT, LATE), result.floor),
            facts={**result.facts, _LAYOUT: self.layout_name},
        )
        combine = self.layout.combine
        return write_batch(
            self.reader,
            name,
            change,
            batch=facts.batch,
            merge={SLICES: combine, LATE: combine},
            slack=SLACK_BYTES // partitions,
        )

    def _schema(self, part: str) -> pa.Schema | None:
        return None if part == FRONT else self.layout.schema
