"""Schemas of Avro: which columns they are, and which of them the data of a writer can be read by.

fastavro decodes the plain values. Logical types are not its part: one value of Python's datetime or Decimal that does
not exist would end a record, and Arrow holds more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from penstock.avro.columns import LOGICAL, Column, column_of
from penstock.errors import ConfigError

__all__ = ["AvroSchema", "SchemaText", "compiled", "reads", "shortened"]

_LONGEST = 200
"""Characters of a message of fastavro's that an error shows; some have whole schemas."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as JSON text, and before it the schemas that it refers to, each after those that it refers to."""

    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that fastavro has parsed.

    Attributes:
        root: The record with its logical types.
        names: The named types in it, by full name.
        plain: The same without logical types, as fastavro takes it.
        skips_blindly: Whether bytes that end too early can keep fastavro skipping an array for ever: it does not look
            whether there were bytes where it skips values of a fixed length.
    """

    root: Mapping[str, Any]
    names: Mapping[str, Any] = field(repr=False)
    plain: Any = field(repr=False)
    skips_blindly: bool

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the record's fields; raises ConfigError for a type that no column holds, by name."""
        return tuple(column_of(f["type"], f["name"], self.names) for f in self.root["fields"])


@lru_cache(maxsize=1_024)
def compiled(schema: SchemaText) -> AvroSchema:
    """Return a schema parsed.

    Raises ConfigError for what is no schema of a record. Neither is a record inside itself, nor an array of items
    without bytes: a few bytes could keep a task busy without end.
    """
    try:
        from fastavro.schema import parse_schema
    except ModuleNotFoundError as why:
        raise ConfigError("Avro needs the package fastavro: pip install penstock[avro]") from why
    names: dict[str, Any] = {}
    plain_names: dict[str, Any] = {}
    try:
        for text in (*schema.references, schema.text):
            parsed = json.loads(text)
            root = parse_schema(parsed, named_schemas=names)
            plain: Any = parse_schema(_plain(parsed), named_schemas=plain_names)
    except json.JSONDecodeError as why:
        what = f"no schema of Avro, because it is no JSON: {why}; write the schema itself, not the name of its file"
        raise ConfigError(what) from why
    except Exception as why:
        raise ConfigError(f"no schema of Avro, {type(why).__name__}: {shortened(why)}") from why
    if not isinstance(root, dict) or root.get("type") != "record" or not root["fields"]:
        raise ConfigError("the schema of Avro is no record with fields")
    sizes = _Sizes(names)
    sizes.of(root)
    # What a later parse finds in a schema that was parsed already: its names.
    return AvroSchema(root, names, {**plain, "__named_schemas": plain_names}, sizes.skips_blindly)


def reads(reader: AvroSchema, writer: AvroSchema) -> Callable[[bytes, int], Any]:
    """Return what makes a dict of the bytes of a record from a place on, by Avro's rules of resolution.

    It raises whatever fastavro raises, and ValueError where bytes are left.
    Raises ConfigError where the schemas have different logical types for one value: Avro would take milliseconds for
    microseconds.
    """
    from fastavro import schemaless_reader

    other = None if reader is writer else reader.plain
    stream = _Strict if other is not None and writer.skips_blindly else io.BytesIO
    if other is not None:
        _Pairs(writer.names, reader.names).compare(writer.root, reader.root, reader.root["name"])

    def read(value: bytes, start: int) -> Any:
        record = stream(value)
        record.seek(start)
        row = schemaless_reader(record, writer.plain, other)
        if record.tell() < len(value):
            raise ValueError(f"{len(value) - record.tell():,} bytes follow the record")
        return row

    return read


def shortened(why: Exception) -> str:
    """Return the message of an exception in one line of bounded length."""
    text = " ".join(str(why).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class _Strict(io.BytesIO):
    """Bytes that raise EOFError where they end: slower, as each read calls Python."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return this many bytes."""
        found = super().read(size)
        if size is None or len(found) != size:
            raise EOFError(f"{size} bytes expected, and {len(found)} are left")
        return found


def _plain(schema: Any) -> Any:
    """Return a schema without its logical types; defaults stay as they are, whatever they hold."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in {"type", "items", "values"} & made.keys():
        made[name] = _plain(made[name])
    if "fields" in made:
        made["fields"] = [{**f, "type": _plain(f["type"])} for f in made["fields"]]
    return made


class _Sizes:
    """Learn of each type the fewest bytes that a value takes; raises ConfigError for what has no bound."""

    _OF = {"null": 0, "float": 4, "double": 8}  # noqa: RUF012 - never changed

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names
        self.skips_blindly = False
        self._known: dict[str, tuple[int, bool]] = {}
        self._open: set[str] = set()

    def of(self, schema: Any) -> tuple[int, bool]:
        """Return the fewest bytes of a value, and whether skipping one looks whether bytes are left."""
        if isinstance(schema, str):
            named = self.names.get(schema)
            if named is None:
                return self._OF.get(schema, 1), schema not in {"null", "boolean", "float", "double"}
            return self.of(named)
        if isinstance(schema, list):
            for branch in schema:
                self.of(branch)
            return 1, True
        match schema["type"]:
            case "record" | "error":
                return self._record(schema)
            case "fixed":
                return schema["size"], False
            case "array":
                size, looks = self.of(schema["items"])
                if not size:
                    raise ConfigError("the schema of Avro has an array of items without bytes")
                self.skips_blindly = self.skips_blindly or not looks
            case "map":
                self.of(schema["values"])
            case "enum":
                pass
            case inner:
                return self.of(inner)
        return 1, True

    def _record(self, schema: Mapping[str, Any]) -> tuple[int, bool]:
        name = schema["name"]
        if name in self._open:
            raise ConfigError(f"the schema of Avro has {name!r} inside itself")
        if name not in self._known:
            self._open.add(name)
            sizes = [self.of(f["type"]) for f in schema["fields"]]
            self._open.discard(name)
            self._known[name] = sum(size for size, _ in sizes), any(looks for _, looks in sizes)
        return self._known[name]


class _Pairs:
    """Compare the logical types of the values that a reader takes from a writer."""

    def __init__(self, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> None:
        self._names = writer, reader
        self._compared: set[tuple[int, int]] = set()

    def compare(self, writer: Any, reader: Any, path: str) -> None:
        """Raise ConfigError for two that are different."""
        for w in _branches(writer, self._names[0]):
            for r in _branches(reader, self._names[1]):
                if (id(w), id(r)) not in self._compared:
                    self._compared.add((id(w), id(r)))
                    self._compare(w, r, path)

    def _compare(self, writer: Mapping[str, Any], reader: Mapping[str, Any], path: str) -> None:
        kinds = [_logical(schema) for schema in (writer, reader)]
        if None not in kinds and kinds[0] != kinds[1]:
            shown = [f"{name} {facts}" if any(facts) else name for name, *facts in filter(None, kinds)]
            raise ConfigError(f"{path} is {shown[0]} to the writer, and {shown[1]} to the reader")
        if writer["type"] != reader["type"]:
            return
        if "fields" in writer:
            written = {f["name"]: f for f in writer["fields"]}
            for f in reader["fields"]:
                names: Iterable[str] = (f["name"], *f.get("aliases", ()))
                other = next((written[name] for name in names if name in written), None)
                if other is not None:
                    self.compare(other["type"], f["type"], f"{path}.{f['name']}")
        for inner in {"items", "values"} & writer.keys():
            self.compare(writer[inner], reader[inner], f"{path}[]")


def _branches(schema: Any, names: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the types that a value may have, as mappings."""
    if isinstance(schema, list):
        return [branch for part in schema for branch in _branches(part, names)]
    if isinstance(schema, str):
        return [names[schema]] if schema in names else [{"type": schema}]
    inner = schema["type"]
    return [schema] if isinstance(inner, str) and inner not in names else _branches(inner, names)


def _logical(schema: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the logical type with what belongs to it, None where there is none that a column has."""
    name = schema.get("logicalType")
    if (schema["type"], name) not in LOGICAL:
        return None
    return (name, schema.get("precision"), schema.get("scale", 0)) if name == "decimal" else (name,)
