"""Read a Delta table as a stream: the rows that it has, then those of each version that is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.errors import ConfigError, TableUnreadable
from penstock.graph.argument_types import refuse_empty, refuse_other_types
from penstock.graph.policies import OnGap, OnRewrite
from penstock.sources.base import Source
from penstock.sources.delta.columns import columns_of_table, schema_of
from penstock.sources.delta.log import DeltaLog
from penstock.sources.delta.reader import DeltaReader
from penstock.sources.delta.tasks import DeltaTaskReader
from penstock.sources.file.reader import AtMost, files
from penstock.sources.file.systems import file_system
from penstock.sources.starts import Start, Version

__all__ = ["DeltaTable"]


@dataclass(frozen=True)
class DeltaTable(Source):
    """Describe a Delta table whose rows are read once each, in the order of its versions.

    Args:
        path: The folder of the table, or the URL of one on HDFS as `webhdfs://host:9870/tables/orders`.
        start: Where a job without a position begins: at a snapshot of all rows, after the newest version with
            `Start.LATEST`, or with the commit of `version(7)`.
        changes: Whether the change data feed is read: the rows that were inserted, deleted and updated. Columns
            `_change_type`, `_commit_version` and `_commit_timestamp` follow those of the table.
        at_most: How much a batch reads: `files(100)`, or `bytes_(2**30)`. A large file is divided by limits of rows.
        columns: Columns to read, by name, instead of all that the table has at the first start.
        on_gap: What becomes of a job whose next versions or files are gone from the table, as VACUUM does it.
        on_rewrite: What a version means that deletes or updates rows, where `changes` is not set.
        splits: How many tasks read a batch. They divide its rows by row groups.

    Raises:
        ConfigError: A setting is wrong by itself.
    """

    path: str | Path
    _: KW_ONLY
    start: Literal[Start.SNAPSHOT, Start.LATEST] | Version = Start.SNAPSHOT
    changes: bool = False
    at_most: AtMost = files(100)  # noqa: RUF009 - a frozen value
    columns: Sequence[str] | None = None
    on_gap: OnGap = OnGap.FAIL
    on_rewrite: OnRewrite = OnRewrite.FAIL
    splits: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.start, Version) and self.start not in (Start.SNAPSHOT, Start.LATEST):
            raise ConfigError(f"start={self.start!r}; a table is read from Start.SNAPSHOT, Start.LATEST or version(7)")
        refuse_other_types(self)
        refuse_empty(self, "path")
        if self.columns is not None and not self.columns:
            raise ConfigError(f"columns={self.columns!r} is no list of names")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ConfigError(f"columns={list(self.columns)} has a name twice")
        if self.splits < 1:
            raise ConfigError(f"splits is {self.splits}, and a batch needs a task")
        if self.changes and self.on_rewrite is not OnRewrite.FAIL:
            raise ConfigError("changes=True reads what is deleted and updated, so on_rewrite= has no meaning")

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"DeltaTable {self.path}{', its change data feed' if self.changes else ''}"

    def open(self, spark: Any) -> DeltaReader:
        """Return the reader; raises SourceNotFound, TableUnreadable, FolderUnreadable and SourceUnavailable."""
        log = DeltaLog(file_system(self.path))
        newest = log.versions().newest
        table = log.table(newest)
        if table is None:
            raise TableUnreadable("the log has no description of the table that can be read", where=log.where)
        log.refuse_unreadable(table, changes=self.changes)
        start = self.start if isinstance(self.start, Version) else None
        if start is not None and self.changes and start.number <= newest:
            then = log.table(start.number)
            if then is not None:
                log.refuse_unreadable(then, changes=True)
        all_columns = columns_of_table(table, log.where)
        schema = schema_of(all_columns, self.columns, changes=self.changes, where=log.where)
        task = DeltaTaskReader(log.files, schema, table.partition_columns, changes=self.changes)
        return DeltaReader(
            log,
            table,
            task,
            as_of=newest,
            start=Version(newest + 1) if self.start is Start.LATEST else start,
            at_most=self.at_most,
            on_gap=self.on_gap,
            on_rewrite=self.on_rewrite,
            splits=self.splits,
            derived=self.columns is None,
        )
