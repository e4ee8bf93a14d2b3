"""Describe a Delta table as a sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local import make_folders
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import DeltaJarsMissing, SinkError, SinkSchemaMismatch
from penstock.graph.argument_types import refuse_empty, refuse_other_types
from penstock.sinks.base import (
    CreatingSink,
    MaintainedSink,
    Needed,
    Publisher,
    ReadableSink,
    Target,
    TruncatableSink,
    Upkeep,
)
from penstock.sinks.delta.compaction import compact
from penstock.sinks.delta.data_files import TableFiles
from penstock.sinks.delta.log_entry import make_table_durable
from penstock.sinks.delta.publisher import DeltaPublisher
from penstock.sinks.delta.restore import find_version, put_back
from penstock.sinks.delta.rewritable import refuse_unfit_columns, refuse_unmergeable, why_not_rewritable
from penstock.sinks.delta.table import has_delta, is_plain, load, named_errors, refuse_unfit
from penstock.sinks.delta.unique_keys import refuse_repeated_keys
from penstock.sinks.delta.upsert_publisher import UpsertPublisher
from penstock.sinks.delta.vacuum import vacuum
from penstock.sinks.keys import Mode, checked_keys, how_written

__all__ = ["Delta"]


@dataclass(frozen=True)
class Delta(CreatingSink, TruncatableSink, MaintainedSink, ReadableSink):
    """Describe a Delta table; it is made with the stream's columns if it is not there.

    Args:
        path: The table's folder.
        partition_by: The columns that a new table is partitioned by. Where it is given, a table that is there must be
            partitioned by just these. delta-spark appends to such tables, which is slower.
        mode: `Mode.APPEND` adds each row. `Mode.UPSERT` replaces the row that has the same keys, in any partition; of
            rows of one batch the one that arrived last stays. A session that others replace is deleted.
        keys: The columns of the key, for `Mode.UPSERT`.

    Raises:
        ConfigError: Keys and mode do not go together, or an argument has another type.
    """

    deduplicates = True
    retracts = True

    path: str | Path
    partition_by: Sequence[str] = ()
    mode: Mode = field(default=Mode.APPEND, kw_only=True)
    keys: Sequence[str] = field(default=(), kw_only=True)
    in_order: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        """Refuse one name where names belong, whose letters would be taken for columns, and keys without a use."""
        refuse_other_types(self)
        refuse_empty(self, "path")
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        object.__setattr__(self, "keys", checked_keys(self.mode, self.keys, str(self.path)))
        object.__setattr__(self, "in_order", self.mode is Mode.UPSERT)

    def staging(self, folder: CheckpointFolder) -> CheckpointFolder:
        """Return the table's own folder, or one below the checkpoint where the files are written again."""
        if self.keys:
            return folder
        table = load(Path(self.path))
        plain = not self.partition_by if table is None else is_plain(table)
        return LocalFolder(self.path).resolve() if plain else folder

    def create(self, schema: pa.Schema, spark: Any) -> None:
        """Make the table, or check that the rows fit the one that is there."""
        self.check(schema)
        if load(Path(self.path)) is None:
            self._create(schema)
            self.check(schema)  # another job may have been faster, and its columns are the table's then (F70)
        make_table_durable(Path(self.path).resolve())  # also where somebody has made it who died before it was

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkSchemaMismatch where the rows do not fit the table that is there, or that would be made."""
        table = load(Path(self.path))
        if self.keys:
            partitions = self.partition_by if table is None else table.metadata().partition_columns
            refuse_unfit_columns(schema, self.keys, [n for n in partitions if n in schema.names], str(self.path))
        if table is None:
            missing = [name for name in self.partition_by if name not in schema.names]
            if missing:
                raise SinkSchemaMismatch(
                    f"partition_by names {missing[0]!r}, and the stream has {schema.names}", where=str(self.path)
                )
            return
        refuse_unfit(table, schema, partition_by=self.partition_by, where=str(self.path))
        if self.keys:
            refuse_unmergeable(table, self.keys, str(self.path))
            with named_errors(self.path):
                path = Path(self.path).resolve()
                refuse_repeated_keys(path, TableFiles(table, path), self.keys, str(self.path))

    def ready(self, spark: Any) -> None:
        """Raise DeltaJarsMissing where delta-spark must commit to the table, and the session has it not."""
        if self.keys:
            return
        table = load(Path(self.path))
        if not (bool(self.partition_by) if table is None else not is_plain(table)) or has_delta(spark):
            return
        why = "partition_by" if table is None else "what the table asks of who writes to it"
        raise DeltaJarsMissing(f"{why} needs delta-spark, and the session has no jars of it", where=str(self.path))

    def open(self, staging: CheckpointFolder, spark: Any) -> Publisher:
        """Return the publisher."""
        if self.keys:
            return UpsertPublisher(self.path, self.keys, self.partition_by, staging, spark)
        return DeltaPublisher(self.path, self.partition_by, staging, spark)

    def find_version(self, target: Target) -> int | None:
        """Return the version of the table that is to be put back, None for none; raises CannotTruncate."""
        with named_errors(self.path):
            return find_version(Path(self.path).resolve(), target)

    def truncated(self, app: str) -> int | None:
        """Return the slot of the newest Restore for which rows of the app were taken back, None for none."""
        with named_errors(self.path):
            table = load(Path(self.path))
            return None if table is None else table.transaction_version(f"{app}/truncate")

    def put_back(self, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Put a version in force again, as in `delta.restore.put_back`."""
        with named_errors(self.path):
            return put_back(Path(self.path).resolve(), target, version, slot=slot, newest=newest)

    def read_batches(self, batches: range, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of the newest version; files without rows of these batches are not read."""
        with named_errors(self.path):
            table = load(Path(self.path))
            if table is None:
                raise SinkError("there is no Delta table to read", where=str(self.path))
            within = [("_batch", ">=", batches.start), ("_batch", "<", batches.stop)]
            try:
                return table.to_pyarrow_table(columns=None if columns is None else list(columns), filters=within)
            except pa.ArrowInvalid as why:
                what = f"a file of the table cannot be read: {str(why).splitlines()[0]}"
                raise SinkError(what, where=str(self.path)) from why

    def maintain(self, needed: Needed, *, now: float) -> Upkeep:
        """Join small files, then delete the files that nothing needs; a table that asks for more is left alone."""
        path = Path(self.path).resolve()
        with named_errors(self.path):
            table = load(path)
            if table is None:
                return Upkeep(left_alone="there is no table yet")
            why = why_not_rewritable(table)
            if why is not None:
                return Upkeep(left_alone=f"the table has {why}: OPTIMIZE and VACUUM of Spark maintain it")
            joined, made = compact(path, now=now)
            deleted, size = vacuum(path, needed, now=now)
        return Upkeep(joined=joined, made=made, deleted=deleted, size=size)

    def place(self) -> str:
        """Return the table's folder."""
        return str(Path(self.path).resolve())

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"Delta table {self.path}, {how_written(self.keys)}"

    def _create(self, schema: pa.Schema) -> None:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        columns, path = Schema.from_arrow(schema), str(self.path)
        with named_errors(path):
            make_folders(path)
            try:
                DeltaTable.create(path, columns, mode="ignore", partition_by=list(self.partition_by) or None)
            except DeltaError:
                if not DeltaTable.is_deltatable(path):  # else somebody has made it at the same time
                    raise
