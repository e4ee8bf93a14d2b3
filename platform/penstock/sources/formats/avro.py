"""Decode records of Avro, by a schema of the job's own or those of a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from penstock.avro.schema import SchemaText, compiled, reads, shortened
from penstock.avro.schema_registry import NotRegistered, SchemaRegistry
from penstock.errors import ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.sources.formats.base import NO_VALUE, Decoded, Format, placed

__all__ = ["Avro"]

_HEADER = Struct(">bI")
"""The bytes before a record whose schema is in a registry: a zero, and the schema's id."""


@dataclass(frozen=True, slots=True)
class Avro(Format):
    """A record of Avro a record: `Avro(schema="...")` or `Avro(registry="http://127.0.0.1:8081")`.

    With a `schema` alone, a record is the binary encoding by it and nothing else. With a `registry`, a zero byte and
    the id of the writer's schema stand before that, in four bytes. The record is then resolved, by Avro's rules, to one
    schema of the reader, which is fixed when the job opens: `schema`, or the latest of `subject`. So the columns stay
    while writers change theirs.
    A column may be null. Enums are strings, fixed values binary, records structs. Logical types are timestamps, local
    timestamps, dates, decimals and UUIDs; any other is read as the type that it stands for.

    Args:
        schema: The schema to read by, as JSON or as what JSON makes of it.
        registry: The address of a schema registry.
        subject: The subject whose latest schema to read by; by default the topic's name and `-value`.
        user: Who asks the registry, by HTTP basic authentication.
        password: The user's password. Take it from the environment of the driver.

    Raises:
        ConfigError: There is neither schema nor registry, or a setting has no use beside the others. The schema is no
            record, or has a field that no column holds, such as a union of several types.
    """

    schema: str | Mapping[str, Any] | None = None
    registry: str | None = None
    subject: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        refuse_other_types(self)
        if self.schema is None and self.registry is None:
            raise ConfigError("Avro needs a schema= or a registry=")
        if self.registry is None and (self.subject, self.user, self.password) != (None, None, None):
            raise ConfigError("Avro has subject=, user= or password=, which belong to a registry=")
        if self.schema is not None and self.subject is not None:
            raise ConfigError("Avro has both schema= and subject= to read by")
        if self.user is None and self.password is not None:
            raise ConfigError("Avro has a password= without a user=")
        if self.registry is not None:
            address = urlsplit(self.registry)
            if address.scheme not in {"http", "https"} or not address.hostname:
                raise ConfigError("registry= is no address of a server, such as http://127.0.0.1:8081")
            if address.username is not None or address.password is not None:
                raise ConfigError("registry= has a user; write user= and password=, which no message shows")
        if self.schema is not None:
            compiled(self._given).columns()

    @property
    def _given(self) -> SchemaText:
        return SchemaText(self.schema if isinstance(self.schema, str) else json.dumps(self.schema))

    def opened(self, topics: Sequence[str]) -> Format:
        """Return the format with the schema to read by.

        Raises SchemaNotFound, SourceUnavailable, SourceRefused, and ConfigError where topics have different ones.
        """
        if self.registry is None:
            return _OpenAvro(self._given, None)
        server = SchemaRegistry(self.registry, self.user, self.password)
        if self.schema is not None:
            return _OpenAvro(self._given, server)
        subjects = [self.subject] if self.subject is not None else [f"{topic}-value" for topic in topics]
        if not subjects:
            raise ConfigError("no topic says by which schema to read; give Avro its subject= or schema=")
        latest = {subject: server.latest(subject) for subject in subjects}
        first = latest[subjects[0]]
        for subject, text in latest.items():
            if [json.loads(part) for part in (*text.references, text.text)] != [
                json.loads(part) for part in (*first.references, first.text)
            ]:
                raise ConfigError(f"the subjects {subjects[0]!r} and {subject!r} have different schemas; give Avro one")
        return _OpenAvro(first, server)

    def columns(self) -> pa.Schema:
        """Return the columns of the given schema; a registry's are known when it is opened."""
        return self.opened([]).columns()

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return the fields by column."""
        return self.opened([]).decode(values, schema)


@dataclass(frozen=True, slots=True)
class _OpenAvro(Format):
    """What the tasks decode by: the reader's schema, and the registry that has those of writers."""

    reader: SchemaText
    registry: SchemaRegistry | None

    def columns(self) -> pa.Schema:
        """Return the columns of the reader's schema; raises ConfigError for a field that no column holds."""
        return pa.schema([(column.name, column.kind) for column in compiled(self.reader).columns()])

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return the fields by column.

        Raises SourceUnavailable and SourceRefused where the registry has to be asked and does not answer.
        """
        rows: list[Mapping[str, Any]] = []
        errors: list[str | None] = [None] * len(values)
        readers: dict[int | None, Callable[[bytes, int], Any] | str] = {}
        start = 0 if self.registry is None else _HEADER.size
        for i, value in enumerate(values):
            if value is None:
                errors[i] = NO_VALUE
                continue
            number = None if self.registry is None else _id_of(value)
            if isinstance(number, str):
                errors[i] = number
                continue
            if number not in readers:
                readers[number] = self._reader(number)
            read = readers[number]
            if isinstance(read, str):
                errors[i] = read
                continue
            try:
                rows.append(read(value, start))
            except EOFError:
                errors[i] = "no Avro of this schema: the record ends too early"
            except Exception as why:  # noqa: BLE001 - whatever fastavro raises, the record is to blame
                errors[i] = f"no Avro of this schema: {type(why).__name__}: {shortened(why)}"
        return self._rows(rows, errors)

    def _rows(self, rows: Sequence[Mapping[str, Any]], errors: Sequence[str | None]) -> Decoded:
        misfits: list[str | None] = [None] * len(rows)
        made = {
            column.name: column.made([row[column.name] for row in rows], misfits)
            for column in compiled(self.reader).columns()
        }
        table, reasons = pa.table(made), None
        if any(misfits):
            reasons = pa.array(misfits, pa.string())
            good = reasons.is_null()
            table = pa.table({name: pc.if_else(good, c, pa.nulls(len(c), c.type)) for name, c in made.items()})
        return placed(table, reasons, errors)

    def _reader(self, number: int | None) -> Callable[[bytes, int], Any] | str:
        """Return what reads records that were written by the schema of this id, or why they cannot be read."""
        if self.registry is None or number is None:
            return _resolved(self.reader, self.reader)
        try:
            writer = self.registry.by_id(number)
        except NotRegistered as why:
            return f"schema {number} of the registry: {why}"
        found = _resolved(writer, self.reader)
        return f"schema {number} of the registry: {found}" if isinstance(found, str) else found


def _id_of(value: bytes) -> int | str:
    if len(value) < _HEADER.size or value[0]:
        return "no zero byte and schema id stand before the record"
    return int(_HEADER.unpack_from(value)[1])


@lru_cache(maxsize=1_024)
def _resolved(writer: SchemaText, reader: SchemaText) -> Callable[[bytes, int], Any] | str:
    try:
        return reads(compiled(reader), compiled(writer))
    except ConfigError as why:
        return why.what
