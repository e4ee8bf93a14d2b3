"""Say whether state that was written with other columns can be gone on with (schema evolution on restart)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

__all__ = ["differences"]


def differences(old_keys: pa.Schema, keys: pa.Schema, old: pa.Schema, columns: pa.Schema) -> list[str]:
    """Return what of a step's stored columns does not fit those it is to have; nothing where it can go on.

    Keys are to be the same. A column of state may be new, which is null in old rows; it may be wider than it was, and
    stand in another place.
    """
    return [*_keys(old_keys, keys), *_columns(old, columns)]


def _keys(stored: pa.Schema, keys: pa.Schema) -> Iterator[str]:
    for name in dict.fromkeys([*stored.names, *keys.names]):
        was = stored.field(name).type if name in stored.names else "none"
        now = keys.field(name).type if name in keys.names else "none"
        if was != now:
            yield f"key column {name} was {was} and is {now}"


def _columns(stored: pa.Schema, columns: pa.Schema) -> Iterator[str]:
    for field in stored:
        if field.name not in columns.names:
            yield f"column {field.name} {field.type} is gone"
        elif not _widens(field.type, columns.field(field.name).type):
            yield f"column {field.name} was {field.type} and is {columns.field(field.name).type}"


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether every value of the old type has one of the new type."""
    if old == new:
        return True
    if pa.types.is_integer(old) and pa.types.is_integer(new):
        return bool(new.bit_width > old.bit_width)
    if pa.types.is_floating(old) and pa.types.is_floating(new):
        return bool(new.bit_width > old.bit_width)
    if pa.types.is_integer(old) and pa.types.is_float64(new):
        return bool(old.bit_width <= _EXACT)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return False


_EXACT = 32
"""Bits of an integer that a double holds exactly, whatever the value."""
