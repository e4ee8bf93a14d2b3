"""Map Arrow's types to those of PostgreSQL: what a new table gets, and what a table that is there may have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["Column", "fits", "is_nested", "postgres_type", "staged_type"]

_PLAIN = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
}
_WIDER = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "text": ("character varying",),
    "jsonb": ("json",),
}
"""Types of a table that hold each value of a narrower one."""
_SIZED = re.compile(r"(numeric|character varying)\((\d+)(?:,(\d+))?\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table that is there; `type` is as the server writes it."""

    name: str
    type: str
    not_null: bool = False
    filled: bool = False
    """The server gives it a value where an INSERT gives none."""
    computed: bool = False
    """An INSERT may give it no value."""

    @property
    def length(self) -> int | None:
        """Return how many characters a text may have, None for any number."""
        sized = _SIZED.fullmatch(self.type)
        return int(sized[2]) if sized is not None and sized[1] == "character varying" else None


def postgres_type(type_: pa.DataType) -> str | None:
    """Return the type of a column that holds all values of Arrow's, None where there is none."""
    if is_nested(type_):
        return "jsonb" if _has_json(type_) else None
    if pa.types.is_decimal128(type_) and type_.scale >= 0:
        return f"numeric({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_) and type_.unit != "ns":
        return "timestamp without time zone" if type_.tz is None else "timestamp with time zone"
    return _PLAIN.get(type_)


def staged_type(type_: pa.DataType) -> str:
    """Return the type in which a value is copied to the server, which casts it to the column's."""
    return "text" if is_nested(type_) or pa.types.is_decimal(type_) else str(postgres_type(type_))


def is_nested(type_: pa.DataType) -> bool:
    """Return whether values are written as JSON."""
    return bool(pa.types.is_nested(type_))


def fits(type_: pa.DataType, column: str) -> bool:
    """Return whether a column of PostgreSQL's type holds each value of Arrow's without loss, but for long texts."""
    made = postgres_type(type_)
    if made is None:
        return False
    if column in {made, *_WIDER.get(made, ())} or (column == "numeric" and made.startswith("numeric(")):
        return True
    sized = _SIZED.fullmatch(column)
    if sized is None:
        return False
    if sized[1] == "character varying":
        return made == "text"
    whole, scale = int(sized[2]) - int(sized[3] or 0), int(sized[3] or 0)
    if pa.types.is_decimal(type_):
        return bool(type_.scale <= scale and type_.precision - type_.scale <= whole)
    digits = {"smallint": 5, "integer": 10, "bigint": 19}.get(made)
    return digits is not None and digits <= whole


def _has_json(type_: pa.DataType) -> bool:
    """Return whether values have a JSON: objects have texts as keys, and no value is of an unknown type."""
    if pa.types.is_map(type_) and not pa.types.is_string(type_.key_type):
        return False
    parts: Iterable[pa.DataType]
    if pa.types.is_map(type_):
        parts = [type_.item_type]
    elif pa.types.is_struct(type_):
        parts = [field.type for field in type_]
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        parts = [type_.value_type]
    else:
        return False
    return all(postgres_type(part) is not None for part in parts)
