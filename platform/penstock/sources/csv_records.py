"""Read CSV files whose records may be bad: each record is a row, or a null row with its text and what was wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from penstock.sources.records import cast_columns

__all__ = ["read_csv"]

Read = tuple[pa.Table, pa.Array | None, pa.Array | None]


def read_csv(path: Path, schema: pa.Schema | None, nulls: Sequence[str]) -> Read:
    """Return the rows, and for each an error and its raw text, null where it fits (SEMANTICS 9.3).

    Errors name the record's number in the file, the header not counted, from 1.
    Without a schema the types are those that the values suggest, and a time without a zone is UTC.
    Raises KeyError for a column of the schema that the file lacks, ArrowInvalid for text that is not UTF-8, and
    ConfigError for a type that text cannot become.
    """
    convert = pa_csv.ConvertOptions(null_values=list(nulls), strings_can_be_null=True)
    if schema is not None:
        convert.column_types = {name: pa.string() for name in schema.names}
        convert.include_columns = schema.names
    bad: dict[int, tuple[str, str]] = {}
    try:
        table = pa_csv.read_csv(path, convert_options=convert)
    except pa.ArrowInvalid:
        table = _read_skipping(path, convert, bad)
    errors, raw = None, None
    if schema is None:
        table = _in_utc(table)
    else:
        table, errors, raw = cast_columns(table, schema, where=str(path))
    return _with_bad(table, errors, raw, bad)


def _read_skipping(path: Path, convert: pa_csv.ConvertOptions, bad: dict[int, tuple[str, str]]) -> pa.Table:
    """Read on one thread, which alone numbers the records, and note those with too many or too few fields."""

    def note(row: pa_csv.InvalidRow) -> str:
        said = f"{row.actual_columns} fields where the header has {row.expected_columns}"
        # Arrow counts from 1 and counts the header.
        bad[row.number - 2] = (said, row.text)
        return "skip"

    return pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(use_threads=False),
        parse_options=pa_csv.ParseOptions(invalid_row_handler=note),
        convert_options=convert,
    )


def _with_bad(table: pa.Table, errors: pa.Array | None, raw: pa.Array | None, bad: dict[int, tuple[str, str]]) -> Read:
    """Put the records that were skipped back in their places, as null rows."""
    if errors is None and not bad:
        return table, None, None
    n = table.num_rows + len(bad)
    skipped = np.zeros(n, dtype=bool)
    skipped[list(bad)] = True
    # A null index gives a null row.
    places = pa.array(np.cumsum(~skipped) - 1, mask=skipped)
    kept_errors = [None] * n if errors is None else errors.take(places).to_pylist()
    kept_raw = [None] * n if raw is None else raw.take(places).to_pylist()
    for i, (said, text) in bad.items():
        kept_errors[i], kept_raw[i] = said, text
    named = [None if said is None else f"record {i + 1} of the file: {said}" for i, said in enumerate(kept_errors)]
    return table.take(places), pa.array(named, pa.string()), pa.array(kept_raw, pa.string())


def _in_utc(table: pa.Table) -> pa.Table:
    kinds = [pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(f.type) else f.type for f in table.schema]
    return table.cast(pa.schema([pa.field(f.name, kind) for f, kind in zip(table.schema, kinds, strict=True)]))
