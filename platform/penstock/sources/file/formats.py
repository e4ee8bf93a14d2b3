"""Make rows of whole files: Parquet, CSV with a header, and lines of any record format (SEMANTICS 9.3).

A format of your own for files is one class:

    class Orc(FileFormat):
        def columns(self): return None     # those of the first file
        def columns_of(self, file): ...
        def parts(self, file, schema, share, rules): ...
        def bytes_a_row(self, file, length): ...

It is pickled with the reader and sent to every task, so it holds settings only.
"""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import ColumnsChanged, ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.sources.csv_records import csv_parts
from penstock.sources.file.parts import ColumnRules, Part, Share, Unreadable, unreadable
from penstock.sources.formats import Format
from penstock.sources.formats.base import NamingFormat, columns_of, shown
from penstock.sources.formats.csv import Csv, csv_columns
from penstock.sources.json_texts import rows_by_cast
from penstock.sources.records import cast_columns, in_micros

__all__ = ["FileFormat", "HeadedCsv", "Lines", "Parquet", "decompressed"]

_CODECS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_ROWS_A_PART = 32_768
_BYTES_A_PART = 4 << 20
_EVER_SMALLER = (64 << 10, 1 << 10, 1)
"""Bytes of a piece, for each time that a truncated file is read again: the last byte is found by three reads more."""
_LONGEST = 16 << 20
"""Bytes of a line; a longer one is a bad record (F41)."""
_SHOWN = 64 << 10
"""Bytes of such a line that the quarantine has."""
_SAMPLE = 64 << 10
_GUESS = 100.0
"""Bytes of a row, where a file does not tell."""
_BOM = b"\xef\xbb\xbf"


@runtime_checkable
class FileFormat(Protocol):
    """Make rows of files. Subclass it."""

    @abstractmethod
    def columns(self) -> pa.Schema | None:
        """Return the columns, None where they are those of the first file; called once a run, on the driver.

        Raises ConfigError for columns that the format cannot have.
        """

    def columns_of(self, file: IO[bytes]) -> pa.Schema:
        """Return the columns of a file; raises Unreadable. A format that names its columns is never asked."""
        raise ConfigError(f"{type(self).__name__} names no columns, and does not take them from a file")

    @abstractmethod
    def parts(self, file: IO[bytes], name: str, schema: pa.Schema, share: Share, rules: ColumnRules) -> Iterator[Part]:
        """Yield the rows of a file that a split reads; raises Unreadable and ColumnsChanged."""

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]] | None:
        """Return the rows of texts that were the `raw` of parts, as `TaskReader.decoded` does; by default no way to."""
        return None

    @abstractmethod
    def bytes_a_row(self, file: IO[bytes], name: str, length: int) -> float:
        """Guess how many bytes of a file like this one a row takes."""


@dataclass(frozen=True, slots=True)
class Parquet(FileFormat):
    """Parquet files, with the columns of Spark DDL, or with those of the first file that is there.

    A column is found by its name, and cast to the type of the DDL where all values fit.
    """

    schema: str | None = None

    def __post_init__(self) -> None:
        """Refuse arguments of other types."""
        refuse_other_types(self)

    def columns(self) -> pa.Schema | None:
        """Return the columns of the DDL, None without any."""
        return None if self.schema is None else columns_of(self.schema)

    def columns_of(self, file: IO[bytes]) -> pa.Schema:
        """Return the columns of a file as Spark has them: each may be null, times are in microseconds."""
        with unreadable(lambda: 0):
            read = in_micros(
                pq.read_schema(pa.PythonFile(_Kept(file), mode="r")).remove_metadata().empty_table()
            ).schema
        plain = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in read]
        return pa.schema([pa.field(field.name, field.type) for field in plain])

    def parts(self, file: IO[bytes], name: str, schema: pa.Schema, share: Share, rules: ColumnRules) -> Iterator[Part]:
        """Yield the rows of the row groups whose middle is the split's."""
        try:
            with unreadable(lambda: 0):
                parquet = pq.ParquetFile(pa.PythonFile(_Kept(file), mode="r"), buffer_size=_BYTES_A_PART)
                names = rules.judged(parquet.schema_arrow.names, schema)
        except (Unreadable, ColumnsChanged):
            if share.has_whole:
                raise
            return
        first = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if share.has(2 * first + rows, 2 * max(1, parquet.metadata.num_rows)):
                yield from self._group(parquet, group, first, names, schema)
            first += rows

    def _group(
        self, parquet: pq.ParquetFile, group: int, at: int, names: Sequence[str], schema: pa.Schema
    ) -> Iterator[Part]:
        """Yield the rows of a row group, the first of which has the number `at`."""
        with unreadable(lambda: at):
            for batch in parquet.iter_batches(_ROWS_A_PART, row_groups=[group], columns=names):
                yield _fitted(pa.Table.from_batches([batch]), schema, at)
                at += batch.num_rows

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]]:
        """Return the rows of JSON by column."""
        return rows_by_cast(texts, schema)

    def bytes_a_row(self, file: IO[bytes], name: str, length: int) -> float:
        """Return it by the number of rows that the file says it has."""
        with unreadable(lambda: 0):
            rows: int = pq.read_metadata(pa.PythonFile(_Kept(file), mode="r")).num_rows
        return length / max(1, rows)


def _fitted(table: pa.Table, schema: pa.Schema, first: int) -> Part:
    """Cast the rows of a file to the schema; columns that it lacks are null."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    try:
        rows, errors, raw = cast_columns(in_micros(table), schema, where="a file")
    except ConfigError as why:
        raise Unreadable(why.what) from why
    if errors is not None:
        said = [None if e is None else f"row {first + i + 1:,}: {e}" for i, e in enumerate(errors.to_pylist())]
        errors = pa.array(said, pa.string())
    return Part(rows, np.arange(first, first + table.num_rows), errors, raw)


@dataclass(frozen=True, slots=True)
class HeadedCsv(FileFormat):
    """CSV files whose first record has the names of the columns, which are found by their names, in any order.

    Files with the suffix .gz, .bz2 or .zst are decompressed.
    """

    record: Csv

    def columns(self) -> pa.Schema:
        """Return the columns of the DDL."""
        return csv_columns(self.record.schema)

    def parts(self, file: IO[bytes], name: str, schema: pa.Schema, share: Share, rules: ColumnRules) -> Iterator[Part]:
        """Yield the records of the file, where it is the split's."""
        if not share.has_whole:
            return
        at = 0
        with unreadable(lambda: at):
            names = rules.judged(self._header(decompressed(file, name)), schema)
            file.seek(0)
            there = pa.schema([schema.field(name) for name in names])
            for rows, errors, raw in csv_parts(
                decompressed(file, name),
                there,
                self.record.nulls,
                where="a file",
                delimiter=self.record.delimiter,
                quote=self.record.quote,
            ):
                whole = pa.table(
                    [rows[f.name] if f.name in names else pa.nulls(rows.num_rows, f.type) for f in schema],
                    schema=schema,
                )
                yield Part(whole, np.arange(at, at + rows.num_rows), errors, raw)
                at += rows.num_rows

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]]:
        """Return the rows of JSON by column; of a record with too many fields or too few nobody knows the columns."""
        return rows_by_cast(texts, schema)

    def _header(self, stream: pa.NativeFile) -> list[str]:
        # The piece may end within a character. Bytes of rows that are no text are found where rows are read.
        head = stream.read(_SAMPLE).removeprefix(_BOM).decode(errors="surrogateescape")
        quoting = {"quotechar": self.record.quote} if self.record.quote else {"quoting": csv.QUOTE_NONE}
        lines = io.StringIO(head, newline="")
        header = next(csv.reader(lines, delimiter=self.record.delimiter, **quoting), None)
        if not header:
            raise Unreadable("the file has no header")
        if any("\udc80" <= letter <= "\udcff" for name in header for letter in name):
            raise Unreadable("the header is no UTF-8")
        return header

    def bytes_a_row(self, file: IO[bytes], name: str, length: int) -> float:
        """Return it by the line ends in the first bytes."""
        return _by_line_ends(file, name, length)


@dataclass(frozen=True, slots=True)
class Lines(FileFormat):
    """Files whose lines are records of another format; of JSON, empty lines are no records.

    Files with the suffix .gz, .bz2 or .zst are decompressed.
    """

    record: Format
    skips_empty: bool = True

    def columns(self) -> pa.Schema:
        """Return the columns of the format."""
        return self.record.columns()

    def parts(self, file: IO[bytes], name: str, schema: pa.Schema, share: Share, rules: ColumnRules) -> Iterator[Part]:
        """Yield the lines of the file, where it is the split's; rules judge each line that has names."""
        if not share.has_whole:
            return
        at = 0
        with unreadable(lambda: at):
            for first, lines in _lines(_pieces(file, name)):
                at = first
                yield from self._decoded(lines, first, schema, rules)
                at = first + len(lines)

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]]:
        """Return the rows of lines."""
        made = self.record.decode([text.encode() for text in texts], schema)
        return made.rows, [None] * len(texts) if made.errors is None else made.errors.to_pylist()

    def _decoded(self, lines: list[bytes], first: int, schema: pa.Schema, rules: ColumnRules) -> Iterator[Part]:
        kept = [i for i, line in enumerate(lines) if line.strip() or not self.skips_empty]
        if not kept:
            return
        decoded = self.record.decode([lines[i] if len(lines[i]) <= _LONGEST else None for i in kept], schema)
        errors = [None] * len(kept) if decoded.errors is None else decoded.errors.to_pylist()
        rows = decoded.rows
        if isinstance(self.record, NamingFormat) and not rules.are_lenient:
            judge = rules.judge(schema)
            errors = [
                _judged(self.record, lines[i], first + i, judge) if error is None else error
                for i, error in zip(kept, errors, strict=True)
            ]
            # Nothing of a bad record is a row.
            rows = rows.take(pa.array(range(len(kept)), pa.int64(), mask=np.array([e is not None for e in errors])))
        said, raw = list[str | None](), list[str | None]()
        for i, error in zip(kept, errors, strict=True):
            wrong = f"more than {_LONGEST >> 20} MiB" if len(lines[i]) > _LONGEST else error
            text, problem = (None, None) if wrong is None else shown(lines[i], wrong, most=_most(lines[i]))
            said.append(None if problem is None else f"line {first + i + 1:,}: {problem}")
            raw.append(text)
        numbers = np.array(kept, np.int64) + first
        if any(said):
            yield Part(rows, numbers, pa.array(said, pa.string()), pa.array(raw, pa.string()))
        else:
            yield Part(rows, numbers)

    def bytes_a_row(self, file: IO[bytes], name: str, length: int) -> float:
        """Return it by the line ends in the first bytes."""
        return _by_line_ends(file, name, length)


def _judged(form: NamingFormat, line: bytes, number: int, judge: Callable[[Collection[str]], str | None]) -> str | None:
    """Return why a line that was decoded is for quarantine by the names that it has; raises ColumnsChanged."""
    if len(line) > _LONGEST:
        return None  # it was not decoded
    if (names := form.names(line)) is None:  # what decodes a row passes over a name that it does not look for
        return "the name of a column is no UTF-8"
    try:
        return judge(names)
    except ColumnsChanged as why:
        raise ColumnsChanged(f"line {number + 1:,}: {why.what}") from why


def decompressed(file: IO[bytes], name: str) -> pa.NativeFile:
    """Return the bytes of a file, decompressed where its suffix says so."""
    plain = pa.PythonFile(_Kept(file), mode="r")
    codec = next((codec for suffix, codec in _CODECS.items() if name.endswith(suffix)), None)
    return plain if codec is None else pa.CompressedInputStream(plain, codec)


class _Kept:
    """A file that Arrow does not close when it has done with it."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell

    def close(self) -> None:
        """Leave it to who has opened it."""


def _pieces(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed; of a truncated one all that there are, and then raises OSError.

    Of one with a wrong checksum nobody knows which bytes are wrong: then it raises at once.
    """
    stream, done = decompressed(file, name), 0
    try:
        while data := stream.read(_BYTES_A_PART):
            done += len(data)
            yield data
    except OSError as why:
        if "Truncated" in str(why):  # as Arrow says of all codecs
            yield from _before_the_cut(file, name, done)
        raise


def _before_the_cut(file: IO[bytes], name: str, done: int) -> Iterator[bytes]:
    """Yield what a truncated file has behind `done` bytes.

    Arrow gives nothing of a piece that it cannot read to its end. So the file is read again, in smaller pieces each
    time. Raises OSError where it has become shorter meanwhile.
    """
    for size in _EVER_SMALLER:
        file.seek(0)
        stream, left = decompressed(file, name), done
        while left:
            if not (data := stream.read(min(left, _BYTES_A_PART))):
                raise OSError("the file has become shorter")
            left -= len(data)
        with suppress(OSError):
            while data := stream.read(size):
                done += len(data)
                yield data


def _lines(pieces: Iterator[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines of a file without their ends, some at a time, with the number of the first.

    Of a line that is too long, no more is kept than shows that it is.
    """
    first, rest, is_start = 0, b"", True
    for data in pieces:
        lines = (data.removeprefix(_BOM) if is_start else data).split(b"\n")
        lines[0], is_start = (rest + lines[0])[: _LONGEST + 1], False
        rest = lines.pop()
        for some in range(0, len(lines), _ROWS_A_PART):
            piece = [line.removesuffix(b"\r") for line in lines[some : some + _ROWS_A_PART]]
            yield first, piece
            first += len(piece)
    if rest:
        yield first, [rest.removesuffix(b"\r")]


def _most(line: bytes) -> int | None:
    return _SHOWN if len(line) > _LONGEST else None


def _by_line_ends(file: IO[bytes], name: str, length: int) -> float:
    with unreadable(lambda: 0):
        head = decompressed(file, name).read(_SAMPLE)
    lines: int = head.count(b"\n")
    return max(1, min(length, file.tell())) / max(1, lines)
