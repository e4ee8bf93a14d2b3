"""Encode rows as records of Avro, by a schema of the job's own or the latest of a subject in a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from struct import Struct
from typing import Any
from uuid import UUID

import pyarrow as pa

from penstock.avro.columns import Column
from penstock.avro.schema import AvroSchema, SchemaText, compiled, shortened
from penstock.avro.schema_registry import SchemaRegistry
from penstock.errors import (
    CertificateRefused,
    ConfigError,
    SchemaNotFound,
    SinkDenied,
    SinkSchemaMismatch,
    SinkUnavailable,
    SinkValueRefused,
    SourceRefused,
    SourceUnavailable,
)
from penstock.graph.argument_types import refuse_other_types
from penstock.sinks.encoders import Encoder

__all__ = ["Avro"]

_HEADER = Struct(">bI")
"""The bytes before a record whose schema is in a registry: a zero, and the schema's id."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local timestamp has no zone
_DAY_0 = date(1970, 1, 1)
_MICRO, _MILLI = timedelta(microseconds=1), timedelta(milliseconds=1)

Plain = Callable[[Any], Any]
"""Make of a Python value, never null, what Avro has under the logical type; raises ValueError where it does not fit."""


@dataclass(frozen=True, slots=True)
class Avro(Encoder):
    """A record of Avro a row: `Avro("...")`, or `Avro(registry="http://127.0.0.1:8081", subject="orders-value")`.

    With a `schema` the value is the binary encoding by it and nothing else. With a `registry`, a zero byte and the
    schema's id in four bytes stand before that, as its clients expect. The sink asks for the latest schema of the
    subject once a run, and registers none. Each field has the column of its name; `penstock.sources.Avro` reads the
    same values back. What the schema cannot hold is refused before its batch is committed.

    Args:
        schema: The schema to write by, as JSON or as what JSON makes of it.
        registry: The address of a schema registry.
        subject: The subject whose latest schema to write by.
        user: Who asks the registry, by HTTP basic authentication.
        password: The user's password. Take it from the environment of the driver.

    Raises:
        ConfigError: There is neither a schema nor a registry with a subject, or there are both. The schema is no
            record, or has a field that no column holds, such as a union of several types.
    """

    schema: str | Mapping[str, Any] | None = None
    _: KW_ONLY
    registry: str | None = None
    subject: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        refuse_other_types(self)
        if (self.schema is None) is (self.registry is None) or (self.registry is None) is not (self.subject is None):
            raise ConfigError("Avro needs a schema=, or a registry= and a subject=")
        if self.schema is not None:
            compiled(self._given).columns()

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns and fields that do not fit each other; asks the registry where there is one."""
        _, avro = self._writer()
        fields, columns = [f["name"] for f in avro.root["fields"]], avro.columns()
        if sorted(fields) != sorted(schema.names):
            raise SinkSchemaMismatch(f"the schema of Avro has {fields}, and the stream has {schema.names}")
        for column in columns:
            kind = schema.field(column.name).type
            if not _fits(kind, column.kind):
                raise SinkSchemaMismatch(f"column {column.name!r} is {kind}, and the schema of Avro has {column.kind}")

    def encode(self, rows: pa.Table) -> pa.Array:
        """Return the records as bytes."""
        from fastavro import schemaless_writer

        header, avro = self._writer()
        names = [f["name"] for f in avro.root["fields"]]
        columns = [
            _values(rows[column.name].combine_chunks(), column, plain)
            for column, plain in zip(avro.columns(), _plains(avro), strict=True)
        ]
        made = []
        for number, values in enumerate(zip(*columns, strict=True)):
            record = io.BytesIO()
            record.write(header)
            try:
                schemaless_writer(record, avro.plain, dict(zip(names, values, strict=True)))
            except Exception as why:
                reason = f"{type(why).__name__}: {shortened(why)}"
                raise SinkValueRefused(f"row {number:,} does not fit the schema of Avro: {reason}") from why
            made.append(record.getvalue())
        return pa.array(made, pa.binary())

    @property
    def _given(self) -> SchemaText:
        return SchemaText(self.schema if isinstance(self.schema, str) else json.dumps(self.schema))

    def _writer(self) -> tuple[bytes, AvroSchema]:
        """Return the bytes before each record, and the schema."""
        if self.registry is None or self.subject is None:
            return b"", compiled(self._given)
        number, text = _latest(SchemaRegistry(self.registry, self.user, self.password), self.subject)
        return _HEADER.pack(0, number), compiled(text)


@lru_cache(maxsize=64)
def _latest(registry: SchemaRegistry, subject: str) -> tuple[int, SchemaText]:
    """Return the latest schema of a subject and its id: for a whole run the same, so that its records are alike."""
    try:
        return registry.latest_with_id(subject)
    except SchemaNotFound as why:
        raise SinkSchemaMismatch(why.what, where=registry.url) from why
    except SourceUnavailable as why:
        raise SinkUnavailable(why.what, where=registry.url) from why
    except (SourceRefused, CertificateRefused) as why:
        raise SinkDenied(why.what, where=registry.url) from why


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of a column may become those of a field; which of them do, only the values tell."""
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(kind) or {f.name for f in kind} != {f.name for f in wanted}:
            return False
        return all(_fits(kind.field(f.name).type, f.type) for f in wanted)
    if pa.types.is_list(wanted):
        return pa.types.is_list(kind) and _fits(kind.value_type, wanted.value_type)
    if pa.types.is_map(wanted):
        has_keys = pa.types.is_map(kind) and kind.key_type == wanted.key_type
        return has_keys and _fits(kind.item_type, wanted.item_type)
    for is_alike in (pa.types.is_integer, pa.types.is_decimal):
        if is_alike(wanted):
            return bool(is_alike(kind))
    return bool(kind == wanted) or (pa.types.is_float64(wanted) and pa.types.is_float32(kind))


def _values(column: pa.Array, to: Column, plain: Plain | None) -> Iterator[Any]:
    """Yield the values of a column as fastavro takes them."""
    try:
        values: Sequence[Any] = column.cast(to.kind).to_pylist()
        return iter(values if plain is None else [None if v is None else plain(v) for v in values])
    except (pa.ArrowException, OverflowError, ValueError) as why:
        raise SinkValueRefused(f"column {to.name!r} has a value that {to.kind} cannot hold: {shortened(why)}") from why


# --- what stands under each logical type ---------------------------------------------------------
def _plains(avro: AvroSchema) -> list[Plain | None]:
    return [_plain(f["type"], avro.names) for f in avro.root["fields"]]


def _plain(schema: Any, names: Mapping[str, Any]) -> Plain | None:
    """Return what makes plain values of those of a type, None where they are plain; the type is one of a column."""
    if isinstance(schema, list):
        return _plain(next(branch for branch in schema if branch != "null"), names)
    if isinstance(schema, str):
        return _plain(names[schema], names) if schema in names else None
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str) or kind in names:
        return _plain(kind, names)
    if kind == "array":
        return _list_of(_plain(schema["items"], names))
    if kind == "map":
        return _map_of(_plain(schema["values"], names))
    if kind == "record":
        return _struct_of({f["name"]: _plain(f["type"], names) for f in schema["fields"]})
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        return _decimal(schema.get("scale", 0), schema.get("size"))
    return _PLAIN.get((kind, logical))


def _list_of(plain: Plain | None) -> Plain | None:
    return None if plain is None else lambda values: [None if v is None else plain(v) for v in values]


def _map_of(plain: Plain | None) -> Plain:
    return lambda pairs: {k: v if v is None or plain is None else plain(v) for k, v in pairs}


def _struct_of(plains: Mapping[str, Plain | None]) -> Plain:
    def struct(row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: row[name] if row[name] is None or plain is None else plain(row[name])
            for name, plain in plains.items()
        }

    return struct


def _decimal(scale: int, size: int | None) -> Plain:
    def unscaled(value: Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        number: int = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale) * (-1 if sign else 1)
        return number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True)

    return unscaled


def _millis(epoch: datetime) -> Plain:
    def millis(value: datetime) -> int:
        number, rest = divmod(value - epoch, _MILLI)
        if rest:
            raise ValueError(f"{value} is no whole number of milliseconds")
        return number

    return millis


def _uuid_text(value: str) -> str:
    if str(UUID(value)) != value.lower():
        raise ValueError(f"{value!r} is no UUID as text")
    return value


_PLAIN: Mapping[tuple[str, str | None], Plain] = {
    ("long", "timestamp-micros"): lambda value: (value - _EPOCH) // _MICRO,
    ("long", "timestamp-millis"): _millis(_EPOCH),
    ("long", "local-timestamp-micros"): lambda value: (value - _LOCAL_EPOCH) // _MICRO,
    ("long", "local-timestamp-millis"): _millis(_LOCAL_EPOCH),
    ("int", "date"): lambda value: (value - _DAY_0).days,
    ("string", "uuid"): _uuid_text,
    ("fixed", "uuid"): lambda value: UUID(value).bytes,
}
