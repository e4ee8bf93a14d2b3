"""Make columns of what fastavro has decoded, by the types of a schema (SEMANTICS 9.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from penstock.errors import ConfigError

__all__ = ["LOGICAL", "Column", "column_of"]

_UTC = pa.timestamp("us", tz="UTC")
_LOCAL = pa.timestamp("us")
_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "enum": pa.string(), "bytes": pa.binary(), "fixed": pa.binary(),
}  # fmt: skip
_MOST_DIGITS = 38
"""Spark's decimals have no more."""

Convert = Callable[[Any], Any]
"""Make of a value of fastavro's, never null, one that Arrow takes; raises ValueError for a value that does not fit."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type, and what a value must become before Arrow takes it, None where it need not."""

    name: str
    kind: pa.DataType
    convert: Convert | None

    def made(self, values: Sequence[Any], errors: list[str | None]) -> pa.Array:
        """Return values as an array; one that does not fit is null, and its error is noted where there is none yet."""
        try:
            return pa.array(self._converted(values), self.kind)
        except _UNFIT:
            pass
        kept = []
        for i, value in enumerate(values):
            try:
                kept.append(pa.array(self._converted([value]), self.kind))
            except _UNFIT:
                shown = repr(value)
                shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
                errors[i] = errors[i] or f"column {self.name!r}: {shown} does not fit {self.kind}"
                kept.append(pa.nulls(1, self.kind))
        return pa.concat_arrays(kept)

    def _converted(self, values: Sequence[Any]) -> Sequence[Any]:
        convert = self.convert
        return values if convert is None else [None if value is None else convert(value) for value in values]


_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
_LONGEST = 100
"""Characters of a value that an error shows."""


def column_of(schema: Any, name: str, names: Mapping[str, Any]) -> Column:
    """Return the column of a type; raises ConfigError for one that no column holds, with the name of its field."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise ConfigError(f"field {name!r} is a union of {_shown(schema)}; a column holds one type and null")
        return column_of(branches[0], name, names)
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    kind = schema["type"]
    if not isinstance(kind, str) or kind in names:
        return column_of(kind, name, names)
    logical = LOGICAL.get((kind, schema.get("logicalType")))
    if logical is not None:
        return logical(schema, name)
    if kind in _PLAIN:
        return Column(name, _PLAIN[kind], _bytes if kind in {"bytes", "fixed"} else None)
    if kind == "array":
        items = column_of(schema["items"], name, names)
        return Column(name, pa.list_(items.kind), _list_of(items.convert))
    if kind == "map":
        values = column_of(schema["values"], name, names)
        return Column(name, pa.map_(pa.string(), values.kind), _pairs_of(values.convert))
    if kind == "record":
        if not schema["fields"]:
            raise ConfigError(f"field {name!r} is a record without fields, which no column holds")
        parts = [column_of(f["type"], f["name"], names) for f in schema["fields"]]
        return Column(name, pa.struct([(part.name, part.kind) for part in parts]), _struct_of(parts))
    raise ConfigError(f"field {name!r} is {kind}, which no column holds")


def _shown(union: Sequence[Any]) -> str:
    return " and ".join(str(b.get("name", b["type"])) if isinstance(b, dict) else str(b) for b in union)


def _bytes(value: Any) -> bytes:
    """Return bytes; a default of the schema is a text of their numbers."""
    return value.encode("latin-1") if isinstance(value, str) else value


def _list_of(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: [None if v is None else convert(v) for v in values]


def _pairs_of(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda values: list(values.items())
    return lambda values: [(key, None if value is None else convert(value)) for key, value in values.items()]


def _struct_of(parts: Sequence[Column]) -> Convert | None:
    converts = [(part.name, part.convert) for part in parts if part.convert is not None]
    if not converts:
        return None

    def struct(value: Mapping[str, Any]) -> dict[str, Any]:
        made = dict(value)
        for name, convert in converts:
            made[name] = None if made[name] is None else convert(made[name])
        return made

    return struct


def _decimal(schema: Mapping[str, Any], name: str) -> Column:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or not precision:
        raise ConfigError(f"field {name!r} is a decimal with precision {precision} and scale {scale}")
    if precision > _MOST_DIGITS:
        raise ConfigError(f"field {name!r} is a decimal of {precision} digits, and a column has {_MOST_DIGITS}")
    too_large = 10**precision

    def number(value: Any) -> Decimal:
        unscaled = int.from_bytes(_bytes(value), "big", signed=True)
        if abs(unscaled) >= too_large:
            raise ValueError("too many digits")
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return Column(name, pa.decimal128(precision, scale), number)


def _millis(kind: pa.DataType) -> Callable[[Mapping[str, Any], str], Column]:
    return lambda _, name: Column(name, kind, lambda value: value * 1_000)


def _as_it_is(kind: pa.DataType) -> Callable[[Mapping[str, Any], str], Column]:
    return lambda _, name: Column(name, kind, None)


LOGICAL: Mapping[tuple[Any, Any], Callable[[Mapping[str, Any], str], Column]] = {
    ("long", "timestamp-millis"): _millis(_UTC),
    ("long", "timestamp-micros"): _as_it_is(_UTC),
    ("long", "local-timestamp-millis"): _millis(_LOCAL),
    ("long", "local-timestamp-micros"): _as_it_is(_LOCAL),
    ("int", "date"): _as_it_is(pa.date32()),
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("string", "uuid"): _as_it_is(pa.string()),
    ("fixed", "uuid"): lambda _, name: Column(name, pa.string(), lambda value: str(UUID(bytes=_bytes(value)))),
}
"""The logical types that a column has; any other is read as the type that it stands for, as Avro says."""
