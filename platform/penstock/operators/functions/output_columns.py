"""Turn what a user's function returned into Arrow columns of the declared types, or name the column and both types.

Arrow itself cuts a float to an integer, a moment to its day, and drops fields of a struct that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import WrongOutput

__all__ = ["Check", "checker", "made_column", "typed_column", "typed_table"]

Check = Callable[[Mapping[str, Any], Any], None]

_UNFIT = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
    AttributeError,
)
_LARGEST_FLOAT = float(np.finfo(np.float32).max)


def typed_column(values: Sequence[Any], field: pa.Field, label: str) -> pa.Array:
    """Return Python values as a column; raises WrongOutput for the first that does not fit."""
    column = _whole(values, field.type)
    if column is not None:
        return column
    for value in values:
        if _whole([value], field.type) is None:
            raise WrongOutput(
                f"column {field.name!r} of {label} is {field.type} and got a {type(value).__name__}: {value!r:.80}"
            )
    return _column(values, field.type)


def _whole(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Return values as a column, None where it does not hold them whole."""
    try:
        return _column(values, kind) if _fit(values, kind) else None
    except _UNFIT:
        return None


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a column; memoryviews are copied, because Arrow never frees one, and the worker lives on."""
    if pa.types.is_binary(kind):
        values = [bytes(value) if type(value) is memoryview else value for value in values]
    return pa.array(values, kind)


def checker(schema: pa.Schema, label: str) -> Check:
    """Return what raises WrongOutput for a row, and its key, of which a value does not fit its column.

    Called for each row that a function returns, so that a row that does not fit is known by its call.
    """
    columns = [(field.name, field.type, _exact(field.type), _fits(field.type)) for field in schema]

    def check(row: Mapping[str, Any], key: Any) -> None:
        for name, kind, exact, fits in columns:
            value = row[name]
            if value is not None and type(value) is not exact and not fits(value):
                raise WrongOutput(
                    f"column {name!r} of {label} is {kind} and got a {type(value).__name__} for key {key!r}: "
                    f"{value!r:.80}"
                )

    return check


def _exact(kind: pa.DataType) -> type | None:
    """Return the type of which every value fits, None where some do not."""
    if pa.types.is_float64(kind):
        return float
    if pa.types.is_boolean(kind):
        return bool
    return datetime if pa.types.is_timestamp(kind) and kind.unit == "us" else None


def _fits(kind: pa.DataType) -> Callable[[Any], bool]:
    """Return what tells whether one value fits; the common types without a call of Arrow."""

    def wholly(value: Any) -> bool:
        return _whole([value], kind) is not None

    if pa.types.is_signed_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return lambda value: -most <= value < most if type(value) is int else wholly(value)
    if pa.types.is_string(kind):
        return lambda value: (type(value) is str and value.isascii()) or wholly(value)
    return wholly


def made_column(values: Sequence[Any], field: pa.Field, label: str) -> pa.Array:
    """Return values that a `checker` has let pass as a column."""
    try:
        return _column(values, field.type)
    except _UNFIT:
        return typed_column(values, field, label)


def typed_table(table: object, schema: pa.Schema, label: str) -> pa.Table:
    """Return a table with exactly the columns of the schema, widened where that loses nothing; or raise WrongOutput."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise WrongOutput(f"{label} is a {type(table).__name__}, not a pyarrow Table")
    if set(table.column_names) != set(schema.names) or table.num_columns != len(schema):
        raise WrongOutput(f"{label} has the columns {table.column_names}, not {schema.names}")
    columns = []
    for field in schema:
        column = table.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise WrongOutput(f"column {field.name!r} of {label} is {field.type} and got {column.type}") from None
    return pa.table(columns, schema=schema)


def _fit(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Return whether the values are of Python types that the Arrow type holds whole; looks at each type once."""
    if pa.types.is_nested(kind) or pa.types.is_float32(kind):
        return _fit_one_by_one([value for value in values if value is not None], kind)
    return _are({*map(type, values)} - {type(None)}, *_python_types(kind))


def _fit_one_by_one(present: Sequence[Any], kind: pa.DataType) -> bool:
    """Return the same of values that are there, where their types do not say it."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if not all(isinstance(value, Mapping) and value.keys() == set(names) for value in present):
            return False
        return all(_fit([value[field.name] for value in present], field.type) for field in kind)
    if pa.types.is_map(kind):
        pairs = [pair for value in present for pair in (value.items() if isinstance(value, Mapping) else value)]
        return _fit([k for k, _ in pairs], kind.key_type) and _fit([v for _, v in pairs], kind.item_type)
    if pa.types.is_list(kind):
        return _fit([item for value in present for item in value], kind.value_type)
    if pa.types.is_float32(kind) and any(_LARGEST_FLOAT < abs(value) < float("inf") for value in present):
        return False
    return _are({*map(type, present)}, *_python_types(kind))


def _are(kinds: set[type], wanted: tuple[type, ...], unwanted: tuple[type, ...]) -> bool:
    """Return whether all types are among the wanted, or under them, and none is unwanted."""
    return all(issubclass(kind, wanted) and not (unwanted and issubclass(kind, unwanted)) for kind in kinds)


def _python_types(kind: pa.DataType) -> tuple[tuple[type, ...], tuple[type, ...]]:
    """Return the Python types that fit an Arrow type, and those of their subtypes that do not."""
    for holds, wanted, unwanted in _PYTHON:
        if holds(kind):
            return wanted, unwanted
    return (object,), ()


_PYTHON: tuple[tuple[Any, tuple[type, ...], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool, np.bool_), ()),
    (pa.types.is_integer, (int, np.integer), (bool,)),
    (pa.types.is_floating, (float, int, np.floating, np.integer), (bool,)),
    (pa.types.is_decimal, (Decimal, int), (bool,)),
    (pa.types.is_string, (str,), ()),
    (pa.types.is_binary, (bytes, bytearray, memoryview), ()),
    (pa.types.is_timestamp, (datetime, np.datetime64), ()),
    (pa.types.is_date, (date,), (datetime,)),
    (pa.types.is_time, (time,), ()),
    (pa.types.is_duration, (timedelta,), ()),
)
