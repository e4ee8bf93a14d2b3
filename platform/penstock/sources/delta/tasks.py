"""Read rows of a Delta table's files inside Spark's tasks, by their numbers in the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import FileVanished, FixedRangeGone, SourceChanged
from penstock.sources.base import Span, TaskReader, with_hidden
from penstock.sources.delta.actions import DataFile, Kind
from penstock.sources.delta.columns import FEED, partition_value
from penstock.sources.file.systems import FileSystem
from penstock.sources.records import in_micros

__all__ = ["DeltaTaskReader", "Piece", "opened", "pieces_of"]

_ROWS_A_PART = 32_768
_BYTES_A_PART = 4 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a file that a batch reads, from `first` up to `last`, and where in the stream they begin.

    The other members are those of a DataFile; `rows` is never None here.
    """

    place: int
    version: int
    index: int
    path: str
    size: int
    rows: int
    first: int
    last: int
    values: Mapping[str, str | None]
    kind: Kind
    time: int | None

    @classmethod
    def of(cls, file: DataFile, first: int, last: int, *, place: int) -> Piece:
        """Return a piece of a file whose number of rows is known."""
        assert file.rows is not None
        numbers = (place, file.version, file.index, file.path, file.size, file.rows, first, last)
        return cls(*numbers, file.values, file.kind, file.time)

    @property
    def as_json(self) -> list[Any]:
        """The piece as a span has it."""
        return [getattr(self, name) for name in self.__slots__]


def pieces_of(span: Span) -> list[Piece]:
    """Return the pieces of a span, in order."""
    return [Piece(*each) for each in span["pieces"]]


def opened(file: Any) -> pq.ParquetFile:
    """Open a Parquet file; times that Spark has written in the old way have microseconds, as they have in Spark."""
    return pq.ParquetFile(pa.PythonFile(file, mode="r"), buffer_size=_BYTES_A_PART, coerce_int96_timestamp_unit="us")


@dataclass(frozen=True)
class DeltaTaskReader(TaskReader):
    """Read pieces inside a task; a split reads the row groups whose middle is in its share of the rows.

    `schema` has the visible columns; `partitioned` are those whose values are in the log. With `changes` it
    ends with those of the change data feed.
    """

    files: FileSystem
    schema: pa.Schema
    partitioned: Sequence[str]
    changes: bool

    @property
    def of_table(self) -> pa.Schema:
        """The columns of the table, without those of the change data feed."""
        return pa.schema([field for field in self.schema if not self.changes or field.name not in FEED.names])

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of this split, piece by piece; raises FixedRangeGone and SourceChanged."""
        pieces = pieces_of(span)
        total = sum(piece.last - piece.first for piece in pieces)
        begin, end, passed = total * split // splits, -(-total * (split + 1) // splits), 0
        for piece in pieces:
            rows = piece.last - piece.first
            if passed < end and passed + rows > begin:
                yield from self._piece(piece, passed, Split(total, split, splits))
            passed += rows

    def _piece(self, piece: Piece, passed: int, share: Split) -> Iterator[pa.Table]:
        where = f"{self.files.root}/{piece.path}"
        try:
            with self.files.open(piece.path) as file:
                parquet = opened(file)
                if parquet.metadata.num_rows != piece.rows:
                    shown = f"the file has {parquet.metadata.num_rows:,} rows, and the log says {piece.rows:,}"
                    raise SourceChanged(shown, where=where)
                yield from self._rows(parquet, piece, passed, share)
        except FileVanished as why:
            raise FixedRangeGone("a file of the table is gone since its batch was planned", where=where) from why
        except (pa.ArrowException, OSError) as why:
            raise SourceChanged(f"a file of the table cannot be read: {why}", where=where) from why

    def _rows(self, parquet: pq.ParquetFile, piece: Piece, passed: int, share: Split) -> Iterator[pa.Table]:
        names = [n for n in self.schema.names if n in parquet.schema_arrow.names and n not in self._given(piece)]
        at = 0
        for group in range(parquet.num_row_groups):
            size = parquet.metadata.row_group(group).num_rows
            first, last = max(piece.first, at), min(piece.last, at + size)
            if first < last and share.has(2 * passed + first + last - 2 * piece.first):
                for batch, rows in _cut(parquet, group, names, first - at, last - at):
                    yield self._table(batch, rows, piece, first)
                    first += rows
            at += size

    def _given(self, piece: Piece) -> list[str]:
        """Return the columns whose values are not in the file."""
        if not self.changes:
            return list(self.partitioned)
        return [*self.partitioned, *(name for name in FEED.names if name != "_change_type" or piece.kind != "cdc")]

    def _table(self, batch: pa.Table, n: int, piece: Piece, first: int) -> pa.Table:
        columns = []
        for field in self.schema:
            if field.name in self.partitioned:
                columns.append(pa.repeat(partition_value(piece.values.get(field.name), field.type), n))
            elif field.name in batch.column_names:
                columns.append(batch.column(field.name).cast(field.type))
            elif self.changes and field.name in FEED.names:
                columns.append(pa.repeat(_of_feed(field.name, piece), n))
            else:
                columns.append(pa.nulls(n, field.type))  # the table has got the column since
        start = piece.place + first - piece.first
        return with_hidden(pa.table(columns, schema=self.schema), 0, pa.array(np.arange(start, start + n)))


@dataclass(frozen=True, slots=True)
class Split:
    """One of several parts of all rows of a batch."""

    total: int
    split: int
    splits: int

    def has(self, doubled: int) -> bool:
        """Return whether the split reads what has its middle at half this row; no other split does."""
        return doubled * self.splits // (2 * self.total) == self.split


def _of_feed(name: str, piece: Piece) -> pa.Scalar:
    time = None if piece.time is None else piece.time * 1_000
    value = {"_change_type": piece.kind, "_commit_version": piece.version, "_commit_timestamp": time}[name]
    return pa.scalar(value, FEED.field(name).type)


def _cut(
    parquet: pq.ParquetFile, group: int, names: Sequence[str], first: int, last: int
) -> Iterator[tuple[pa.Table, int]]:
    """Yield the rows of a row group from `first` up to `last`, with their count, which a table of no columns lacks.

    Rows before `first` are decoded all the same.
    """
    if not names:
        yield pa.table({}), last - first
        return
    at = 0
    for batch in parquet.iter_batches(_ROWS_A_PART, row_groups=[group], columns=list(names)):
        low, high = max(first, at), min(last, at + batch.num_rows)
        if low < high:
            yield in_micros(pa.Table.from_batches([batch]).slice(low - at, high - low)), high - low
        at += batch.num_rows
        if at >= last:
            return
