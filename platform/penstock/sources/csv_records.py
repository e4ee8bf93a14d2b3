"""Read CSV files whose records may be bad: each record is a row, or a null row with its text and what was wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from penstock.sources.records import cast_columns

__all__ = ["csv_parts"]

Read = tuple[pa.Table, pa.Array | None, pa.Array | None]
_BLOCK = 16 * 2**20
"""Bytes that are split into records at a time; no record may be longer."""
_PARSING = {"newlines_in_values": True}


def csv_parts(path: Path, schema: pa.Schema | None, nulls: Sequence[str]) -> Iterator[Read]:
    """Yield the rows part by part, and for each row an error and its raw text, null where it fits (SEMANTICS 9.3).

    Errors name the record's number in the file, the header not counted, from 1.
    Without a schema the types are those that all values suggest, so the file is read whole, and a time without a zone
    is UTC.
    Raises KeyError for a column of the schema that the file lacks, ArrowInvalid for text that is not UTF-8, and
    ConfigError for a type that text cannot become.
    """
    convert = pa_csv.ConvertOptions(null_values=list(nulls), strings_can_be_null=True)
    bad: dict[int, tuple[str, str]] = {}
    if schema is None:
        try:
            table = pa_csv.read_csv(path, convert_options=convert, parse_options=pa_csv.ParseOptions(**_PARSING))
        except pa.ArrowInvalid:
            table = pa_csv.read_csv(path, **_noting(bad, convert))
        yield _with_bad(_in_utc(table), None, None, bad, 0)
        return
    convert.column_types = {name: pa.string() for name in schema.names}
    convert.include_columns = schema.names
    first = 0
    for table in _streamed(path, convert, bad):
        columns, errors, raw = cast_columns(table, schema, where=str(path))
        # Records are read ahead: of those that were skipped, the ones among these rows.
        here: dict[int, tuple[str, str]] = {}
        for number in sorted(bad):
            if number < first + table.num_rows + len(here):
                here[number - first] = bad.pop(number)
        yield _with_bad(columns, errors, raw, here, first)
        first += table.num_rows + len(here)
    if bad:
        rest = {number - first: error for number, error in bad.items()}
        yield _with_bad(schema.empty_table(), None, None, rest, first)


def _streamed(path: Path, convert: pa_csv.ConvertOptions, bad: dict[int, tuple[str, str]]) -> Iterator[pa.Table]:
    """Yield what is read of a file, at least one table."""
    with pa_csv.open_csv(path, **_noting(bad, convert)) as reader:
        yield reader.schema.empty_table()
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _noting(bad: dict[int, tuple[str, str]], convert: pa_csv.ConvertOptions) -> dict[str, Any]:
    """Return options to read on one thread, which alone numbers the records, noting those with other fields."""

    def note(row: pa_csv.InvalidRow) -> str:
        error = f"{row.actual_columns} fields where the header has {row.expected_columns}"
        # Arrow counts from 1 and counts the header.
        bad[row.number - 2] = (error, row.text)
        return "skip"

    return {
        "read_options": pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK),
        "parse_options": pa_csv.ParseOptions(invalid_row_handler=note, **_PARSING),
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


def _in_utc(table: pa.Table) -> pa.Table:
    kinds = [pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(f.type) else f.type for f in table.schema]
    return table.cast(pa.schema([pa.field(f.name, kind) for f, kind in zip(table.schema, kinds, strict=True)]))
