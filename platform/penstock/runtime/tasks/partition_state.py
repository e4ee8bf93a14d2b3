"""Read and write the state of one step in one partition, as the last Commit left it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.operators.protocol import LAYOUT, MAIN, StateLayout, Step
from penstock.runtime.tasks.staging import TaskFiles
from penstock.state.compaction_planner import SLACK_BYTES
from penstock.state.full_compaction import live_rows
from penstock.state.keys import Bools, Ints, check_partition
from penstock.state.limits import check_rows
from penstock.state.manifest import Manifest
from penstock.state.manifest import ManifestRef as StateRef
from penstock.state.reader import StateReader
from penstock.state.references import segment_name
from penstock.state.writer import Change, Written, write_changes, write_manifest

__all__ = ["PartitionState", "main_table"]


class PartitionState:
    """The state of one partition as the last Commit left it."""

    def __init__(
        self, reader: StateReader | Callable[[], StateReader], work: StateLayout, *, rebased: bool = False
    ) -> None:
        self._reader = reader
        self.work = work
        self._rebased = rebased

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
            return cls(StateReader(folder, Manifest(step=step, partition=partition, keys=tuple(work.keys.names))), work)
        manifest = _read(folder, ref)
        if base is None:
            return cls(StateReader(folder, manifest, work.adapters(manifest.facts)), work)
        rebased = manifest.rebased(_read(folder, base))
        return cls(StateReader(folder, rebased, work.adapters(manifest.facts)), work, rebased=True)

    @property
    def reader(self) -> StateReader:
        """Return what reads its segments, made when somebody reads them."""
        if callable(self._reader):
            self._reader = self._reader()
        return self._reader

    @property
    def written_as(self) -> str:
        """Return in words what the state was written as."""
        return str(self.facts.get(LAYOUT, self.work.layout_name))

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return the facts of the last change; none before the first."""
        return self.reader.facts

    def schema(self, part: str) -> pa.Schema | None:
        """Return the columns of a part, as its newest rows have them; None for a part without rows."""
        return self.reader.schema(part)

    def scan(
        self, part: str, group_from: int | None, group_to: int | None, schema: pa.Schema | None = None
    ) -> Sequence[pa.Table]:
        """Return the rows with group_from <= `_group` < group_to, zero-copy, one table a run."""
        return self.reader.scan(part, group_from, group_to, schema)

    def lookup(self, part: str, hashes: Ints, keys: pa.Table, *, schema: pa.Schema) -> tuple[Bools, pa.Table]:
        """Return which keys have a row, and a row for each; hashes are sorted."""
        return self.reader.lookup(part, hashes, keys, schema=schema)

    def rows_of(
        self, part: str, hashes: Ints, keys: pa.Table, groups: tuple[int | None, int | None], *, schema: pa.Schema
    ) -> tuple[Ints, pa.Table]:
        """Return all rows of keys in a range of groups, and of each row the place of its key; hashes are sorted."""
        return self.reader.rows_of(self.work.parts[part], hashes, keys, groups, schema)

    def groups(self, part: str) -> npt.NDArray[np.int64]:
        """Return the distinct groups that have rows."""
        return self.reader.groups(part)

    def first_group(self, part: str, at_least: int | None) -> int | None:
        """Return the least group, not below `at_least`, that has rows."""
        return self.reader.first_group(part, at_least)

    def at(self, written: Written) -> PartitionState:
        """Return the state as a batch has left it; few steps read it, and only they pay for a reader."""
        folder, manifest, work = self.reader.folder, written.manifest, self.work
        return PartitionState(lambda: StateReader(folder, manifest, work.adapters(manifest.facts)), work)

    def refuse_strangers(
        self, tables: Sequence[pa.Table], partition: int, partitions: int, step: str, *, hashes: str | None = None
    ) -> None:
        """Raise WrongPartition when a row is another partition's: each task checks, because Spark may not (FACTS 5)."""
        for table in tables:
            column = table[self.work.hash_column if hashes is None else hashes]
            check_partition(column.to_numpy(), partition, partitions, step=step)

    def write(self, change: Change, files: TaskFiles, *, partitions: int) -> Written:
        """Write what the batch changed, compact within the budget, and return the new manifest's reference.

        The slack of compaction, 1 MiB a batch, is shared among the step's partitions.
        """
        facts = files.facts
        name = segment_name(facts.batch, epoch=facts.epoch, attempt=files.attempt, run=facts.run)
        # Facts are written only with a change, so that a batch that changes nothing writes nothing.
        kept = self.facts if change.facts is None else change.facts
        if change.append or change.replace or change.floors or change.facts is not None:
            change = replace(change, facts={**kept, **self.work.described, LAYOUT: self.work.layout_name})
        for tables in (change.append, change.replace):
            for part, table in tables.items():
                check_rows(table, self.work.keys.names, step=self.reader.manifest.step, part=part, cap=facts.row_cap)
        slack = SLACK_BYTES // partitions
        parts, behind = self.work.parts, facts.behind
        written = write_changes(self.reader, name, change, batch=facts.batch, parts=parts, slack=slack, behind=behind)
        if written.ref is None and self._rebased:
            return replace(written, ref=write_manifest(self.reader.folder, name, written.manifest))
        return written


def main_table(step: Step, state: PartitionState) -> pa.Table:
    """Return the main table of a partition: what is kept for each key, or for each key and slice."""
    parts = [name for name, part in step.parts.items() if part.table == MAIN]
    tables = [step.shown(part, rows) for part in parts for rows in live_rows(state.reader, part, step.parts)]
    return pa.concat_tables(tables) if tables else step.tables[MAIN].empty_table()


def _read(folder: CheckpointFolder, ref: Mapping[str, Any]) -> Manifest:
    return Manifest.read(folder / ref["path"], StateRef(ref["path"], ref["size"], ref["checksum"]))
