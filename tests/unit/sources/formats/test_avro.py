"""Records of Avro become rows, and what a record holds never raises (SEMANTICS 9.3)."""

from __future__ import annotations

import json
import pickle
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from avro_writing import encoded, record
from examples import examples
from format_contract import decoded_as_if_alone
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.sources.formats.avro import Avro
from penstock.sources.formats.base import NO_VALUE

UTC_TIME = pa.timestamp("us", tz="UTC")


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


INNER = record(("n", "int"), ("at", ["null", logical("long", "timestamp-millis")], None), name="Inner")
SCHEMA = record(
    ("yes", "boolean"), ("small", "int"), ("id", "long"), ("f", "float"), ("v", "double"), ("s", "string"), ("b", "bytes"),
    ("maybe", ["null", "string"], None), ("also", ["long", "null"]),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}),
    ("hash", {"type": "fixed", "name": "Hash", "size": 2}), ("again", ["null", "Hash"], None),
    ("many", {"type": "array", "items": ["null", "int"]}), ("by", {"type": "map", "values": "Hash"}), ("inner", INNER),
    ("inners", {"type": "array", "items": "Inner"}),
    ("at", logical("long", "timestamp-millis")), ("exact", logical("long", "timestamp-micros")),
    ("local", logical("long", "local-timestamp-micros")), ("day", logical("int", "date")),
    ("price", logical("bytes", "decimal", precision=6, scale=2)),
    ("cents", {"type": "fixed", "name": "Cents", "size": 8, "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("key", logical("string", "uuid")), ("clock", logical("int", "time-millis")), ("one", ["int"]),
    namespace="org.example",
)  # fmt: skip
ROW = {
    "yes": True, "small": -(2**31), "id": 2**63 - 1, "f": 0.5, "v": 1e300, "s": "é", "b": b"\xff", "maybe": "x", "also": None,
    "kind": "OLD", "hash": b"ab", "again": b"cd", "many": [1, None], "by": {"k": b"ef"}, "inner": {"n": 1, "at": -1},
    "inners": [{"n": 2, "at": None}], "at": 1_700_000_000_123, "exact": 1_700_000_000_123_456, "local": -1, "day": 19_782,
    "price": b"\xff\x85", "cents": (12_345).to_bytes(8, "big"), "key": "0b0e2a7e-0000-4000-8000-000000000001",
    "clock": 5, "one": 7,
}  # fmt: skip
COLUMNS = {
    "yes": pa.bool_(), "small": pa.int32(), "id": pa.int64(), "f": pa.float32(), "v": pa.float64(), "s": pa.string(),
    "b": pa.binary(), "maybe": pa.string(), "also": pa.int64(), "kind": pa.string(), "hash": pa.binary(),
    "again": pa.binary(), "many": pa.list_(pa.int32()), "by": pa.map_(pa.string(), pa.binary()),
    "inner": pa.struct([("n", pa.int32()), ("at", UTC_TIME)]),
    "inners": pa.list_(pa.struct([("n", pa.int32()), ("at", UTC_TIME)])), "at": UTC_TIME, "exact": UTC_TIME,
    "local": pa.timestamp("us"), "day": pa.date32(), "price": pa.decimal128(6, 2), "cents": pa.decimal128(10, 2),
    "key": pa.string(), "clock": pa.int32(), "one": pa.int32(),
}  # fmt: skip


def plain(schema: Any) -> Any:
    """Return a schema without its logical types: fastavro then writes the numbers of a row as they are."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if isinstance(schema, dict):
        return {name: plain(value) for name, value in schema.items() if name != "logicalType"}
    return schema


def decoded(schema: Any, value: bytes | None) -> Any:
    """Return the row of one record, or its error."""
    made = Avro(schema).decode([value], Avro(schema).columns())
    return made.rows.to_pylist()[0] if made.errors is None else made.errors[0].as_py()


def test_fields_become_columns_of_their_types() -> None:
    """Logical types are Spark's; a union with null is a column that may be null, as all are."""
    assert Avro(SCHEMA).columns() == pa.schema(list(COLUMNS.items()))
    assert Avro(json.dumps(SCHEMA)).columns() == Avro(SCHEMA).columns()
    row = decoded(SCHEMA, encoded(plain(SCHEMA), ROW))
    assert row == {
        **ROW, "by": [("k", b"ef")], "inner": {"n": 1, "at": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)},
        "at": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), "exact": datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC),
        "local": datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - has no zone
        "day": date(2024, 2, 29), "price": Decimal("-1.23"), "cents": Decimal("123.45"),
    }  # fmt: skip


def test_what_fastavro_writes_of_pythons_values_is_read() -> None:
    """Times, decimals and UUIDs, as a producer in Python has them."""
    schema = record(
        ("at", logical("long", "timestamp-micros")), ("price", logical("bytes", "decimal", precision=4, scale=1))
    )
    row = {"at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "price": Decimal("-99.9")}
    assert decoded(schema, encoded(schema, row)) == row


def test_a_uuid_may_be_sixteen_bytes() -> None:
    """Since Avro 1.12."""
    schema = record(("key", {"type": "fixed", "size": 16, "name": "Key", "logicalType": "uuid"}))
    assert decoded(schema, bytes(range(16))) == {"key": "00010203-0405-0607-0809-0a0b0c0d0e0f"}


def test_times_that_python_has_not_are_times() -> None:
    """Arrow and Spark have the years 0 and 10000."""
    schema = record(("at", logical("long", "timestamp-millis")), ("day", logical("int", "date")))
    made = Avro(schema).decode([encoded(plain(schema), {"at": -(10**14), "day": 2**31 - 1})], Avro(schema).columns())
    assert made.errors is None
    assert made.rows["at"].cast(pa.int64()).to_pylist() == [-(10**17)]


SMALL = record(("n", "int"), ("s", "string"), ("price", logical("bytes", "decimal", precision=3, scale=1)))
GOOD = encoded(plain(SMALL), {"n": 1, "s": "a", "price": b"\x01"})
BAD: dict[str, tuple[bytes | None, str]] = {
    "no value": (None, NO_VALUE), "empty": (b"", "no Avro of this schema"), "cut": (GOOD[:-1], "no Avro"),
    "more": (GOOD + b"\0", "1 bytes follow the record"), "no UTF-8": (b"\x02\x02\xff\x02\x01", "UnicodeDecodeError"),
    "a long for an int": (encoded(record(("n", "long")), {"n": 2**40}) + GOOD[1:], "column 'n': 1099511627776"),
    "a length below zero": (b"\x02\x01a\x02\x01", "no Avro"), "a length beyond": (b"\x02\xfe\xff\xff\xff\x0fa", "no Avro"),
    "a number without end": (b"\xff" * 400, "no Avro"), "too many digits": (GOOD[:3] + b"\x04\x7f\xff", "column 'price'"),
    "a huge number": (GOOD[:3] + b"\x80\x80\x08" + b"\x7f" * 65_536, "column 'price'"),
}  # fmt: skip


@pytest.mark.fault("F40")
@pytest.mark.parametrize(("value", "words"), BAD.values(), ids=list(BAD))
def test_what_is_no_record_of_the_schema_is_an_error(value: bytes | None, words: str) -> None:
    """In one line of bounded length; the records beside it are as they would be alone."""
    error = decoded(SMALL, value)
    assert words in error
    assert len(error) < 400
    assert "\n" not in error
    made = Avro(SMALL).decode([GOOD, value, GOOD], Avro(SMALL).columns())
    assert made.rows["n"].to_pylist() == [1, None, 1]


UNFIT: dict[str, tuple[Any, str]] = {
    "two types": (["int", "string"], "field 'x' is a union of int and string"),
    "two and null": (["null", "int", SCHEMA], "union of null and int and"), "null": ("null", "field 'x' is null"),
    "only null": (["null"], "union of null"), "no fields": (record(name="E"), "record without fields"),
    "39 digits": (logical("bytes", "decimal", precision=39), "a decimal of 39 digits"),
    "in a list": ({"type": "array", "items": ["int", "long"]}, "field 'x' is a union of int and long"),
    "in a map": ({"type": "map", "values": ["int", "long"]}, "field 'x' is a union"),
    "in a record": (record(("y", ["int", "long"]), name="E"), "field 'y' is a union"),
    "no bytes": ({"type": "array", "items": "null"}, "an array of items without bytes"),
    "nothing but fixed": ({"type": "array", "items": {"type": "fixed", "name": "E", "size": 0}}, "items without bytes"),
    "in itself": (["null", "Order"], "'Order' inside itself"), "unknown": ("Unknown", "no schema of Avro"),
    "no precision": (logical("bytes", "decimal"), "a decimal with precision None"),
    "scale": (logical("bytes", "decimal", precision=2, scale=3), "no schema of Avro"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "words"), UNFIT.values(), ids=list(UNFIT))
def test_a_field_that_no_column_holds_is_refused_by_name(kind: Any, words: str) -> None:
    """Where the job is written."""
    with pytest.raises(ConfigError, match=words):
        Avro(record(("x", kind)))


@pytest.mark.parametrize("schema", ["", "{", '"string"', '["null"]', "[" * 100_000, '{"type": "record"}', "5", "null"])
def test_what_is_no_schema_of_a_record_is_refused(schema: str) -> None:
    """A primitive is none: it has no field that a column would be."""
    with pytest.raises(ConfigError, match="schema of Avro"):
        Avro(schema)


SETTINGS: dict[str, dict[str, Any]] = {
    "needs a schema= or a registry=": {}, "which belong to a registry=": {"schema": SMALL, "user": "ann"},
    "both schema= and subject=": {"schema": SMALL, "registry": "http://h", "subject": "s"},
    "without a user=": {"registry": "http://h", "password": "p"}, "no address of a server": {"registry": "h:8081"},
    "which no message shows": {"registry": "http://ann:secret@h"},
}  # fmt: skip


@pytest.mark.parametrize(("words", "arguments"), SETTINGS.items(), ids=list(SETTINGS))
def test_settings_that_cannot_be_meant_are_refused(words: str, arguments: dict[str, Any]) -> None:
    """Where the job is written; no message has a password."""
    with pytest.raises(ConfigError, match=words) as refused:
        Avro(**arguments)
    assert "secret" not in str(refused.value)
    secret = {"password": "p4ss"}
    assert "p4ss" not in repr(Avro(registry="http://h", user="ann", **secret))


# --- against plain models --------------------------------------------------------------------

FLOATS = st.floats(width=32, allow_nan=False)
ROWS = st.fixed_dictionaries({
    "yes": st.booleans(), "small": st.integers(-(2**31), 2**31 - 1), "id": st.integers(-(2**63), 2**63 - 1), "f": FLOATS,
    "v": st.floats(allow_nan=False), "s": st.text(), "b": st.binary(), "maybe": st.none() | st.text(),
    "also": st.none() | st.integers(-(2**63), 2**63 - 1), "kind": st.sampled_from(["NEW", "OLD"]),
    "hash": st.binary(min_size=2, max_size=2), "many": st.lists(st.none() | st.integers(-9, 9)),
    "by": st.dictionaries(st.text(max_size=2), st.binary(min_size=2, max_size=2), max_size=3),
    "inner": st.fixed_dictionaries({"n": st.integers(-9, 9), "at": st.none() | st.integers(0, 10**12)}),
    "inners": st.lists(st.fixed_dictionaries({"n": st.integers(-9, 9), "at": st.none()}), max_size=2),
})  # fmt: skip


@given(rows=st.lists(ROWS, max_size=5))
@settings(max_examples=examples(100))
def test_what_fastavro_has_written_is_read(rows: list[dict[str, Any]]) -> None:
    """The plain model: the row itself."""
    records = [encoded(plain(SCHEMA), {**ROW, **row}) for row in rows]
    made = Avro(SCHEMA).decode(records, Avro(SCHEMA).columns())
    assert made.errors is None
    for row, got in zip(rows, made.rows.to_pylist(), strict=True):
        for name, value in row.items():
            assert _as_row(got[name]) == _as_row(sorted(value.items()) if name == "by" else value), name


def _as_row(value: Any) -> Any:
    """Return a value with its times as numbers, and pairs in order."""
    if isinstance(value, list):
        return sorted(map(_as_row, value)) if value and isinstance(value[0], tuple) else list(map(_as_row, value))
    if isinstance(value, dict):
        return {name: _as_row(inner) for name, inner in value.items()}
    return round(value.timestamp() * 1_000) if isinstance(value, datetime) else value


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=examples(300))
def test_records_are_decoded_as_if_each_were_alone(data: st.DataObject) -> None:
    """Random bytes, and good records with some bytes changed: nothing raises, and a bad one changes no other."""
    good = encoded(plain(SCHEMA), ROW)
    changed = st.tuples(st.integers(0, len(good) - 1), st.binary(min_size=1, max_size=3)).map(
        lambda at: good[: at[0]] + at[1] + good[at[0] + len(at[1]) :]
    )
    records = data.draw(st.lists(st.none() | st.just(good) | st.binary(max_size=40) | changed, max_size=6))
    decoded_as_if_alone(Avro(SCHEMA), records, Avro(SCHEMA).columns())


def test_a_task_gets_the_schema_and_no_password_in_sight() -> None:
    """What is sent to tasks is what the job opened, pickled."""
    form = Avro(SMALL).opened([])
    assert pickle.loads(pickle.dumps(form)) == form
    assert form.decode([GOOD, struct.pack(">q", 0)], form.columns()).rows["s"].to_pylist() == ["a", None]
