"""Fit records to a schema, one column at a time, and say of each bad record what was wrong (SEMANTICS 9.3).

A bad record is a null row, with its text and what was wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError
from penstock.sources.base import PARTIAL

__all__ = ["Read", "arrow_schema", "cast_columns", "in_micros", "rows_to_table"]

Read = tuple[pa.Table, pa.Array | None, pa.Array | None]
_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_INFINITE = r"(?i)^\s*[+-]?inf(inity)?\s*$"
_LONGEST = 100
"""Characters of a value that an error shows."""


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
        values = [None if e else row.get(field.name) for row, e in zip(rows, errors, strict=True)]
        columns.append(_array(values, field, errors))
    if any(errors):
        # A later column can find a row bad: its other columns are made null as well.
        good = pa.array([e is None for e in errors])
        columns = [pc.if_else(good, c, pa.nulls(len(rows), c.type)) for c in columns]
    raw = [None if e is None else json.dumps(row, default=str) for row, e in zip(rows, errors, strict=True)]
    return pa.table(columns, schema=schema), pa.array(errors, pa.string()), pa.array(raw, pa.string())


def _misfit(row: Mapping[str, Any], schema: pa.Schema) -> str | None:
    unknown = sorted(set(row) - set(schema.names))
    if unknown:
        return f"unknown column {unknown[0]!r}"
    missing = next((f.name for f in schema if not f.nullable and row.get(f.name) is None), None)
    return _said_of_null(missing) if missing is not None else None


def _said_of_null(name: str) -> str:
    return f"column {name!r} is null, and the schema says NOT NULL"


def _value(value: Any, kind: pa.DataType) -> Any:
    # What Arrow would bend to fit: True to 1, 1.5 to 1, 1e300 to inf, 5.5 to a day, a moment to its day, bytes to text.
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return [_value(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        if not set(value) <= {f.name for f in kind}:
            raise TypeError
        return {f.name: _value(value.get(f.name), f.type) for f in kind}
    if _has_null_pair(value, kind) or (isinstance(value, bool | np.bool_) and not pa.types.is_boolean(kind)):
        raise TypeError
    if (isinstance(value, bytes) and pa.types.is_string(kind)) or (isinstance(value, str) and pa.types.is_binary(kind)):
        raise TypeError
    if isinstance(value, datetime) and pa.types.is_date(kind):
        raise TypeError
    if isinstance(value, Decimal) and pa.types.is_timestamp(kind):
        return round(value * 1_000_000)
    if isinstance(value, int | float) and _would_be_another(value, kind):
        raise ValueError
    if isinstance(value, int | float) and pa.types.is_date(kind):
        raise TypeError
    if pa.types.is_timestamp(kind) and isinstance(value, int | float):
        return round(value * 1_000_000)
    if pa.types.is_timestamp(kind) and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def _has_null_pair(value: Any, kind: pa.DataType) -> bool:
    """Return whether a map has null instead of a pair, at any depth: Arrow ends the process for such a one."""
    if pa.types.is_map(kind):
        listed = isinstance(value, list | tuple)
        if listed and any(pair is None for pair in value):
            return True
        pairs = [pair for pair in value if isinstance(pair, list | tuple) and len(pair) == 2] if listed else []  # noqa: PLR2004 - a pair
        items = value.values() if isinstance(value, Mapping) else [item for _, item in pairs]
        return any(_has_null_pair(item, kind.item_type) for item in items)
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return any(_has_null_pair(item, kind.value_type) for item in value)
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        return any(_has_null_pair(value.get(field.name), field.type) for field in kind)
    return False


def _would_be_another(value: float, kind: pa.DataType) -> bool:
    """Return whether a column of integers would round a number, or one of floats make it infinite."""
    if pa.types.is_float32(kind):
        return bool(_LARGEST_FLOAT < abs(value) < np.inf)
    return isinstance(value, float) and bool(pa.types.is_integer(kind)) and not value.is_integer()


def _array(values: list[Any], field: pa.Field, errors: list[str | None]) -> pa.Array:
    """Return the values as an array; what does not fit is null and has its reason in `errors`."""
    try:
        return pa.array([_value(v, field.type) for v in values], field.type)
    except _UNFIT:
        pass
    kept = []
    for i, value in enumerate(values):
        try:
            kept.append(pa.array([_value(value, field.type)], field.type))
        except _UNFIT:
            errors[i] = f"column {field.name!r}: {_shown(value)} does not fit {_spark_name(field.type)}"
            kept.append(pa.nulls(1, field.type))
    return pa.concat_arrays(kept)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _spark_name(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return str(from_arrow_type(kind).simpleString())


def cast_columns(table: pa.Table, schema: pa.Schema, *, where: str) -> Read:
    """Cast the columns of a file to the schema; bad records become null rows with an error and their raw text.

    A time without a zone is UTC.
    Raises ConfigError with `where`, the file, for a type that no value of a column can become.
    """
    columns: list[pa.ChunkedArray] = []
    errors = _nulls(table, schema)
    for field in schema:
        column = table[field.name]
        try:
            columns.append(_cast(column, field.type))
        except pa.ArrowInvalid:
            columns.append(_cast_slowly(column, field, errors))
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as why:
            problem = (
                f"column {field.name!r} is {column.type} in the file, and the schema says {_spark_name(field.type)}"
            )
            raise ConfigError(problem, where=where) from why
    if not errors:
        return pa.table(columns, schema=schema), None, None
    n = table.num_rows
    bad = np.zeros(n, dtype=bool)
    bad[list(errors)] = True
    good = pa.array(~bad)
    columns = [pc.if_else(good, c, pa.nulls(n, c.type)) for c in columns]
    # JSON has no bytes: what it has of a column of them is not what the column had.
    partial = PARTIAL if any("binary" in str(kind) for kind in table.schema.types) else ""
    messages = pa.array([f"{errors[i]}{partial}" if i in errors else None for i in range(n)], pa.string())
    raw: list[str | None] = [None] * n
    for i in errors:
        raw[i] = json.dumps({name: table[name][i].as_py() for name in table.column_names}, default=str)
    return pa.table(columns, schema=schema), messages, pa.array(raw, pa.string())


def _nulls(table: pa.Table, schema: pa.Schema) -> dict[int, str]:
    """Return the rows with a null where the schema allows none, and the first such column of each in words."""
    errors: dict[int, str] = {}
    for field in schema:
        if not field.nullable and table[field.name].null_count:
            for i in np.flatnonzero(pc.is_null(table[field.name])):
                errors.setdefault(int(i), _said_of_null(field.name))
    return errors


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        cast = column.cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(kind):
            raise
        return column.cast(pa.timestamp("us")).cast(kind)
    if _is_bent(column, cast):
        raise pa.ArrowInvalid("a value would be another one")
    return cast


def _is_bent(column: pa.ChunkedArray | pa.Array, cast: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether a cast has made a value infinite, or rounded one to a decimal, where Arrow raises nothing.

    Values inside lists, maps and structs count like values of a column.
    """
    if pa.types.is_nested(cast.type):
        return any(_is_bent(values, other) for values, other in _inner(_whole(column), _whole(cast)))
    if pa.types.is_floating(cast.type):
        infinite = pc.is_inf(cast)
        if not pc.any(infinite).as_py():
            return False
        text = any(is_text(column.type) for is_text in (pa.types.is_string, pa.types.is_large_string))
        meant = pc.match_substring_regex(column, _INFINITE) if text else pc.is_inf(column.cast(pa.float64()))
        return bool(pc.any(pc.and_not(infinite, meant)).as_py())
    if pa.types.is_decimal(cast.type) and pa.types.is_floating(column.type):
        # By way of text: Arrow's own way from a decimal to a double is off by a bit for one value of cents in seven.
        back = cast.cast(pa.string()).cast(column.type)
        return bool(pc.any(pc.not_equal(back, column)).as_py())
    return False


def _inner(nested: pa.Array, cast: pa.Array) -> list[tuple[pa.Array, pa.Array]]:
    """Return the values in a nested array that are in no null, and what a cast has made of them."""
    if pa.types.is_struct(cast.type):
        before, after = (dict(zip(a.type.names, a.flatten(), strict=True)) for a in (nested, cast))
        return [(before[name], after[name]) for name in after if name in before]
    return [(_unlisted(nested), _unlisted(cast))]


def _unlisted(lists: pa.Array) -> pa.Array:
    """Return what lists hold; of maps structs of key and item, whatever a file calls them."""
    if pa.types.is_map(lists.type):
        lists = lists.cast(pa.list_(pa.struct([("key", lists.type.key_type), ("value", lists.type.item_type)])))
    return lists.flatten()


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _cast_slowly(column: pa.ChunkedArray, field: pa.Field, errors: dict[int, str]) -> pa.ChunkedArray:
    cast: list[pa.Array] = []
    for i in range(len(column)):
        try:
            cast.extend(
                _cast(column.take([i]), field.type).chunks
            )  # a slice of a map would be cast with its neighbours
        except pa.ArrowInvalid:
            shown = f"column {field.name!r}: {_shown(column[i].as_py())} does not fit {_spark_name(field.type)}"
            errors.setdefault(i, shown)
            cast.append(pa.nulls(1, field.type))
    return pa.chunked_array(cast, field.type)


def in_micros(table: pa.Table, *, utc: bool = False) -> pa.Table:
    """Return the table with timestamps in microseconds, the only ones Spark holds; in UTC those with a zone.

    With `utc` a time without a zone is in UTC as well.
    """
    kinds = [
        pa.timestamp("us", tz="UTC" if utc or f.type.tz else None) if pa.types.is_timestamp(f.type) else f.type
        for f in table.schema
    ]
    return table.cast(pa.schema([pa.field(f.name, kind) for f, kind in zip(table.schema, kinds, strict=True)]))
