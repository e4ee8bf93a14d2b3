"""Rows become the values of records, and the source of Kafka reads the same rows back."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError, SinkSchemaMismatch, SinkValueRefused
from penstock.sinks.encoders import Json, Raw, Text, plain_text
from penstock.sources import Json as SourceJson

UTC_MICROS = pa.timestamp("us", tz="UTC")


def encoded(column: pa.Array, name: str = "v") -> list[str]:
    """Return the JSON of a table with this one column."""
    return Json().encode(pa.table({name: column})).to_pylist()


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
MOMENTS = st.datetimes(timezones=st.just(UTC))
DIGITS = Context(prec=38)
"""By itself Python rounds to 28 digits, and the greatest numbers to one that the type does not hold."""
LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.float32(): st.floats(allow_nan=False, allow_infinity=False, width=32),
    pa.bool_(): st.booleans(),
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=5),
    UTC_MICROS: MOMENTS,
    pa.date32(): st.dates(),
    pa.decimal128(38, 10): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-10, DIGITS)),
}


@st.composite
def types(draw: st.DrawFn, depth: int = 2, *, in_struct: bool = False) -> pa.DataType:
    """Return a type that JSON can hold, without what the source does not read back: decimals below a null struct."""
    shape = draw(st.sampled_from(["leaf", "leaf", "list", "map", "struct"])) if depth else "leaf"
    if shape == "leaf":
        return draw(st.sampled_from([kind for kind in LEAVES if not (in_struct and pa.types.is_decimal(kind))]))
    if shape == "list":
        return pa.list_(draw(types(depth - 1, in_struct=in_struct)))
    if shape == "map":
        return pa.map_(pa.string(), draw(types(depth - 1, in_struct=in_struct)))
    names = draw(st.sampled_from([("a",), ("a", "b")]))
    return pa.struct([(name, draw(types(depth - 1, in_struct=True))) for name in names])


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Return values of a type, null among them."""
    if pa.types.is_map(kind):
        some: st.SearchStrategy[Any] = st.dictionaries(TEXTS, values(kind.item_type), max_size=3).map(
            lambda m: [*m.items()]
        )
    elif pa.types.is_list(kind):
        some = st.lists(values(kind.value_type), max_size=3)
    elif pa.types.is_struct(kind):
        some = st.fixed_dictionaries({f.name: values(f.type) for f in kind})
    else:
        some = LEAVES[kind]
    return st.none() | some


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Return rows of a few columns, sliced, as those of a larger table are."""
    schema = pa.schema([(name, draw(types())) for name in draw(st.sampled_from([("v",), ("v", 'a "b" \\ é')]))])
    rows = draw(st.integers(0, 5))
    columns = [pa.array(draw(st.lists(values(f.type), min_size=rows, max_size=rows)), f.type) for f in schema]
    start = draw(st.integers(0, rows))
    return pa.table(columns, schema=schema).slice(start)


@settings(max_examples=examples(150))
@given(tables())
def test_the_source_reads_back_what_the_sink_has_written(rows: pa.Table) -> None:
    """To the last bit, of any type that both can hold; and each value is JSON to other readers."""
    written = Json().encode(rows).to_pylist()
    for text in written:
        assert [*json.loads(text)] == rows.column_names
        assert msgspec.json.decode(text) is not None
    if any('"' in name for name in rows.column_names):
        return  # the source's DDL has no such names
    decoded = SourceJson("unused").decode([text.encode() for text in written], rows.schema)
    assert decoded.errors is None
    assert repr(decoded.rows.to_pylist()) == repr(rows.to_pylist())  # -0.0 and 0.0 are equal, and differ


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([1, None]), ['{"v":1}', '{"v":null}']),
        (pa.array([0.1, -0.0, 1e300]), ['{"v":0.1}', '{"v":-0.0}', '{"v":1e+300}']),
        (pa.array(['a"\n', "é\x00"]), ['{"v":"a\\"\\n"}', '{"v":"é\\u0000"}']),
        (pa.array([datetime(2026, 11, 24, 1, 2, 3, 4, UTC)], UTC_MICROS), ['{"v":"2026-11-24T01:02:03.000004Z"}']),
        (pa.array([1_795_478_400_000_000], pa.int64()).cast(pa.timestamp("us")), ['{"v":"2026-11-24T00:00:00.000000"}']),
        (pa.array([date(2026, 11, 24)]), ['{"v":"2026-11-24"}']),
        (pa.array([Decimal("12345678901234567890.10")]), ['{"v":12345678901234567890.10}']),
        (pa.array([b"\x00\xff"]), ['{"v":"AP8="}']),
        (pa.array([[1, None], [], None]), ['{"v":[1,null]}', '{"v":[]}', '{"v":null}']),
        (pa.array([[("k", True)], None], pa.map_(pa.string(), pa.bool_())), ['{"v":{"k":true}}', '{"v":null}']),
        (pa.array([{"a": 1, "b": None}, None]), ['{"v":{"a":1,"b":null}}', '{"v":null}']),
        (pa.nulls(1), ['{"v":null}']),
    ],
    ids=["long", "double", "text", "timestamp", "without a zone", "date", "decimal", "binary", "list", "map", "struct", "void"],
)  # fmt: skip
def test_how_a_value_is_written(column: pa.Array, texts: list[str]) -> None:
    """docs/kafka.md: what consumers get."""
    assert encoded(column) == texts


@pytest.mark.fault("F74", "F43")
@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, math.nan]),
        pa.array([math.inf]),
        pa.array([[1.0], [-math.inf]]),
        pa.array([{"a": math.nan}]),
        pa.array([253_402_300_800_000_000], pa.int64()).cast(UTC_MICROS),
        pa.array([-62_135_596_800_000_001], pa.int64()).cast(UTC_MICROS),
        pa.array([2_932_897], pa.int32()).cast(pa.date32()),
        pa.array([b"\xff"]).view(pa.string()),
    ],
    ids=["NaN", "infinity", "in a list", "in a struct", "year 10000", "year 0", "date", "no UTF-8"],
)
def test_a_value_that_json_cannot_hold_is_refused(column: pa.Array) -> None:
    """SEMANTICS 9.6: named by its column."""
    with pytest.raises(SinkValueRefused, match="'v"):
        encoded(column)


@pytest.mark.parametrize(
    ("encoder", "schema"),
    [
        (Json(), pa.schema([("v", pa.duration("us"))])),
        (Json(), pa.schema([("v", pa.list_(pa.duration("us")))])),
        (Json(), pa.schema([("v", pa.map_(pa.int64(), pa.int64()))])),
        (Json(["w"]), pa.schema([("v", pa.int64())])),
        (Text(), pa.schema([("v", pa.string())])),
        (Text("v"), pa.schema([("v", pa.binary())])),
        (Raw("v"), pa.schema([("v", pa.string())])),
    ],
    ids=["interval", "in a list", "keys of a map", "no such column", "no value", "bytes as text", "text as bytes"],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused(encoder: Any, schema: pa.Schema) -> None:
    """Before the first batch."""
    with pytest.raises(SinkSchemaMismatch, match=r"'[vw]|'value'"):
        encoder.check(schema)


def test_some_columns_in_an_order_of_their_own() -> None:
    """`Json(columns)`."""
    rows = pa.table({"a": [1], "b": ["x"], "c": [None]})
    assert Json(["b", "a"]).encode(rows).to_pylist() == ['{"b":"x","a":1}']
    with pytest.raises(ConfigError, match="is a text"):
        Json("ab")


def test_text_and_bytes_stay_as_they_are() -> None:
    """And null is no value."""
    assert Text("t").encode(pa.table({"t": ['a"', None]})).to_pylist() == ['a"', None]
    assert Raw("b").encode(pa.table({"b": [b"\xff", None]})).to_pylist() == [b"\xff", None]
    with pytest.raises(SinkValueRefused, match="UTF-8"):
        Text("t").encode(pa.table({"t": pa.array([b"\xff"]).view(pa.string())}))


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array(["a", None]), ["a", None]),
        (pa.array([b"\x01", None]), [b"\x01", None]),
        (pa.array([5, None]), ["5", None]),
        (pa.array([datetime(2026, 1, 2, tzinfo=UTC)], UTC_MICROS), ["2026-01-02T00:00:00.000000Z"]),
        (pa.array([True]), ["true"]),
    ],
    ids=["text", "bytes", "number", "timestamp", "boolean"],
)
def test_a_column_as_keys(column: pa.Array, keys: list[Any]) -> None:
    """Text without quotes, so that other producers of the same key agree."""
    assert plain_text(column, "k").to_pylist() == keys
