"""Read a Delta table as a whole, as of one of its versions, on the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from penstock.errors import SourceGap
from penstock.sources.delta.actions import DataFile, Table
from penstock.sources.delta.columns import columns_of_table
from penstock.sources.delta.log import DeltaLog
from penstock.sources.delta.tasks import DeltaTaskReader, Piece, opened
from penstock.sources.file.positions import Entry
from penstock.sources.file.systems import file_system

__all__ = ["DeltaVersions"]


@dataclass(frozen=True, slots=True)
class _Known:
    """A version that was read, with the file of its entry, which another table of the path does not have."""

    version: int
    entry: Entry
    table: Table


class DeltaVersions:
    """The versions of a table; all methods raise SourceUnavailable, FolderUnreadable and TableUnreadable.

    The newest version that was read is remembered. While it stays the newest one, a look asks for two files of the log
    and reads none. After that the entries since are read, however long the log is.
    """

    def __init__(self, path: str | Path) -> None:
        self._log = DeltaLog(file_system(path))
        self._known: _Known | None = None

    @property
    def where(self) -> str:
        """The table, as people are shown it."""
        return self._log.where

    def newest(self) -> int:
        """Return the newest version; raises SourceNotFound where there is no table."""
        if self._known is not None:
            entry, later = self._log.look(self._known.version, self._known.version + 1)
            if entry == self._known.entry and later is None:
                return self._known.version
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
        known = self._known
        known_entry, entry = self._log.look(version if known is None else known.version, version)
        table = None
        if known is not None and known_entry == known.entry and version >= known.version:
            table = self._log.table_after(version, known.version, known.table)
        elif known is not None and known_entry != known.entry:
            self._known = None
        if table is None:
            table = self._log.table(version)
        if table is None:
            raise SourceGap(f"the log does not reach back to version {version} of the table any more", where=self.where)
        self._log.refuse_unreadable(table, changes=False)
        # Of a version whose entry is gone there is a checkpoint, so that it costs little to read again.
        if entry is not None and (self._known is None or version >= self._known.version):
            self._known = _Known(version, entry, table)
        return table

    def _piece(self, file: DataFile) -> Piece:
        with self._log.files.open(file.path) as data:
            rows = opened(data).metadata.num_rows
        return Piece.of(replace(file, rows=rows), 0, rows, place=0)
