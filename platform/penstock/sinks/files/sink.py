"""Describe folders of files that a stream writes: Parquet and JSON lines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import ConfigError
from penstock.sinks.base import (
    CreatingSink,
    MaintainedSink,
    Needed,
    Publisher,
    Target,
    TaskForm,
    TruncatableSink,
    Upkeep,
)
from penstock.sinks.files.folders import OutputFolder, output_folder
from penstock.sinks.files.formats import FileFormat, JsonLinesFormat, ParquetFormat
from penstock.sinks.files.layout import Layout, check_layout, extend_layout
from penstock.sinks.files.manifest import PublishedFile, published_files
from penstock.sinks.files.partitions import check_partitions
from penstock.sinks.files.publisher import FilePublisher
from penstock.sinks.files.sweep import sweep
from penstock.sinks.files.truncation import find_version, put_back, truncated

__all__ = ["FolderSink", "JsonLines", "Parquet"]


class FolderSink(CreatingSink, TruncatableSink, MaintainedSink):
    """A folder that each batch adds files to, and a manifest of them."""

    deduplicates = True

    path: str | Path
    partition_by: Sequence[str] = ()

    @property
    @abstractmethod
    def format(self) -> FileFormat:
        """How rows become files."""

    def task_form(self) -> TaskForm:
        """Return how tasks with many rows write the files of the folder."""
        return TaskForm(format=self.format.name, partition_by=tuple(self.partition_by))

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkSchemaMismatch where the rows do not fit the files that are there, or the format."""
        check_partitions(schema, self.partition_by)
        self.format.check(schema)
        check_layout(self._folder(), self._layout(schema))

    def create(self, schema: pa.Schema, spark: Any) -> None:
        """Note in the folder what its files have in common; makes the folder."""
        self.check(schema)
        extend_layout(self._folder(), self._layout(schema))

    def open(self, staging: CheckpointFolder, spark: Any) -> Publisher:
        """Return the publisher."""
        return FilePublisher(self._folder(), staging, self.format, self.partition_by)

    def find_version(self, target: Target) -> int | None:
        """Return how far rows are taken back, None for nothing; raises CannotTruncate where a later restore did."""
        return find_version(self._folder(), target)

    def truncated(self, app: str) -> int | None:
        """Return the slot of the newest Restore for which rows of the app were taken back, None for none."""
        return truncated(self._folder(), app)

    def put_back(self, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Delete the files of what followed the target; those of other apps stay, and so does what readers wrote."""
        return put_back(self._folder(), target, slot=slot, newest=newest)

    def maintain(self, needed: Needed, *, now: float) -> Upkeep:
        """Delete files that were half written by a process that was killed, and late files of what was taken back."""
        return sweep(self._folder(), now=now)

    def place(self) -> str:
        """Return the folder."""
        return self._folder().root

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        by = f", partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"folder {self.path} of {self.format.name}{by}"

    def files(self) -> list[PublishedFile]:
        """Return the files that the manifest names, by batch; of a batch that is being published none.

        A file that somebody has deleted since is named too. Raises SinkUnavailable, OutputDenied and ManifestDamaged.
        """
        return published_files(self._folder())

    def _folder(self) -> OutputFolder:
        return output_folder(self.path)

    def _layout(self, schema: pa.Schema) -> Layout:
        return Layout.of(self.format.name, tuple(self.partition_by), schema)


@dataclass(frozen=True)
class Parquet(FolderSink):
    """Describe a folder of Parquet files, on local disk or on HDFS: one a batch, or one a batch and partition.

    Args:
        path: The folder, or its URL as `webhdfs://host:9870/out`; it is made if it is not there.
        partition_by: Columns whose values name folders, `day=2026-11-25`, and which the files do not have: texts, whole
            numbers, booleans and dates. An empty text counts as null.

    Raises:
        ConfigError: The URL is none, or `partition_by` is one name and no list.
    """

    path: str | Path
    partition_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse one name where names belong, and a URL that is none."""
        if isinstance(self.partition_by, str):
            raise ConfigError(f"partition_by is {self.partition_by!r}, and takes names: [{self.partition_by!r}]")
        output_folder(self.path)

    @property
    def format(self) -> FileFormat:
        """Parquet."""
        return ParquetFormat()


@dataclass(frozen=True)
class JsonLines(FolderSink):
    """Describe a folder of files with a JSON object a line, on local disk or on HDFS: one file a batch.

    Rows are in order of arrival. Values are as `penstock.sinks.Json` writes them.

    Args:
        path: The folder, or its URL as `webhdfs://host:9870/out`; it is made if it is not there.

    Raises:
        ConfigError: The URL is none.
    """

    in_order = True

    path: str | Path

    def __post_init__(self) -> None:
        """Refuse a URL that is none."""
        output_folder(self.path)

    @property
    def format(self) -> FileFormat:
        """JSON lines."""
        return JsonLinesFormat()
