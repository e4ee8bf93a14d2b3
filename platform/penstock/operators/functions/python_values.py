"""Turn Arrow values into Python objects a piece at a time, and name those that Python has no object for (F74).

A timestamp beyond the year 9999 is one: Spark, Parquet and Arrow hold it, and `datetime` does not.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

__all__ = ["PIECE", "Unfit", "first_unfit", "holds_all", "key_values", "python_rows", "python_values"]

PIECE = 4_096
"""Rows, or keys, that are Python objects at once."""
_UNFIT = (ValueError, OverflowError, ArithmeticError, KeyError, TypeError, pa.ArrowException)
_MAPS: Literal["strict"] = "strict"
"""How Arrow makes Python objects of maps: dicts, and an error of one that names a key twice."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """The place of a value that no Python object can hold: its column, and the value as Arrow prints it."""

    column: str
    shown: str


def python_rows(table: pa.Table) -> list[Any]:
    """Return rows as dicts, an Unfit in the place of each row that has such a value. Maps are dicts, too."""
    try:
        rows: list[Any] = table.to_pylist(maps_as_pydicts=_MAPS)
    except _UNFIT:
        columns = {name: python_values(table[name], name) for name in table.column_names}
        each = zip(*columns.values(), strict=True)
        return [first_unfit(values) or dict(zip(columns, values, strict=True)) for values in each]
    return rows


def python_values(column: pa.Array | pa.ChunkedArray, name: str) -> list[Any]:
    """Return the values of a column, an Unfit in the place of each that Python cannot hold.

    Maps are dicts. One that names a key twice is an Unfit.
    """
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts=_MAPS)
    except _UNFIT:
        return [_value(column.slice(at, 1), name) for at in range(len(column))]
    return values


def holds_all(kind: pa.DataType) -> bool:
    """Return whether the type says that Python has an object for every value, so that none is an Unfit."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _value(cell: pa.Array | pa.ChunkedArray, name: str) -> Any:
    try:
        return cell.to_pylist(maps_as_pydicts=_MAPS)[0]
    except _UNFIT:
        array = cell.combine_chunks() if isinstance(cell, pa.ChunkedArray) else cell
        return Unfit(name, " ".join(array.to_string().split())[2:-2][:80])


def first_unfit(values: Sequence[Any]) -> Unfit | None:
    """Return the first that stands for a value that Python cannot hold."""
    return next((value for value in values if isinstance(value, Unfit)), None)


def key_values(keys: pa.Table, number: int) -> list[Any]:
    """Return keys as a function sees them: the value of one column, a named tuple of several, () of none.

    `number` is how many there are, which a table without columns does not know. An Unfit stands for one that
    Python cannot hold.
    """
    columns = [python_values(keys[name], name) for name in keys.column_names]
    if len(columns) == 1:
        return columns[0]
    if not columns:
        return [()] * number
    named = namedtuple("Key", keys.column_names, rename=True)  # type: ignore[misc] # noqa: PYI024 - names are data
    return [first_unfit(values) or named._make(values) for values in zip(*columns, strict=True)]
