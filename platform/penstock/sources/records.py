"""Fit records to a schema, one column at a time, and say of each bad record what was wrong (SEMANTICS 9.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["arrow_schema", "cast_columns", "rows_to_table"]


def arrow_schema(ddl: str) -> pa.Schema:
    """Return the Arrow schema of Spark DDL; needs a Spark session, because only Spark parses its DDL."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType(StructType.fromDDL(ddl).fields), timezone="UTC")  # type: ignore[attr-defined]


def rows_to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> tuple[pa.Table, pa.Array, pa.Array]:
    """Return the rows as a table, and for each row an error and its raw text, null where it fits.

    A number in a timestamp column is seconds since 1970.
    A row with an unknown column or a value of another type is bad: its columns are null in the table.
    """
    errors: list[str | None] = [_misfit(row, schema) for row in rows]
    columns = []
    for field in schema:
        values = [None if e else _value(row.get(field.name), field.type) for row, e in zip(rows, errors, strict=True)]
        columns.append(_array(values, field, errors))
    if any(errors):
        # A later column can find a row bad: its other columns are made null as well.
        good = pa.array([e is None for e in errors])
        columns = [pc.if_else(good, c, pa.nulls(len(rows), c.type)) for c in columns]
    raw = [None if e is None else json.dumps(row, default=str) for row, e in zip(rows, errors, strict=True)]
    return pa.table(columns, schema=schema), pa.array(errors, pa.string()), pa.array(raw, pa.string())


def _misfit(row: Mapping[str, Any], schema: pa.Schema) -> str | None:
    unknown = sorted(set(row) - set(schema.names))
    return f"unknown column {unknown[0]!r}" if unknown else None


def _value(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * 1_000_000)
    if pa.types.is_timestamp(kind) and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def _array(values: list[Any], field: pa.Field, errors: list[str | None]) -> pa.Array:
    try:
        return _strict_array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError):
        pass
    kept = []
    for i, value in enumerate(values):
        try:
            kept.append(_strict_array([value], field.type)[0])
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as why:
            errors[i] = errors[i] or f"column {field.name!r}: {why}"
            kept.append(pa.scalar(None, field.type))
    return pa.array([k.as_py() for k in kept], field.type)


def _strict_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind) and any(isinstance(v, bool) for v in values):
        raise ValueError("a boolean is not a number")
    if pa.types.is_integer(kind) and any(
        isinstance(v, float | bool) and v != v.__index__() for v in values if isinstance(v, bool)
    ):
        raise ValueError("a boolean is not a number")
    return pa.array(values, kind)


def cast_columns(table: pa.Table, schema: pa.Schema) -> tuple[pa.Table, pa.Array | None, pa.Array | None]:
    """Cast columns of text to the schema; bad records become null rows with an error and their raw text."""
    columns: list[pa.ChunkedArray] = []
    errors: dict[int, str] = {}
    for field in schema:
        column = table[field.name]
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowInvalid:
            columns.append(_cast_slowly(column, field, errors))
    if not errors:
        return pa.table(columns, schema=schema), None, None
    n = table.num_rows
    bad = np.zeros(n, dtype=bool)
    bad[list(errors)] = True
    good = pa.array(~bad)
    columns = [pc.if_else(good, c, pa.nulls(n, c.type)) for c in columns]
    messages = pa.array([errors.get(i) for i in range(n)], pa.string())
    raw: list[str | None] = [None] * n
    for i in errors:
        raw[i] = json.dumps({name: table[name][i].as_py() for name in table.column_names})
    return pa.table(columns, schema=schema), messages, pa.array(raw, pa.string())


def _cast_slowly(column: pa.ChunkedArray, field: pa.Field, errors: dict[int, str]) -> pa.ChunkedArray:
    values = []
    for i, value in enumerate(column):
        try:
            values.append(value.cast(field.type).as_py())
        except pa.ArrowInvalid as why:
            errors.setdefault(i, f"column {field.name!r}: {why}")
            values.append(None)
    return pa.chunked_array([pa.array(values, field.type)])
