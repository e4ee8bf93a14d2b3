"""Records are resolved from the schema of their writer to that of the reader, and no schema makes a task hang."""

from __future__ import annotations

import json
from typing import Any

import pytest
from avro_writing import encoded, record

from penstock.avro.schema import SchemaText, compiled, reads
from penstock.errors import ConfigError

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def resolved(writer: Any, reader: Any, row: dict[str, Any]) -> Any:
    """Return what a reader gets of a writer's row."""
    return read_of(writer, reader)(b"head" + encoded(writer, row), 4)


def read_of(writer: Any, reader: Any) -> Any:
    return reads(compiled(SchemaText(json.dumps(reader))), compiled(SchemaText(json.dumps(writer))))


FULL: Any = record(("id", "int"), ("name", "string"), ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}))
ROW = {"id": 1, "name": "x", "kind": "B"}
EVOLVED: dict[str, tuple[Any, dict[str, Any]]] = {
    "the same": (FULL, ROW),
    "a field less": (record(("id", "int")), {"id": 1}),
    "a field more": (record(("id", "int"), ("more", ["null", "string"], None)), {"id": 1, "more": None}),
    "another order": (record(("name", "string"), ("id", "int")), {"name": "x", "id": 1}),
    "a wider type": (record(("id", "double"), ("name", "bytes")), {"id": 1.0, "name": b"x"}),
    "null allowed": (record(("id", ["null", "long"])), {"id": 1}),
    "another name": (
        {**record(name="New", aliases=["Order"]), "fields": [{"name": "number", "aliases": ["id"], "type": "long"}]},
        {"number": 1},
    ),
    "a default that is a map": (record(("m", {"type": "map", "values": "int"}, {"logicalType": 1})), {"m": {"logicalType": 1}}),
    "an unknown symbol": (
        record(("kind", {"type": "enum", "name": "Kind", "symbols": ["A"], "default": "A"})), {"kind": "A"}
    ),
}  # fmt: skip


@pytest.mark.fault("F42")
@pytest.mark.parametrize(("reader", "row"), EVOLVED.values(), ids=list(EVOLVED))
def test_records_of_another_schema_are_resolved(reader: Any, row: dict[str, Any]) -> None:
    """By the rules of Avro: fields by name or alias, wider types, defaults for what is not there."""
    assert resolved(FULL, reader, ROW) == row


UNRESOLVED = {
    "a field without a default": record(("id", "int"), ("more", "string")), "a narrower type": record(("name", "int")),
    "another record": record(("id", "int"), name="Other"),
    "a symbol that is not there": record(("kind", {"type": "enum", "name": "Kind", "symbols": ["A"]})),
}  # fmt: skip


@pytest.mark.parametrize("reader", UNRESOLVED.values(), ids=list(UNRESOLVED))
def test_records_that_cannot_be_resolved_raise(reader: Any) -> None:
    """Each for itself: it may be the value of one only."""
    with pytest.raises(Exception, match="mismatch|not found|No default"):
        resolved(FULL, reader, ROW)


def test_a_value_has_one_logical_type() -> None:
    """Avro would take milliseconds for microseconds; a writer that says nothing is believed."""
    pairs = [(MILLIS, MICROS), ({"type": "array", "items": ["null", MILLIS]}, {"type": "array", "items": MICROS})]
    for writer, reader in pairs:
        with pytest.raises(ConfigError, match=r"Order\.at.* is timestamp-millis to the writer, and timestamp-micros"):
            read_of(record(("at", writer)), record(("at", reader)))
    decimals = [{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} for scale in (1, 2)]
    with pytest.raises(ConfigError, match="decimal"):
        read_of(record(("at", decimals[0])), record(("at", decimals[1])))
    assert resolved(record(("at", "long")), record(("at", MILLIS)), {"at": 5}) == {"at": 5}
    assert resolved(record(("at", MILLIS)), record(("at", ["null", MILLIS])), {"at": 5}) == {"at": 5}
    assert resolved(record(("at", MICROS)), record(("n", "int", 1)), {"at": 5}) == {"n": 1}


ENDLESS = (255, 255, 255, 255, 255, 255, 255, 255, 127)  # an array says that it has 2**62 items
ITEMS: list[Any] = [
    "float", "double", "boolean", "int", "string", {"type": "fixed", "name": "F", "size": 3},
    record(("a", "float"), ("b", "double"), name="Pair"), {"type": "array", "items": "double"},
    {"type": "map", "values": "null"}, ["null", "double"], {"type": "enum", "name": "E", "symbols": ["A"]},
]  # fmt: skip


@pytest.mark.fault("F49")
@pytest.mark.parametrize("items", ITEMS, ids=[json.dumps(items)[:30] for items in ITEMS])
def test_an_array_that_says_it_has_more_items_than_bytes_ends(items: Any) -> None:
    """Also where the reader has no such field: what skips it must see the end."""
    writer = record(("many", {"type": "array", "items": items}), ("n", "int"))
    for reader in (record(("n", "int")), writer):
        with pytest.raises((EOFError, IndexError)):
            read_of(writer, reader)(bytes([*ENDLESS[:-1], 126]), 0)


BOMBS: dict[str, Any] = {
    "items without bytes": record(("many", {"type": "array", "items": "null"})),
    "records without bytes": record(("many", {"type": "array", "items": record(("n", "null"), name="E")})),
    "in itself": record(("next", ["null", "Order"])),
    "in one another": record(("a", ["null", record(("b", {"type": "map", "values": "Order"}), name="B")])),
}


@pytest.mark.fault("F49")
@pytest.mark.parametrize("schema", BOMBS.values(), ids=list(BOMBS))
def test_a_schema_by_which_a_few_bytes_have_no_end_is_refused(schema: Any) -> None:
    """As a depth or a count that no length bounds."""
    with pytest.raises(ConfigError, match="without bytes|inside itself"):
        compiled(SchemaText(json.dumps(schema)))


def test_a_schema_of_many_names_is_walked_once_a_name() -> None:
    """Thirty records, each with the one before twice, are a billion fields."""
    parts = [json.dumps(record(("n", "int"), name="R0"))]
    parts += [json.dumps(record(("a", f"R{i}"), ("b", f"R{i}"), name=f"R{i + 1}")) for i in range(30)]
    schema = compiled(SchemaText(parts[-1], tuple(parts[:-1])))
    assert schema.root["name"] == "R30"
    reads(compiled(SchemaText(json.dumps(record(("c", "int", 1), name="R30")))), schema)
    reads(schema, compiled(SchemaText(parts[-1] + " ", tuple(parts[:-1]))))
