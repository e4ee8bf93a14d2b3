"""Read the files of a span inside Spark's tasks, each after a look that it is the one that was planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import BadRecordFound, ColumnsChanged, FileChanged, FileVanished, InputUnreadable
from penstock.graph.policies import BadRecord, OnUnreadable
from penstock.sources.base import PARTIAL, Span, TaskReader, with_hidden
from penstock.sources.file.formats import FileFormat
from penstock.sources.file.parts import ColumnRules, Part, Share, Unreadable
from penstock.sources.file.positions import Entry
from penstock.sources.file.systems import FileSystem

__all__ = ["METADATA", "FilesTaskReader", "files_of", "refuse_other"]

METADATA: Mapping[str, pa.DataType] = {
    "_path": pa.string(),
    "_modified": pa.timestamp("us", tz="UTC"),
    "_size": pa.int64(),
    "_row": pa.int64(),
}
"""What a row has beside its columns, by the names of `with_columns`."""
_ROWS_A_FILE = 32
"""Bits of the position of a row that are its number in the file; those above are the number of the file."""


def files_of(span: Span) -> list[Entry]:
    """Return the files of a span as they were planned."""
    return [Entry(*each) for each in span["files"]]


def refuse_other(files: FileSystem, planned: Sequence[Entry]) -> None:
    """Raise FileVanished or FileChanged where a file is not there as it was planned."""
    for entry, now in zip(planned, files.look([entry.path for entry in planned]), strict=True):
        where = f"{files.root}/{entry.path}"
        if now is None:
            raise FileVanished("the file is gone since its batch was planned", where=where)
        if not now.is_same(entry):
            before, after = (f"{e.length:,} bytes of {e.modified / 1e9:.3f}" for e in (entry, now))
            raise FileChanged(f"the file had {before} when its batch was planned, and has {after}", where=where)


@dataclass(frozen=True)
class FilesTaskReader(TaskReader):
    """Read files inside a task; a split reads the files, or the row groups, whose middle is in its share of the bytes.

    `schema` is that of the format, without METADATA.
    """

    files: FileSystem
    form: FileFormat
    schema: pa.Schema
    metadata: Sequence[str]
    rules: ColumnRules
    on_bad_record: BadRecord
    on_unreadable: OnUnreadable

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of this split, file by file; raises FileChanged, FileVanished and what the policies say."""
        planned = files_of(span)
        total, start = sum(entry.length for entry in planned), 0
        for number, entry in enumerate(planned, int(span["first"])):
            share = Share(start, entry.length, total, split, splits)
            start += entry.length
            if share.has_any:
                refuse_other(self.files, [entry])
                for part in self._parts(entry, share):
                    yield self._table(entry, number, part)
                refuse_other(self.files, [entry])

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]] | None:
        """Return what the format makes of texts; which file a record was in is null."""
        made = self.form.decoded(texts, self.schema)
        if made is None:
            return None
        rows, errors = made
        for name in self.metadata:
            rows = rows.append_column(name, pa.nulls(len(texts), METADATA[name]))
        return rows, errors

    def _parts(self, entry: Entry, share: Share) -> Iterator[Part]:
        where = f"{self.files.root}/{entry.path}"
        try:
            with self.files.open(entry.path) as file:
                yield from self.form.parts(file, entry.path, self.schema, share, self.rules)
        except ColumnsChanged as why:
            raise ColumnsChanged(why.what, where=where) from why
        except Unreadable as why:
            refuse_other(self.files, [entry])  # a file that is being written is no bad one
            if self.on_unreadable is OnUnreadable.FAIL:
                raise InputUnreadable(f"the file cannot be read: {why.reason}", where=where) from why
            said = pa.array([f"unreadable from row {why.row + 1:,} on: {why.reason}{PARTIAL}"])
            yield Part(_null_row(self.schema), np.array([why.row]), said, pa.array([where]), is_unreadable=True)

    def _table(self, entry: Entry, number: int, part: Part) -> pa.Table:
        where, errors = f"{self.files.root}/{entry.path}", part.errors
        if errors is not None and errors.null_count < len(errors):
            said = [None if error is None else f"{where}, {error}" for error in errors.to_pylist()]
            if self.on_bad_record is BadRecord.FAIL and not part.is_unreadable:
                raise BadRecordFound(next(e for e in errors.to_pylist() if e is not None), where=where)
            errors = pa.array(said, pa.string())
        table = part.rows
        for name in self.metadata:
            table = table.append_column(pa.field(name, METADATA[name]), _METADATA_OF[name](where, entry, part))
        positions = pa.array((number << _ROWS_A_FILE) + part.numbers)
        return with_hidden(table, 0, positions, errors, part.raw)


def _null_row(schema: pa.Schema) -> pa.Table:
    return pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)


_METADATA_OF: Mapping[str, Callable[[str, Entry, Part], pa.Array]] = {
    "_path": lambda where, _, part: pa.repeat(pa.scalar(where), len(part.numbers)),
    "_modified": lambda _, entry, part: pa.repeat(
        pa.scalar(entry.modified // 1_000, METADATA["_modified"]), len(part.numbers)
    ),
    "_size": lambda _, entry, part: pa.repeat(pa.scalar(entry.length, pa.int64()), len(part.numbers)),
    "_row": lambda _where, _entry, part: pa.array(part.numbers + 1, pa.int64()),
}
