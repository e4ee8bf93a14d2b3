"""Compare the columns of stored state with those of the code (schema evolution on restart). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["Evolution", "evolve", "widens"]


@dataclass(frozen=True, slots=True)
class Evolution:
    """The differences between a step's stored state and its code, in clauses; the `refused` ones forbid a restart."""

    refused: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()

    def __add__(self, other: Evolution) -> Evolution:
        """Return what both say, each clause once: partitions that wrote at other times may differ."""
        return Evolution(
            tuple(dict.fromkeys([*self.refused, *other.refused])),
            tuple(dict.fromkeys([*self.accepted, *other.accepted])),
        )


def evolve(old_keys: pa.Schema, keys: pa.Schema, old: pa.Schema, columns: pa.Schema) -> Evolution:
    """Return what of a step's stored columns differs from those it is to have.

    Keys are to be the same. A column of state may be new, which is null in old rows; it may be wider than it was, and
    stand in another place.
    """
    refused = (*_keys(old_keys, keys), *_unfit(old, columns))
    return Evolution(refused, () if refused else tuple(_changed(old, columns)))


def _keys(stored: pa.Schema, keys: pa.Schema) -> Iterator[str]:
    for name in dict.fromkeys([*stored.names, *keys.names]):
        was = stored.field(name).type if name in stored.names else "none"
        now = keys.field(name).type if name in keys.names else "none"
        if was != now:
            yield f"key column {name} was {was} and is {now}"
    if stored.names != keys.names and {*stored.names} == {*keys.names}:  # the hash of a key is of its columns in order
        yield f"the keys were {', '.join(stored.names)} and are {', '.join(keys.names)}, in another order"


def _unfit(stored: pa.Schema, columns: pa.Schema) -> Iterator[str]:
    for field in stored:
        if field.name not in columns.names:
            yield f"column {field.name} {field.type} is gone"
        elif not widens(field.type, columns.field(field.name).type):
            yield f"column {field.name} was {field.type} and is {columns.field(field.name).type}"


def _changed(stored: pa.Schema, columns: pa.Schema) -> Iterator[str]:
    for field in columns:
        if field.name not in stored.names:
            yield f"column {field.name} {field.type} is new, and null for the keys that are there"
        elif field.type != stored.field(field.name).type:
            yield f"column {field.name} was {stored.field(field.name).type} and is {field.type}, which is wider"
    if _in_order(stored.names, columns.names) != _in_order(columns.names, stored.names):
        yield "columns stand in another order"


def _in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    both = set(known)
    return [name for name in names if name in both]


def widens(old: pa.DataType, new: pa.DataType) -> bool:
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
