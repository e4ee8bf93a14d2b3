"""Read and write the state of one step in one partition, as the last Commit left it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.operators.protocol import HASHED, LAYOUT, MAIN, StateLayout, StateView, Step
from penstock.runtime.tasks.staging import TaskFiles
from penstock.state.compaction_planner import SLACK_BYTES
from penstock.state.full_compaction import live_rows
from penstock.state.keys import check_partition
from penstock.state.limits import check_rows
from penstock.state.manifest import Manifest
from penstock.state.manifest import ManifestRef as StateRef
from penstock.state.reader import Adapters
from penstock.state.references import segment_name
from penstock.state.section_reader import retain
from penstock.state.writer import Change, Written, write_changes, write_manifest

__all__ = ["PartitionState", "main_table"]


class PartitionState(StateView):
    """The state of one partition, which a batch may write."""

    rebased = False
    """Whether a fold has taken the place of what the last Commit named."""

    @classmethod
    def open(
        cls,
        root: CheckpointFolder,
        step: str,
        partition: int,
        ref: Mapping[str, Any] | None,
        *,
        work: StateLayout,
        base: Mapping[str, Any] | None = None,
    ) -> Self:
        """Open what a Commit names; without a reference the partition is empty.

        With a `base`, the reference of a fold's manifest, the fold replaces the runs that it contains.
        Raises StateMissing and CheckpointCorrupt.
        """
        folder = root / step / str(partition)
        if ref is None:
            retain(folder, {})
            return cls(folder, Manifest(step=step, partition=partition, keys=tuple(work.keys.names)), work, Adapters())
        manifest = _read(folder, ref)
        state = cls(folder, manifest if base is None else manifest.rebased(_read(folder, base)), work)
        state.rebased = base is not None
        # Only by what a Commit names: a batch that ends before its own is computed again, from the same files.
        retain(folder, state.manifest.sizes)
        return state

    def at(self, written: Written) -> StateView:
        """Return the state as a batch has left it."""
        # What reads the state before has written it, and reads it. To make it anew costs more, and few steps look.
        return StateView(self.folder, written.manifest, self.layout, self.adapt)

    def refuse_strangers(self, tables: Sequence[pa.Table], partitions: int) -> None:
        """Raise WrongPartition when a row is another partition's: each task checks, because Spark may not (FACTS 5)."""
        own = self.manifest
        for table in tables:
            check_partition(table[HASHED].to_numpy(), own.partition, partitions, step=own.step)

    def write(self, change: Change, files: TaskFiles, *, partitions: int) -> Written:
        """Write what the batch changed, compact within the budget, and return the new manifest's reference.

        The slack of compaction, 1 MiB a batch, is shared among the step's partitions.
        """
        facts = files.facts
        name = segment_name(facts.batch, epoch=facts.epoch, attempt=files.attempt, run=facts.run)
        # Facts are written only with a change, so that a batch that changes nothing writes nothing.
        kept = self.facts if change.facts is None else change.facts
        if change.append or change.replace or change.floors or change.facts is not None:
            change = replace(change, facts={**kept, **self.layout.described, LAYOUT: self.layout.layout_name})
        for tables in (change.append, change.replace):
            for part, table in tables.items():
                check_rows(table, self.layout.keys.names, step=self.manifest.step, part=part, cap=facts.row_cap)
        slack = SLACK_BYTES // partitions
        parts, behind = self.layout.parts, facts.behind
        written = write_changes(self, name, change, batch=facts.batch, parts=parts, slack=slack, behind=behind)
        if written.ref is None and self.rebased:
            return replace(written, ref=write_manifest(self.folder, name, written.manifest))
        return written


def main_table(step: Step, state: StateView) -> pa.Table:
    """Return the main table of a partition: what is kept for each key, or for each key and slice."""
    parts = [name for name, part in step.parts.items() if part.table == MAIN]
    tables = [step.shown(part, rows) for part in parts for rows in live_rows(state, part, step.parts)]
    return pa.concat_tables(tables) if tables else step.tables[MAIN].empty_table()


def _read(folder: CheckpointFolder, ref: Mapping[str, Any]) -> Manifest:
    return Manifest.read(folder / ref["path"], StateRef(ref["path"], ref["size"], ref["checksum"]))
