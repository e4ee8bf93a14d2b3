"""Read the data files that a version of a Delta table names, and write new ones for the next version.

A new file is durable before a commit may name it. It lies in the table's folder, whatever the partition: the log says
which values a file has (Delta protocol, "Add File").
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.checkpoint.storage.local import sync
from penstock.errors import SinkRefused

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

__all__ = ["DataFile", "FileWriter", "TableFiles", "discard", "partition_text", "target_size"]

_TARGET = 64 * 2**20
_AT_ONCE = 65_536
"""Rows that are in memory at a time, with those that are read ahead."""
_AHEAD = 2
_REPEATED = 4
"""Rows to a value, from which on a column gets a dictionary."""
_SIZES = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of rows, as the log names it: `path` is quoted, and `partition` has texts.

    `modified` is when it was written, in milliseconds since 1970.
    """

    path: str
    size: int
    rows: int
    modified: int = 0
    partition: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Return the path below the table's folder."""
        return unquote(self.path)

    def added(self, now: int, *, data_change: bool) -> dict[str, Any]:
        """Return the action that adds the file; `now` in milliseconds since 1970.

        It has the count of rows, and no bounds of columns. Where some columns have bounds, delta-rs 1.6.6 takes the
        others for empty, and its filters lose rows.
        """
        stats = json.dumps({"numRecords": self.rows})
        add = {"path": self.path, "partitionValues": dict(self.partition), "size": self.size, "modificationTime": now}
        return {"add": {**add, "dataChange": data_change, "stats": stats}}

    def removed(self, now: int, *, data_change: bool) -> dict[str, Any]:
        """Return the action that removes the file; its rows can be read in older versions until a VACUUM."""
        facts = {"extendedFileMetadata": True, "partitionValues": dict(self.partition), "size": self.size}
        return {"remove": {"path": self.path, "deletionTimestamp": now, "dataChange": data_change, **facts}}


class TableFiles:
    """The files of one version of a table, and their rows in the table's columns.

    Raises SinkRefused where a file is damaged: each start would find it so.

    `footers` holds the footers of files that were opened before, by path. It is brought up to date, for the next
    version: a file never changes.
    """

    def __init__(self, table: DeltaTable, path: Path, footers: dict[str, Any] | None = None) -> None:
        self.version: int = table.version()
        self.partition_by: tuple[str, ...] = tuple(table.metadata().partition_columns)
        self.schema: pa.Schema = _without_views(pa.schema(table.schema().to_arrow()))
        self._path = path
        self._footers = {} if footers is None else footers
        self._files: dict[str, tuple[DataFile, dict[str, Any]]] = {}
        kinds = {name: self.schema.field(name).type for name in self.partition_by}
        for row in pa.table(table.get_add_actions(flatten=False)).to_pylist():
            values = {name: (row.get("partition") or {}).get(name) for name in self.partition_by}
            texts = {name: partition_text(values[name], kind) for name, kind in kinds.items()}
            size, rows, time = row["size_bytes"], row["num_records"] or 0, row["modification_time"]
            file = DataFile(path=row["path"], size=size, rows=rows, modified=time, partition=texts)
            self._files[file.path] = (file, values)
        for gone in set(self._footers).difference(self._files):
            del self._footers[gone]

    @property
    def all(self) -> list[DataFile]:
        """Return all files."""
        return [file for file, _ in self._files.values()]

    def where(self, condition: pc.Expression | None = None) -> Iterator[tuple[DataFile, ds.Fragment]]:
        """Yield the files that may have rows of a condition, as their partitions and their own footers tell.

        A fragment has only those row groups that may have some.
        """
        for file, values in self._files.values():
            fragment = self._fragment(file, values)
            if condition is not None:
                fragment = fragment.subset(condition, schema=self.schema)
                if not fragment.row_groups:
                    continue
            yield file, fragment

    def whole(self, file: DataFile) -> ds.Fragment:
        """Return all row groups of a file."""
        return self._fragment(*self._files[file.path])

    def batches(self, fragment: ds.Fragment, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield rows of a file, some at a time."""
        read = fragment.to_batches(
            schema=self.schema,
            columns=list(self.schema.names if columns is None else columns),
            batch_size=_AT_ONCE,
            batch_readahead=_AHEAD,
            fragment_readahead=1,
            cache_metadata=False,
        )
        with self._refused_where_damaged(fragment.path):
            for batch in read:
                yield pa.Table.from_batches([batch])

    def _fragment(self, file: DataFile, values: Mapping[str, Any]) -> Any:
        """Return a file whose footer is read; the footer has bounds of each column and row group."""
        import pyarrow.dataset as ds
        from pyarrow.fs import LocalFileSystem

        fragment = self._footers.get(file.path)
        if fragment is None:
            terms = [_is(self.schema.field(name), value) for name, value in values.items()]
            # Spark writes moments as INT96.
            form = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
            fragment = form.make_fragment(
                str(self._path / file.place),
                filesystem=LocalFileSystem(),
                partition_expression=reduce(and_, terms) if terms else None,
            )
            with self._refused_where_damaged(fragment.path):
                fragment.ensure_complete_metadata()
            self._footers[file.path] = fragment
        return fragment

    @contextmanager
    def _refused_where_damaged(self, file: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as why:
            if isinstance(why, OSError) and why.errno is not None:  # of the system, and not of Arrow
                raise
            raise SinkRefused(
                f"{Path(file).name} of the table cannot be read: {str(why).splitlines()[0]}. Put it back from a copy. "
                "Without one, RESTORE the table to a version without it: the next start then finds what the table "
                "lacks",
                where=str(self._path),
            ) from why


class FileWriter:
    """Write rows of one partition into files of about a size; use it as a context, which discards them on an error."""

    def __init__(
        self,
        folder: Path,
        prefix: str,
        schema: pa.Schema,
        *,
        partition: Mapping[str, str | None],
        target: int,
    ) -> None:
        self.files: list[DataFile] = []
        self._folder = folder
        self._prefix = prefix
        self._schema = pa.schema([column for column in schema if column.name not in partition])
        self._partition = partition
        self._target = target
        self._path: Path | None = None
        self._sink: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Finish the last file, or discard all of them after an error."""
        try:
            if error is None:
                self.finish()
                return
        except BaseException:
            self._abandon()
            raise
        self._abandon()

    def write(self, rows: pa.Table) -> None:
        """Append rows in the table's columns."""
        if not rows.num_rows:
            return
        if self._writer is None:
            self._path = self._folder / f"{self._prefix}-{secrets.token_hex(8)}.parquet"
            self._sink = self._path.open("xb")
            self._writer = pq.ParquetWriter(
                self._sink, self._schema, compression="snappy", use_dictionary=_repetitive(rows, self._schema)
            )
            self._rows = 0
        for batch in rows.select(self._schema.names).cast(self._schema).to_batches():
            self._writer.write_batch(batch)
        self._rows += rows.num_rows
        if self._sink.tell() >= self._target:
            self.finish()

    def finish(self) -> None:
        """End the file that is being written, durably."""
        if self._writer is None:
            return
        assert self._path is not None
        self._writer.close()
        self._sink.close()
        sync(self._path)
        size = self._path.stat().st_size
        file = DataFile(path=quote(self._path.name), size=size, rows=self._rows, partition=self._partition)
        self.files.append(file)
        self._writer = self._sink = self._path = None

    def _abandon(self) -> None:
        if self._writer is not None:
            with suppress(pa.ArrowException, OSError):  # as of a full disk; open, it would write when it is collected
                self._writer.close()
        if self._sink is not None:
            self._sink.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        discard(self._folder, self.files)


def discard(folder: Path, files: Iterable[DataFile]) -> None:
    """Delete files that no commit names, and none will."""
    for file in files:
        (folder / file.place).unlink(missing_ok=True)


def target_size(table: DeltaTable) -> int:
    """Return the bytes that a table wants its files to have: `delta.targetFileSize`, or 64 MiB."""
    text = str(table.metadata().configuration.get("delta.targetFileSize", "")).lower().replace(" ", "")
    digits = text.rstrip("kmgb")
    unit = text[len(digits) :]
    return int(digits) * _SIZES[unit] if digits.isdecimal() and int(digits) and unit in _SIZES else _TARGET


def partition_text(value: Any, kind: pa.DataType) -> str | None:
    """Return the text that the log has for a value of a partition; an empty text is null there."""
    if value is None or value == "":
        return None
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(sep=" ")
    return str(value)


def _repetitive(rows: pa.Table, schema: pa.Schema) -> list[str]:
    """Return the columns whose values repeat: to make dictionaries of others takes most of the time of a write."""
    flat = [column for column in schema if not pa.types.is_nested(column.type)]
    return [column.name for column in flat if _REPEATED * pc.count_distinct(rows[column.name]).as_py() < rows.num_rows]


def _is(column: pa.Field, value: Any) -> pc.Expression:
    term = pc.field(column.name)
    return term.is_null() if value in (None, "") else term == pa.scalar(value, column.type)


def _without_views(schema: pa.Schema) -> pa.Schema:
    """Return the columns with texts and bytes in the types that Parquet files have them in."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([column.with_type(plain.get(column.type, column.type)) for column in schema])
