"""Make a data checkpoint: fold each step's segments, and show the same rows in its Delta table (DESIGN 5). No Spark.

The helper reads only files that a Commit names, so it runs beside the batches that follow. It is a process of its own
at low priority: `python -m penstock.runtime.snapshots.writer ORDER ANSWER`, two files of the driver's. It ends when its
standard input does, which is when the driver has gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import PenstockError
from penstock.operators.protocol import MAIN, TIMERS, Step
from penstock.runtime.snapshots.catalog import (
    PARTITION,
    SnapshotVersion,
    forget_old,
    storable,
    table_path,
    versions,
    write_record,
)
from penstock.runtime.snapshots.delta_table import (
    BATCH,
    EPOCH,
    RUN,
    Files,
    files_of,
    is_ours,
    names_in,
    open_table,
    refuse_newer,
    working_copy,
)
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.state.full_compaction import fold, live_rows
from penstock.state.manifest import Manifest
from penstock.state.references import segment_name

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["SnapshotOrder", "StepTaken", "Taken", "answer", "take_snapshots", "taken_of"]

_AT_ONCE = 2**23
"""Bytes of segments that are folded at a time: pieces of work short beside a batch."""
_SETTINGS = {"delta.logRetentionDuration": "interval 7 days"}

NICE = 19
"""A hundredth of a processor where the batches want all of them; they leave gaps."""


@dataclass(frozen=True, kw_only=True)
class SnapshotOrder:
    """The order of a data checkpoint, which the driver sends to its helper process.

    Attributes:
        uuid: The checkpoint's id.
        folder: The job's checkpoint folder.
        commit: The Commit of the batch, as JSON.
        named: The batch id in the names of new segments: one that no sweep goes beyond.
        works: The steps with state, by name.
        epoch: The driver's epoch.
        run: The driver's run.
        keep: How many versions of each table stay readable.
        since: For steps whose last data checkpoint this driver has made, its batch. Partitions without later changes
            stay as they are.
        rest: How long to rest after each piece of work, as a multiple of the time it took.
    """

    uuid: str
    folder: CheckpointFolder
    commit: str
    named: int
    works: Mapping[str, Step]
    epoch: int
    run: str
    keep: int
    since: Mapping[str, int] = field(default_factory=dict)
    rest: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StepTaken:
    """The data checkpoint of a step: the table's version, its rows and bytes, and the new base of each partition."""

    version: int
    rows: int
    bytes: int
    bases: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A data checkpoint: that of each step, and how many seconds it took."""

    steps: Mapping[str, StepTaken]
    seconds: float


def take_snapshots(order: SnapshotOrder) -> Taken:
    """Fold and show the state of all steps; raises what reading state and writing Delta tables raises."""
    began = time.monotonic()
    commit = Commit.model_validate_json(order.commit)
    steps = {step: _StepWriter(order, commit, step).take() for step in order.works if step in commit.state}
    seconds = time.monotonic() - began
    forget_old(order.folder, steps, order.keep, epoch=order.epoch)
    return Taken(steps=steps, seconds=seconds)


class _StepWriter:
    """Make the data checkpoint of one step."""

    def __init__(self, order: SnapshotOrder, commit: Commit, step: str) -> None:
        self.order, self.commit, self.step = order, commit, step
        self.work = order.works[step]
        self.folder = order.folder
        self.bases: dict[str, dict[str, Any]] = {}
        self.bytes = 0
        root = self.folder / "state"
        self.partitions = {
            int(name): PartitionState.open(root, step, int(name), ref.model_dump(), work=self.work)
            for name, ref in commit.state[step].items()
        }

    def take(self) -> StepTaken:
        """Write the tables, the base and the record."""
        before = next(iter(reversed(versions(self.folder, self.step))), None)
        known, known_timers = (before.files, before.timer_files) if before is not None else ({}, {})
        timers, timer_files = None, Files()
        if TIMERS in self.work.tables:
            timers, _, timer_files = self._write(TIMERS, self._timers, known_timers)
        version, rows, files = self._write(MAIN, self._fold, known)
        record = SnapshotVersion(
            step=self.step,
            layout=self.work.layout_name,
            keys=self.work.keys.names,
            version=version,
            rows=rows,
            files=files,
            timers=timers,
            timer_files=timer_files,
            commit=self.commit,
        )
        write_record(self.folder, record)
        return StepTaken(version=record.version, rows=record.rows, bytes=self.bytes, bases=self.bases)

    def _path(self, table: str) -> CheckpointFolder:
        return table_path(self.folder, self.step, table)

    def _fold(self, changed: Collection[int]) -> Iterator[pa.Table]:
        """Fold partitions, and yield what the main table shows of them."""
        parts = self.work.parts
        for number in changed:
            reader = self.partitions[number]
            name = segment_name(self.order.named, epoch=self.order.epoch, attempt=number, run=self.order.run)
            folding = fold(reader, name, batch=self.order.named, parts=parts, at_once=_AT_ONCE)
            while True:
                try:
                    part, rows = next(folding)
                except StopIteration as done:
                    ref = done.value
                    break
                if part in parts and parts[part].table == MAIN:
                    yield _placed(self.work.shown(part, rows), number)
            self.bytes += ref.size + Manifest.read(reader.folder / ref.path, ref).size
            self.bases[str(number)] = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}

    def _timers(self, changed: Collection[int]) -> Iterator[pa.Table]:
        """Yield the timers of partitions."""
        parts = self.work.parts
        for number in changed:
            reader = self.partitions[number]
            for part in [name for name, part in parts.items() if part.table == TIMERS]:
                for rows in live_rows(reader, part, parts):
                    yield _placed(self.work.shown(part, rows), number)

    def _write(
        self, table: str, rows: Callable[[Collection[int]], Iterator[pa.Table]], known: Files
    ) -> tuple[int, int, Files]:
        """Put the partitions that have changed in the place of what the table has of them.

        Returns the new version, its rows and its files; `known` are files of the one before, which it may have as well.
        """
        with working_copy(self._path(table)) as copy:
            made = self._commit(table, copy, rows, known)
            count = sum(pa.table(made.get_add_actions())["num_records"].to_pylist())
            return made.version(), count, files_of(made, copy, self._path(table), known)

    def _commit(
        self, table: str, copy: Path, rows: Callable[[Collection[int]], Iterator[pa.Table]], files: Files
    ) -> DeltaTable:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        batch, app = self.commit.batch, f"{self.order.uuid}/snapshots/{self._path(table).name}"
        existing = open_table(copy)
        known = None if existing is None else existing.transaction_version(app)
        refuse_newer(existing, self.order.epoch, self.step)
        # Also where somebody has edited it, or its log is damaged: what did not change in the state may have there.
        whole = known is None or self.order.since.get(self.step) != known or not is_ours(existing)
        whole = whole or existing is None or names_in(existing) != files.keys()
        changed = [n for n, state in self.partitions.items() if whole or state.manifest.batch > (known or 0)]
        schema = pa.schema([*storable(self.work.tables[table]), pa.field(PARTITION, pa.int32())])
        feed = _Feed(rows(changed), schema, self.order.rest)
        copy.mkdir(parents=True, exist_ok=True)
        try:
            write_deltalake(
                copy,
                pa.RecordBatchReader.from_batches(schema, feed.batches()),
                mode="overwrite",
                partition_by=[PARTITION],
                schema_mode="overwrite" if whole else None,
                # Without a partition that changed there is a version all the same, which says of what batch it is.
                predicate=None if whole else f"{PARTITION} IN ({', '.join(map(str, changed)) or -1})",
                configuration=_SETTINGS if existing is None else None,
                commit_properties=CommitProperties(
                    custom_metadata={BATCH: str(batch), EPOCH: str(self.order.epoch), RUN: self.order.run},
                    app_transactions=[Transaction(app, batch)],
                ),
            )
        except Exception:
            if feed.error is not None:
                raise feed.error from None
            raise
        # Not just the newest version: another driver's may follow it.
        made = next(commit for commit in DeltaTable(copy).history(5) if commit.get(RUN) == self.order.run)
        return DeltaTable(copy, version=made["version"])


class _Feed:
    """Give rows to the writer, and keep the error of ours that it would tell in words of its own."""

    def __init__(self, rows: Iterator[pa.Table], schema: pa.Schema, rest: float) -> None:
        self._rows, self._schema, self._rest = rows, schema, rest
        self.error: Exception | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the columns of the table."""
        try:
            began = time.monotonic()
            for table in self._rows:
                yield from table.cast(self._schema).to_batches()
                # What it took includes the writer's part, who asks for the next rows when these are written.
                time.sleep(self._rest * (time.monotonic() - began))
                began = time.monotonic()
        except Exception as why:
            self.error = why
            raise


def _placed(rows: pa.Table, partition: int) -> pa.Table:
    return rows.append_column(PARTITION, pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows))


def answer(order: SnapshotOrder) -> dict[str, Any]:
    """Return what was made as JSON values, or what went wrong in words."""
    try:
        return {"taken": asdict(take_snapshots(order))}
    except Exception as why:  # noqa: BLE001 - no error stops the batches, and the driver logs it
        return {"failed": str(why) if isinstance(why, PenstockError) else f"{type(why).__name__}: {why}"}


def taken_of(answered: Mapping[str, Any]) -> Taken:
    """Return the data checkpoint in an answer of the helper."""
    return Taken(
        steps={step: StepTaken(**made) for step, made in answered["steps"].items()}, seconds=answered["seconds"]
    )


def main() -> None:
    """Do what the order in a file says, and answer in another."""
    from pyspark import cloudpickle

    os.nice(NICE)
    # It is in the background of the driver's terminal, which may stop who writes from there (`stty tostop`).
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    pa.set_cpu_count(1)
    # The driver writes nothing: what ends this wait is that it has gone, and then nobody wants the answer.
    threading.Thread(target=lambda: (sys.stdin.buffer.read(1), os._exit(1)), daemon=True).start()
    order_file, answer_file = Path(sys.argv[1]), Path(sys.argv[2])
    order = cloudpickle.loads(order_file.read_bytes())
    part = answer_file.with_suffix(".part")
    part.write_text(json.dumps(answer(order)))
    part.rename(answer_file)
    os._exit(0)


if __name__ == "__main__":
    main()
