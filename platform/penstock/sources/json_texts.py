"""Make rows again of the JSON that sources write for bad records: their texts in quarantine (decision 140).

The texts are those of `cast_columns` and `rows_to_table`: an object of the record's values by column, in which what
JSON has no type for is a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.sources.records import cast_columns, rows_to_table

__all__ = ["rows_by_cast", "rows_by_type"]

Rows = tuple[pa.Table, list[str | None]]
_AS_BEFORE = ""
"""The error of a text that is no such object: what was wrong with the record still is (`TaskReader.decoded`)."""


def rows_by_cast(texts: Sequence[str], schema: pa.Schema) -> Rows:
    """Return the rows of texts that `cast_columns` wrote, and for each what is wrong with it.

    Values are cast as those of a file are, columns that are missing are null, and others are left out.
    """
    objects, errors = _objects(texts)
    kinds: dict[tuple[str, ...], list[int]] = {}
    for i, row in enumerate(objects):
        if row is not None:  # values of one type make a column
            kinds.setdefault(tuple(type(row.get(name)).__name__ for name in schema.names), []).append(i)
    tables, places = [], list[int]()
    pending = list(kinds.values())
    while pending:
        at = pending.pop()
        try:
            columns = [_column([_member(objects[i], field.name) for i in at], field.type) for field in schema]
            table, misfits, _ = cast_columns(pa.table(columns, names=schema.names), schema, where="a text")
        # Numbers and texts that no column of Arrow can hold are none of its own errors.
        except (ConfigError, pa.ArrowException, OverflowError, ValueError) as why:
            if len(at) > 1:  # some of them may fit
                pending += [[i] for i in at]
                continue
            reason = why.what if isinstance(why, ConfigError) else str(why)
            table, misfits = _nulls(schema, 1), pa.array([reason])
        tables.append(table)
        places += at
        for i, misfit in zip(at, [None] * len(at) if misfits is None else misfits.to_pylist(), strict=True):
            errors[i] = misfit
    order = {place: row for row, place in enumerate(places)}
    rows = pa.concat_tables([*tables, schema.empty_table()])
    return rows.take(pa.array([order.get(i) for i in range(len(texts))], pa.int64())), errors


def rows_by_type(texts: Sequence[str], schema: pa.Schema) -> Rows:
    """Return the rows of texts that `rows_to_table` wrote, and for each what is wrong with it.

    Times, dates and decimals may be texts, because JSON has no such types.
    """
    objects, errors = _objects(texts)
    rows = [{} if row is None else {name: _typed(row[name], schema, name) for name in row} for row in objects]
    table, misfits, _ = rows_to_table(rows, schema)
    pairs = zip(errors, misfits.to_pylist(), strict=True)
    return table, [misfit if error is None else error for error, misfit in pairs]


def _objects(texts: Sequence[str]) -> tuple[list[dict[str, Any] | None], list[str | None]]:
    """Return the objects, None for a text that is none, which has an error."""
    objects: list[dict[str, Any] | None] = []
    for text in texts:
        value = None
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
        objects.append(value if isinstance(value, dict) else None)
    return objects, [None if row is not None else _AS_BEFORE for row in objects]


def _member(row: Mapping[str, Any] | None, name: str) -> Any:
    return None if row is None else row.get(name)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values of one type as Arrow has them; where all are null, as nulls of the column's type."""
    if all(value is None for value in values):
        return pa.nulls(len(values), kind)
    try:
        return pa.array(values)
    except OverflowError:  # Arrow takes whole numbers for signed ones
        return pa.array(values, pa.uint64())


def _typed(value: Any, schema: pa.Schema, name: str) -> Any:
    """Return a text as the value that JSON had no type for, where the column has that type."""
    if not isinstance(value, str) or name not in schema.names:
        return value
    kind = schema.field(name).type
    with suppress(ValueError, InvalidOperation):
        if pa.types.is_timestamp(kind):
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        if pa.types.is_date(kind):
            return date.fromisoformat(value)
        if pa.types.is_decimal(kind):
            return Decimal(value)
    return value


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)
