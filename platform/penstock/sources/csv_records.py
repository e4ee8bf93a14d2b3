"""Read CSV in pieces, record by record: what is wrong with one is said of it alone (SEMANTICS 9.3, F40)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from penstock.sources.base import PARTIAL
from penstock.sources.records import Read, cast_columns, in_micros

__all__ = ["csv_parts"]

_BLOCK = 16 * 2**20
"""Bytes that are split into records at a time; no record may be longer."""
_PARSING = {"newlines_in_values": True}


def csv_parts(
    source: Path | pa.NativeFile,
    schema: pa.Schema | None,
    nulls: Sequence[str],
    *,
    where: str | None = None,
    names: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str = '"',
) -> Iterator[Read]:
    """Yield the rows part by part, and for each row an error and its raw text, null where it fits (SEMANTICS 9.3).

    Errors name the record's number in the file, the header not counted, from 1.
    Without a schema the types are those that all values suggest, so the file is read whole, and a time without a zone
    is UTC.

    Args:
        source: The file, or its bytes as they are read.
        schema: The columns; those that the file has as well are left out.
        nulls: The fields that mean null.
        where: What errors name, by itself the path.
        names: The names of the file's columns, where it has no header.
        delimiter: The character between fields.
        quote: The character around fields, "" for none.

    Raises KeyError for a column of the schema that the file lacks, and ConfigError for a type that text cannot become.
    Raises ArrowInvalid for a record that has other fields and is no UTF-8 either.
    """
    # Arrow would give the whole piece up for one byte.
    convert = pa_csv.ConvertOptions(null_values=list(nulls), strings_can_be_null=True, check_utf8=schema is None)
    bad: dict[int, tuple[str, str]] = {}
    if schema is None:
        try:
            table = pa_csv.read_csv(source, convert_options=convert, parse_options=pa_csv.ParseOptions(**_PARSING))
        except pa.ArrowInvalid:
            table = pa_csv.read_csv(source, **_noting(bad, convert))
        yield _with_bad(in_micros(table, utc=True), None, None, bad, 0)
        return
    convert.column_types = {name: pa.string() for name in schema.names}
    convert.include_columns = schema.names
    first = 0
    for table in _streamed(source, _noting(bad, convert, names, delimiter, quote)):
        # Records are read ahead: of those that were skipped, the ones among these rows.
        here: dict[int, tuple[str, str]] = {}
        for number in sorted(bad):
            if number < first + table.num_rows + len(here):
                here[number - first] = bad.pop(number)
        count = table.num_rows + len(here)
        if undecoded := _undecoded(table):
            places = np.delete(np.arange(count), list(here))
            here |= {int(places[row]): said for row, said in undecoded.items()}
        decoded = table.take(np.delete(np.arange(table.num_rows), list(undecoded))) if undecoded else table
        columns, errors, raw = cast_columns(decoded, schema, where=where or str(source))
        yield _with_bad(columns, errors, raw, here, first)
        first += count
    if bad:
        rest = {number - first: error for number, error in bad.items()}
        yield _with_bad(schema.empty_table(), None, None, rest, first)


def _undecoded(table: pa.Table) -> dict[int, tuple[str, str]]:
    """Return the rows of texts with a value that is no UTF-8, each with its error and its raw text."""
    bytes_of = {name: table[name].cast(pa.binary()) for name in table.column_names}
    wrong: dict[int, str] = {}
    for name, column in bytes_of.items():
        try:
            column.cast(pa.string())
        except pa.ArrowInvalid:
            for row, value in enumerate(column.to_pylist()):
                if (why := _not_text(value)) is not None:
                    wrong.setdefault(row, f"column {name!r} is no UTF-8: {why}{PARTIAL}")
    return {
        row: (why, json.dumps({name: _escaped(column[row].as_py()) for name, column in bytes_of.items()}))
        for row, why in wrong.items()
    }


def _not_text(value: bytes | None) -> str | None:
    try:
        (value or b"").decode()
    except UnicodeDecodeError as why:
        return f"{why.reason} at byte {why.start}"
    return None


def _escaped(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _streamed(source: Path | pa.NativeFile, options: Mapping[str, Any]) -> Iterator[pa.Table]:
    """Yield what is read of a file, at least one table."""
    with pa_csv.open_csv(source, **options) as reader:
        yield reader.schema.empty_table()
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _noting(
    bad: dict[int, tuple[str, str]],
    convert: pa_csv.ConvertOptions,
    names: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str = '"',
) -> dict[str, Any]:
    """Return options to read on one thread, which alone numbers the records, noting those with other fields."""
    # Arrow counts from 1, and counts the header.
    before, of = (2, "header") if names is None else (1, "source")

    def note(row: pa_csv.InvalidRow) -> str:
        error = f"{row.actual_columns} fields where the {of} has {row.expected_columns}"
        bad[row.number - before] = (error, row.text)
        return "skip"

    return {
        "read_options": pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=names),
        "parse_options": pa_csv.ParseOptions(
            invalid_row_handler=note, delimiter=delimiter, quote_char=quote or False, **_PARSING
        ),
        "convert_options": convert,
    }


def _with_bad(
    table: pa.Table, errors: pa.Array | None, raw: pa.Array | None, bad: dict[int, tuple[str, str]], first: int
) -> Read:
    """Put the records that were skipped back in their places, as null rows; `first` is the number of the first."""
    if errors is None and not bad:
        return table, None, None
    n = table.num_rows + len(bad)
    skipped = np.zeros(n, dtype=bool)
    skipped[list(bad)] = True
    # A null index gives a null row.
    places = pa.array(np.cumsum(~skipped) - 1, mask=skipped)
    kept_errors = [None] * n if errors is None else errors.take(places).to_pylist()
    kept_raw = [None] * n if raw is None else raw.take(places).to_pylist()
    for i, (error, text) in bad.items():
        kept_errors[i], kept_raw[i] = error, text
    named = [
        None if error is None else f"record {first + i + 1} of the file: {error}" for i, error in enumerate(kept_errors)
    ]
    return table.take(places), pa.array(named, pa.string()), pa.array(kept_raw, pa.string())
