"""Decode records that are JSON objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pyarrow as pa

from penstock.errors import ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.sources.formats.base import NO_VALUE, Decoded, NamingFormat, columns_of, cut, placed
from penstock.sources.records import cast_columns

__all__ = ["Json"]


@dataclass(frozen=True, slots=True)
class Json(NamingFormat):
    """A JSON object a record, with the columns of Spark DDL: `Json("id long, v double, at timestamp")`.

    Members that the DDL does not name are left out, and one that is not there is null. Of a member that is there twice
    the last one counts. A value of another type than its column is an error: 1.5 and "1" are no long, 1 is a double.
    Timestamps are texts by ISO 8601. One without a zone is UTC, and digits after microseconds are cut. Dates are texts,
    decimals numbers or texts, and binary is a text by Base64.
    """

    schema: str

    def __post_init__(self) -> None:
        """Refuse arguments of other types."""
        refuse_other_types(self)

    def columns(self) -> pa.Schema:
        """Return the columns; raises ConfigError for DDL that Spark cannot parse, and for what JSON cannot hold."""
        schema = columns_of(self.schema)
        try:
            _decoder(schema)
        except ValueError as why:
            raise ConfigError(f"{self.schema!r} has a name that JSON must escape: {why}") from why
        return schema

    def names(self, value: bytes) -> Collection[str] | None:
        """Return the members of an object, None for what is none."""
        try:
            return _MEMBERS.decode(value)
        except _UNDECODABLE:
            return None

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return the objects' members by column."""
        decoder, fields = _decoder(schema)
        decode = decoder.decode
        rows: list[Any] = []
        errors: list[str | None] = [None] * len(values)
        for i, value in enumerate(values):
            try:
                rows.append(decode(value))  # type: ignore[arg-type]  # of None it raises TypeError
            except _UNDECODABLE as why:
                errors[i] = NO_VALUE if value is None else f"no JSON object of these columns: {why}"
        table = pa.table([field.column(rows) for field in fields], names=schema.names)
        fitted, misfits, _ = cast_columns(table, schema, where="a record")
        return placed(fitted, misfits, errors)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError)


@dataclass(frozen=True, slots=True)
class _Field:
    """How a column is decoded: the member of the decoder's object, and the type that is cast to the column's."""

    member: Callable[[Any], Any]
    kind: pa.DataType

    def column(self, rows: Iterable[Any]) -> pa.Array:
        values = map(self.member, rows)
        if pa.types.is_nested(self.kind) or pa.types.is_decimal(self.kind):
            return pa.array([_plain(value, self.kind) for value in values], _carrier(self.kind))
        if pa.types.is_timestamp(self.kind) or pa.types.is_date(self.kind):
            return cut(pa.array(list(values), pa.string()))
        return pa.array(list(values), _carrier(self.kind))


@lru_cache(maxsize=16)
def _decoder(schema: pa.Schema) -> tuple[msgspec.json.Decoder[Any], tuple[_Field, ...]]:
    """Return what decodes an object, and its columns; a process has few schemas. Raises ConfigError."""
    members = [(f"c{i}", _python_type(field.type, field.name, top=True) | None, None) for i, field in enumerate(schema)]
    renamed = {f"c{i}": field.name for i, field in enumerate(schema)}
    row = msgspec.defstruct("Row", members, rename=renamed, gc=False)
    fields = tuple(_Field(attrgetter(f"c{i}"), field.type) for i, field in enumerate(schema))
    return msgspec.json.Decoder(row, dec_hook=_moment_of), fields


class _Moment:
    """A timestamp or date inside a list, a map or a struct; each kind has a class of its own."""

    kind: pa.DataType

    def __init__(self, value: int) -> None:
        self.value = value


@lru_cache(maxsize=16)
def _moments(kind: pa.DataType) -> type[_Moment]:
    return type("Moment", (_Moment,), {"kind": kind})


def _moment_of(moment: type[_Moment], text: object) -> _Moment:
    """Cast one text as a column of them is cast: Arrow casts no texts below a null."""
    if not isinstance(text, str):
        raise TypeError(f"Expected a time as text, got {text!r}")
    schema = pa.schema([("time", moment.kind)])
    fitted, misfits, _ = cast_columns(pa.table([cut(pa.array([text]))], names=["time"]), schema, where="a record")
    if misfits is not None:
        raise ValueError(f"{text!r} is no {moment.kind}")
    column = fitted["time"].combine_chunks()
    return moment(column.view(pa.int32() if pa.types.is_date(moment.kind) else pa.int64())[0].as_py())


def _python_type(kind: pa.DataType, name: str, *, top: bool = False) -> Any:
    """Return the type that msgspec decodes a value as, before Arrow casts it."""
    if not top and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return _moments(kind)
    if pa.types.is_struct(kind):
        return TypedDict(name, {f.name: NotRequired[_python_type(f.type, f.name) | None] for f in kind})  # type: ignore[operator]
    if pa.types.is_list(kind):
        return list[_python_type(kind.value_type, name) | None]  # type: ignore[misc]
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise ConfigError(f"column {name!r} is a map whose keys are no texts, which JSON cannot hold")
        return dict[str, _python_type(kind.item_type, name) | None]  # type: ignore[misc]
    for is_kind, python_type in _PYTHON_TYPES:
        if is_kind(kind):
            return python_type
    raise ConfigError(f"column {name!r} is {kind}, which JSON cannot hold")


_PYTHON_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_integer, Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]),
    (pa.types.is_floating, float),
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_timestamp, str),
    (pa.types.is_date, str),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_binary, bytes),
)


_DIGITS = 80
"""More than a decimal has: 38, or 76."""


def _carrier(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type that holds what was decoded, and that a cast makes the column of."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _carrier(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_carrier(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _carrier(kind.item_type))
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.string() if pa.types.is_decimal(kind) else kind


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value as its carrier takes it: maps as pairs, decimals as texts, times as numbers."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: _plain(value.get(f.name), f.type) for f in kind}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return [(key, _plain(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_decimal(kind):
        # Written out, 1e900000 takes a megabyte; no decimal has as many digits, and no cast takes these words.
        return format(value, "f") if abs(value.adjusted()) < _DIGITS else f"a number of {value.adjusted():,} digits"
    return value.value if isinstance(value, _Moment) else value
