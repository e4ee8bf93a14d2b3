"""Rows become records of Avro, and the source of Kafka and other readers have the same rows."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from avro_writing import record
from examples import examples
from fastavro import parse_schema, schemaless_reader
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_server import RegistryServer

from penstock.avro import schema_registry
from penstock.errors import ConfigError, SinkDenied, SinkSchemaMismatch, SinkUnavailable, SinkValueRefused
from penstock.sinks import avro as sinks_avro
from penstock.sinks.avro import Avro
from penstock.sinks.kafka_records import RowLayout
from penstock.sources import Avro as SourceAvro

UTC_MICROS = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


INNER = record(("n", "int"), ("at", ["null", logical("long", "timestamp-micros")], None), name="Inner")
POINT = pa.struct([("n", pa.int32()), ("at", UTC_MICROS)])
MOMENTS = st.datetimes(timezones=st.just(UTC))
INNERS = st.fixed_dictionaries({"n": st.integers(-(2**31), 2**31 - 1), "at": st.none() | MOMENTS})


def cents(most: int) -> st.SearchStrategy[Decimal]:
    return st.integers(1 - 10**most, 10**most - 1).map(lambda n: Decimal(n).scaleb(-2))


def whole_millis(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)


# Of each field the type of Avro, the column's, and values; those that may be null are unions.
FIELDS: dict[str, tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = {
    "yes": ("boolean", pa.bool_(), st.booleans()),
    "small": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "narrow": ("int", pa.int8(), st.integers(-128, 127)),
    "id": (["null", "long"], pa.int64(), st.none() | st.integers(-(2**63), 2**63 - 1)),
    "f": ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    "v": ("double", pa.float64(), st.floats(allow_nan=False)),
    "s": ("string", pa.string(), st.text(st.characters(codec="utf-8"))),
    "b": ("bytes", pa.binary(), st.binary()),
    "kind": ({"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}, pa.string(), st.sampled_from(["NEW", "OLD"])),
    "hash": ({"type": "fixed", "name": "Hash", "size": 2}, pa.binary(), st.binary(min_size=2, max_size=2)),
    "many": ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 9))),
    "by": (
        {"type": "map", "values": ["null", logical("int", "date")]}, pa.map_(pa.string(), pa.date32()),
        st.dictionaries(st.text(st.characters(codec="utf-8")), st.none() | st.dates()).map(lambda d: [*d.items()]),
    ),
    "inner": (["null", INNER], POINT, st.none() | INNERS),
    "inners": ({"type": "array", "items": "Inner"}, pa.list_(POINT), st.lists(INNERS, max_size=2)),
    "at": (logical("long", "timestamp-millis"), UTC_MICROS, MOMENTS.map(whole_millis)),
    "exact": (["null", logical("long", "timestamp-micros")], UTC_MICROS, st.none() | MOMENTS),
    "local": (logical("long", "local-timestamp-micros"), LOCAL, st.datetimes()),
    "blunt": (logical("long", "local-timestamp-millis"), LOCAL, st.datetimes().map(whole_millis)),
    "day": (logical("int", "date"), pa.date32(), st.dates()),
    "price": (logical("bytes", "decimal", precision=38, scale=2), pa.decimal128(38, 2), cents(28)),
    "cents": (
        {"type": "fixed", "name": "Cents", "size": 8, "logicalType": "decimal", "precision": 10, "scale": 2},
        pa.decimal128(10, 2), cents(10),
    ),
    "key": (logical("string", "uuid"), pa.string(), st.uuids().map(str)),
    "short": (
        {"type": "fixed", "name": "Short", "size": 16, "logicalType": "uuid"}, pa.string(), st.uuids().map(str),
    ),
}  # fmt: skip
SCHEMA = record(*((name, kind) for name, (kind, _, _) in FIELDS.items()))
COLUMNS = pa.schema([(name, kind) for name, (_, kind, _) in FIELDS.items()])
ROWS = st.lists(st.fixed_dictionaries({name: values for name, (_, _, values) in FIELDS.items()}), max_size=3)


@settings(max_examples=examples(60))
@given(ROWS)
def test_the_source_reads_back_what_the_sink_has_written(rows: list[dict[str, Any]]) -> None:
    """To the last bit, and after the sink went to another process."""
    table = pa.Table.from_pylist(rows, COLUMNS)
    encoder = pickle.loads(pickle.dumps(Avro(SCHEMA)))
    encoder.check(table.schema)
    form = SourceAvro(SCHEMA)
    decoded = form.decode(encoder.encode(table).to_pylist(), form.columns())
    assert decoded.errors is None
    assert repr(decoded.rows.to_pylist()) == repr(table.to_pylist())  # -0.0 and 0.0 are equal, and differ


def test_another_reader_has_the_values_of_the_logical_types() -> None:
    """As fastavro makes them by itself."""
    row = {
        "at": datetime(2026, 11, 25, 1, 2, 3, 4_000, UTC), "day": date(1969, 12, 31), "price": Decimal("-12345678901234567890.10"),
        "cents": Decimal("-0.01"), "key": "0b0e2a7e-0000-4000-8000-000000000001", "inner": {"n": 1, "at": None},
    }  # fmt: skip
    schema = record(*((name, FIELDS[name][0]) for name in row))
    value = Avro(json.dumps(schema)).encode(pa.Table.from_pylist([row], pa.schema([COLUMNS.field(n) for n in row])))
    read = schemaless_reader(io.BytesIO(value[0].as_py()), parse_schema(schema), None)
    assert read == {**row, "key": UUID(row["key"])}


WRONG: dict[str, tuple[str, Any, pa.DataType]] = {
    "a number that is too large": ("small", 2**31, pa.int64()),
    "a null": ("s", None, pa.string()),
    "no symbol of an enum": ("kind", "NEXT", pa.string()),
    "too few bytes": ("hash", b"a", pa.binary()),
    "part of a millisecond": ("at", datetime(2026, 1, 1, 0, 0, 0, 1, UTC), UTC_MICROS),
    "too many digits": ("cents", Decimal("100000000.00"), pa.decimal128(12, 2)),
    "too fine a decimal": ("price", Decimal("0.001"), pa.decimal128(12, 3)),
    "no UUID": ("short", "x", pa.string()),
    "a text that is no UUID": ("key", "x", pa.string()),
    "a UUID without dashes": ("key", "0b0e2a7e000040008000000000000001", pa.string()),
    "a number in a list": ("many", [2**40], pa.list_(pa.int64())),
    "a time of which Python has none": ("exact", 2**62, pa.int64()),
}  # fmt: skip


@pytest.mark.fault("F74")
@pytest.mark.parametrize(("name", "value", "kind"), WRONG.values(), ids=list(WRONG))
def test_a_value_that_the_schema_cannot_hold_is_refused(name: str, value: Any, kind: pa.DataType) -> None:
    """Before the batch is committed; nothing is cut or wrapped around."""
    column = pa.array([value], kind)
    if name == "exact":
        column = column.cast(UTC_MICROS)
    encoder = Avro(record((name, FIELDS[name][0]) if name != "inners" else ("inners", INNER)))
    encoder.check(pa.schema([(name, column.type)]))
    with pytest.raises(SinkValueRefused, match=rf"column {name!r}|row 0"):
        encoder.encode(pa.table({name: column}))


@pytest.mark.fault("F70")
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([("v", pa.float64())], r"has \['v', 'n'\], and the stream has \['v'\]"),
        ([("v", pa.float64()), ("n", pa.int64()), ("w", pa.int64())], "the stream has"),
        ([("v", pa.float64()), ("n", pa.float64())], "column 'n' is double, and the schema of Avro has int32"),
        ([("v", pa.decimal128(4, 2)), ("n", pa.int64())], "column 'v' is decimal"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: list[tuple[str, pa.DataType]], words: str) -> None:
    """When the job starts; a narrower float and an integer of any width do fit."""
    encoder = Avro(record(("v", "double"), ("n", "int")))
    with pytest.raises(SinkSchemaMismatch, match=words):
        encoder.check(pa.schema(columns))
    encoder.check(pa.schema([("n", pa.int8()), ("v", pa.float32())]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs a schema="),
        ({"registry": "http://127.0.0.1:1"}, "and a subject="),
        ({"schema": SCHEMA, "registry": "http://127.0.0.1:1", "subject": "s"}, "needs a schema="),
        ({"schema": '"int"'}, "no record"),
        ({"schema": record(("u", ["int", "string"]))}, "'u' is a union"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(arguments: dict[str, Any], words: str) -> None:
    """Where the job is written."""
    with pytest.raises(ConfigError, match=words):
        Avro(**arguments)


LOGIN = {"user": "ann", "password": "secret"}


# --- a registry ------------------------------------------------------------------------------
@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    """One that a process has not asked before."""
    sinks_avro._latest.cache_clear()
    monkeypatch.setattr(schema_registry, "_SECONDS", 0.2)
    monkeypatch.setattr(schema_registry, "_AGAIN", 0.05)
    with RegistryServer(login=("ann", "secret")).up() as server:
        yield server


def test_a_record_has_the_id_of_the_latest_schema(registry: RegistryServer) -> None:
    """For the whole run the same, also where another is registered meanwhile; the source reads by the id."""
    registry.register("orders-value", record(("k", "string")))
    number = registry.register("orders-value", record(("n", "int")))
    encoder = Avro(registry=registry.url, subject="orders-value", **LOGIN)
    rows = pa.table({"n": pa.array([7, 8], pa.int32())})
    encoder.check(rows.schema)
    registry.register("orders-value", record(("n", "int"), ("more", "int")))
    values = encoder.encode(rows).to_pylist()
    assert [value[:5] for value in values] == [b"\0" + number.to_bytes(4, "big")] * 2
    form = SourceAvro(record(("n", "int")), registry=registry.url, **LOGIN)
    assert form.opened(["orders"]).decode(values, form.columns()).rows.to_pylist() == rows.to_pylist()
    assert "secret" not in repr(encoder)


def test_a_registry_that_does_not_help(registry: RegistryServer) -> None:
    """It has no such subject, refuses the user, or is away: each is an error of the sink, which names it."""
    schema = pa.schema([("n", pa.int32())])
    with pytest.raises(SinkSchemaMismatch, match="'none'") as error:
        Avro(registry=registry.url, subject="none", **LOGIN).check(schema)
    assert registry.url in str(error.value)
    with pytest.raises(SinkDenied, match="'bob'"):
        Avro(registry=registry.url, subject="s", user="bob").check(schema)
    registry.fails = 1_000
    with pytest.raises(SinkUnavailable, match="503"):
        Avro(registry=registry.url, subject="s", **LOGIN).check(schema)


def test_the_key_and_the_partition_are_columns_beside_it() -> None:
    """The key stays in the value, as with JSON; partition and tombstone do not."""
    layout = RowLayout(key="n", value=Avro(record(("n", "int"))), partition="p", tombstone="gone")
    rows = pa.table({"n": [1, 2], "p": [0, 1], "gone": [False, True]})
    layout.check(rows.schema)
    assert [list(records) for records in layout.records(rows)] == [[(b"1", b"\x02", 0), (b"2", None, 1)]]
