"""Read a Delta table as a whole, as of one of its versions, on the driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock.errors import SourceGap
from penstock.sources.delta.actions import DataFile, Table
from penstock.sources.delta.columns import columns_of_table
from penstock.sources.delta.log import DeltaLog
from penstock.sources.delta.tasks import DeltaTaskReader, Piece, opened
from penstock.sources.file.systems import file_system

__all__ = ["DeltaVersions"]


class DeltaVersions:
    """The versions of a table; all methods raise SourceUnavailable, FolderUnreadable and TableUnreadable."""

    def __init__(self, path: str | Path) -> None:
        self._log = DeltaLog(file_system(path))

    @property
    def where(self) -> str:
        """The table, as people are shown it."""
        return self._log.where

    def newest(self) -> int:
        """Return the newest version; raises SourceNotFound where there is no table."""
        return self._log.versions().newest

    def id_of(self, version: int) -> str:
        """Return what no other table has, as of a version; raises SourceGap as `rows`."""
        return self._table(version).id

    def schema(self, version: int) -> pa.Schema:
        """Return the columns as of a version."""
        return columns_of_table(self._table(version), self.where)

    def rows(self, version: int) -> pa.Table:
        """Return all rows as of a version.

        Raises:
            SourceGap: The log does not reach back to the version any more.
            FileVanished: A file of the version is gone, as VACUUM removes them.
            SourceChanged: A file is not as its version was written.
        """
        table = self._table(version)
        schema = columns_of_table(table, self.where)
        pieces = [self._piece(file).as_json for file in self._log.snapshot(version)]
        reader = DeltaTaskReader(self._log.files, schema, table.partition_columns, changes=False)
        tables = [rows.select(schema.names) for rows in reader.read({"pieces": pieces}, 0, 1)]
        return pa.concat_tables([schema.empty_table(), *tables])

    def _table(self, version: int) -> Table:
        table = self._log.table(version)
        if table is None:
            raise SourceGap(f"the log does not reach back to version {version} of the table any more", where=self.where)
        self._log.refuse_unreadable(table, changes=False)
        return table

    def _piece(self, file: DataFile) -> Piece:
        with self._log.files.open(file.path) as data:
            rows = opened(data).metadata.num_rows
        return Piece.of(replace(file, rows=rows), 0, rows, place=0)
