"""JSON objects become rows, and what a record holds never raises (SEMANTICS 9.3)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from format_contract import decoded_as_if_alone
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.sources.formats.base import NO_VALUE
from penstock.sources.formats.json import Json

UTC_TIME = pa.timestamp("us", tz="UTC")
NESTED = pa.struct([("a", pa.int32()), ("at", UTC_TIME)])
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(), "small": pa.int16(), "v": pa.float64(), "f": pa.float32(), "yes": pa.bool_(), "s": pa.string(),
    "at": UTC_TIME, "local": pa.timestamp("us"), "day": pa.date32(), "price": pa.decimal128(10, 2), "bytes": pa.binary(),
    "many": pa.list_(pa.int64()), "inner": NESTED, "by": pa.map_(pa.string(), pa.decimal128(5, 1)),
}  # fmt: skip
SCHEMA = pa.schema(list(COLUMNS.items()))


def decoded(text: str | bytes | None, schema: pa.Schema = SCHEMA) -> dict[str, Any]:
    """Return the members that one record has, or its error by ""."""
    made = Json("").decode([text.encode() if isinstance(text, str) else text], schema)
    (row,) = made.rows.to_pylist()
    members = {name: value for name, value in row.items() if value is not None}
    return members if made.errors is None else {**members, "": made.errors[0].as_py()}


GOOD = {
    '{"id": 9223372036854775807}': {"id": 2**63 - 1},
    '{"id": 1, "id": 2, "other": [1, {"x": null}]}': {"id": 2},
    "{}": {},
    ' \n{"id"\t: null}\r\n': {},
    '{"small": -32768, "v": 1, "f": 0.5, "yes": true, "s": "\\u00e9\\n"}': {
        "small": -32768, "v": 1.0, "f": 0.5, "yes": True, "s": "é\n"
    },
    '{"at": "2026-02-28T23:59:59.123456789+02:00"}': {"at": datetime(2026, 2, 28, 21, 59, 59, 123456, UTC)},
    '{"at": "2026-02-28 23:59:59"}': {"at": datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC)},
    '{"at": "1969-12-31T23:59:59.5Z", "local": "0001-01-01T00:00:00"}': {
        "at": datetime(1969, 12, 31, 23, 59, 59, 500000, UTC), "local": datetime(1, 1, 1)  # noqa: DTZ001 - has no zone
    },
    '{"day": "2024-02-29", "price": 1.25}': {"day": date(2024, 2, 29), "price": Decimal("1.25")},
    '{"price": "-99999999.99", "bytes": "AAE="}': {"price": Decimal("-99999999.99"), "bytes": b"\x00\x01"},
    '{"price": 1e3}': {"price": Decimal(1000)},
    '{"many": [1, null], "inner": {"a": 1, "at": "2026-01-01T00:00:00.1234567Z", "b": 2}}': {
        "many": [1, None], "inner": {"a": 1, "at": datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)}
    },
    '{"inner": {}, "by": {"x": 1.5, "y": null}}': {
        "inner": {"a": None, "at": None}, "by": [("x", Decimal("1.5")), ("y", None)]
    },
}  # fmt: skip


@pytest.mark.parametrize(("text", "row"), GOOD.items(), ids=list(GOOD))
def test_an_object_becomes_a_row(text: str, row: dict[str, Any]) -> None:
    """Names and types are those of the columns; what has no column is left out."""
    assert decoded(text) == row


BAD = {
    "": "truncated", "null": "got `null`", "[1]": "got `array`", '"x"': "got `str`", '{"id": 1}{"id": 2}': "trailing",
    '{"id": 1': "truncated", '{"id": 1.0}': "$.id", '{"id": "1"}': "$.id", '{"id": true}': "$.id",
    '{"id": 9223372036854775808}': "$.id", '{"small": 32768}': "'small'", '{"v": "1"}': "$.v", '{"v": NaN}': "malformed",
    '{"v": 1e400}': "$.v", '{"f": 1e39}': "'f'", '{"s": 5}': "$.s", '{"at": 1767225600}': "$.at",
    '{"at": "yesterday"}': "'at'", '{"local": "2026-01-01T00:00:00Z"}': "'local'", '{"day": "2026-02-30"}': "'day'",
    '{"price": 0.001}': "'price'", '{"price": 100000000}': "'price'", '{"bytes": "%"}': "$.bytes", '{"many": 1}': "$.many",
    '{"many": ["1"]}': "$.many", '{"inner": {"a": 2147483648}}': "'inner'", '{"by": {"x": 0.01}}': "'by'",
    '{"s": "\\ud800"}': "no JSON", "[" * 100_000: "no JSON",
    '{"price": 1e900000000000000}': "'price'", '{"price": -1e-900000000}': "'price'", '{"o": ' + "[" * 100_000: "no JSON",
}  # fmt: skip


@pytest.mark.parametrize(("text", "word"), BAD.items(), ids=[text[:40] for text in BAD])
def test_what_does_not_fit_is_an_error_and_a_row_of_nulls(text: str, word: str) -> None:
    """The error names the column; the records beside it are as they would be alone."""
    assert word in decoded(text)[""]
    assert set(decoded(text)) == {""}
    made = Json("").decode([b'{"id": 1}', text.encode(), b'{"id": 3}', None], SCHEMA)
    assert made.rows["id"].to_pylist() == [1, None, 3, None]
    assert made.errors is not None
    assert [error is not None for error in made.errors.to_pylist()] == [False, True, False, True]
    assert made.errors[3].as_py() == NO_VALUE


def test_a_text_that_is_no_utf_8_is_an_error() -> None:
    """In a member, and as the whole record; a member without a column is not looked at."""
    for value in (b'{"s": "\xff"}', b"\xff"):
        assert set(decoded(value)) == {""}, value
    assert decoded(b'{"id": 1, "o": "\xc3\x28"}') == {"id": 1}


def test_a_null_in_a_column_that_allows_none_is_an_error() -> None:
    """Also where the member is left out."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.string())])
    made = Json("").decode([b'{"id": 1}', b'{"s": "a"}', b'{"id": null}', b"x"], schema)
    assert made.rows.to_pylist() == [{"id": 1, "s": None}] + [{"id": None, "s": None}] * 3
    assert made.errors is not None
    assert [("NOT NULL" in error) if error else None for error in made.errors.to_pylist()] == [None, True, True, False]


def test_a_misfit_leaves_times_beside_it_that_python_has_not() -> None:
    """The year 0, and the last hours of 9999 elsewhere, are times to Arrow and to Spark."""
    schema = pa.schema([("day", pa.date32()), ("at", UTC_TIME)])
    records = [b'{"day": "0000-01-01", "at": "9999-12-31T23:59:59-14:00"}', b'{"day": "x"}', b'{"at": "x"}']
    made = Json("").decode(records, schema)
    alone = Json("").decode(records[:1], schema)
    assert made.rows.slice(0, 1).equals(alone.rows)
    assert made.errors is not None
    assert [error is None for error in made.errors.to_pylist()] == [True, False, False]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | st.sampled_from([
        "2026-01-01", "2026-01-01T00:00:00Z", "AAE=", "1.5",
    ]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "at", "x"]), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
RECORDS = st.lists(
    st.none()
    | st.binary(max_size=12)
    | st.dictionaries(st.sampled_from([*COLUMNS, "other"]), VALUES, max_size=4).map(
        lambda row: json.dumps(row).encode()
    ),
    max_size=8,
)


@pytest.mark.slow
@given(records=RECORDS)
@settings(max_examples=examples(200))
def test_records_are_decoded_as_if_each_were_alone(records: list[bytes | None]) -> None:
    """Nothing raises, whatever they hold, and a bad one changes no other."""
    decoded_as_if_alone(Json(""), records, SCHEMA)


@pytest.mark.spark
def test_columns_are_those_of_the_ddl(spark: Any) -> None:
    """Spark parses it; a type that JSON has no values of is refused by name."""
    assert Json("id long, v double").columns() == pa.schema([("id", pa.int64()), ("v", pa.float64())])
    for ddl, word in (("id lnog", "lnog"), ("i interval day", "'i'"), ("m map<int, string>", "'m'")):
        with pytest.raises(ConfigError, match=word):
            Json(ddl).columns()
