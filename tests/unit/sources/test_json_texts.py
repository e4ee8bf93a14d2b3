"""The texts of bad records become rows by another schema as the records themselves would (SEMANTICS 9.3)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.base import PARTIAL
from penstock.sources.json_texts import rows_by_cast, rows_by_type
from penstock.sources.records import cast_columns, rows_to_table
from penstock.testing.examples import examples

WORDS = st.sampled_from(["1", "2.5", "x", "true", "2026-01-01", "2026-01-01T00:00:00Z", "9" * 30, "é", ""])
VALUES = st.one_of(
    st.none(),
    st.lists(st.none() | WORDS, min_size=1, max_size=4),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4),
    st.lists(st.none() | st.floats(width=64), min_size=1, max_size=4),
    st.lists(st.datetimes(timezones=st.just(UTC)), min_size=1, max_size=4),
)
KINDS = st.sampled_from(
    [
        pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.bool_(), pa.date32(),
        pa.timestamp("us", tz="UTC"),
    ]
)  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(VALUES, KINDS, KINDS, st.booleans())
def test_a_corrected_schema_reads_a_text_as_it_reads_the_file(values, first, second, needed) -> None:
    """And the schema of before finds the same errors: nothing becomes a row that is none."""
    if values is None:
        return
    file = pa.table({"a": pa.array(values), "b": pa.array(["x"] * len(values))})
    if pa.types.is_timestamp(file["a"].type) and not pa.types.is_timestamp(second):
        second = pa.timestamp("us", tz="UTC")  # JSON has a time as Python writes it, and Arrow writes another text
    schemas = [pa.schema([pa.field("a", kind, nullable=not needed), ("b", pa.string())]) for kind in (first, second)]
    try:
        _, errors, raw = cast_columns(file, schemas[0], where="a file")
        expected, others, _ = cast_columns(file, schemas[1], where="a file")
    except Exception:  # noqa: BLE001 - of a type that no value can become, no file is read
        return
    if errors is None:
        return
    bad = [i for i, error in enumerate(errors.to_pylist()) if error is not None]
    texts = [raw[i].as_py() for i in bad]
    assert rows_by_cast(texts, schemas[0])[1] == [errors[i].as_py() for i in bad]
    rows, problems = rows_by_cast(texts, schemas[1])
    assert problems == [None if others is None else others[i].as_py() for i in bad]
    assert shown(rows) == shown(expected.take(bad)), "NaN is NaN"


def shown(rows: pa.Table) -> str:
    """Return rows as text; Python has no time before the year 1, and Arrow has."""
    numbers = {pa.timestamp("us", tz="UTC"): pa.int64(), pa.date32(): pa.int32()}
    return repr([column.cast(numbers.get(column.type, column.type)).to_pylist() for column in rows.columns])


def test_columns_go_by_their_names() -> None:
    """One that the text lacks is null, another one is left out, and a text that is no object says nothing new."""
    schema = pa.schema([("a", pa.int64()), ("c", pa.list_(pa.int64()))])
    rows, errors = rows_by_cast(['{"a": "7", "b": 1}', "1,2,3", "[1]", '{"c": [1, null]}'], schema)
    nothing = {"a": None, "c": None}
    assert rows.to_pylist() == [{"a": 7, "c": None}, nothing, nothing, {"a": None, "c": [1, None]}]
    assert errors == [None, "", "", None]
    assert rows_by_cast([], schema)[0].num_rows == 0


def test_a_type_that_no_value_can_become_fails_those_rows() -> None:
    """The others are rows."""
    schema = pa.schema([("a", pa.int64())])
    rows, errors = rows_by_cast(['{"a": {"b": 1}}', '{"a": 3}'], schema)
    assert rows["a"].to_pylist() == [None, 3]
    assert [error is None for error in errors] == [False, True]


@pytest.mark.parametrize("text", ["18446744073709551615", "1" * 40, "-9223372036854775809", '"\\ud800"'])
def test_a_value_that_arrow_cannot_hold_fails_its_row_alone(text: str) -> None:
    """A batch that is fixed would fail for ever, as its re-run reads the same texts."""
    schema = pa.schema([("a", pa.int64())])
    rows, errors = rows_by_cast([f'{{"a": {text}}}', '{"a": 3}', '{"a": "4"}'], schema)
    assert rows["a"].to_pylist() == [None, 3, 4]
    assert [error is None for error in errors] == [False, True, True]


def test_a_large_number_without_a_sign_is_read_by_a_corrected_schema() -> None:
    """Its file had it in a column of such numbers."""
    schema = pa.schema([("a", pa.decimal128(20, 0))])
    rows, errors = rows_by_cast(['{"a": 18446744073709551615}'], schema)
    assert (rows["a"].to_pylist(), errors) == ([Decimal(2**64 - 1)], [None])


def test_bytes_are_not_in_json() -> None:
    """The error of a record with bytes says so, because its text has another value."""
    table = pa.table({"a": ["x"], "b": [b"\xff"]})
    schema = pa.schema([("a", pa.int64()), ("b", pa.binary())])
    _, errors, _ = cast_columns(table, schema, where="a file")
    assert errors[0].as_py().endswith(PARTIAL)


def test_rows_of_python_keep_their_types() -> None:
    """What JSON has no type for comes back from its text; all else is refused as before."""
    schema = pa.schema(
        [("v", pa.int64()), ("t", pa.timestamp("us", tz="UTC")), ("d", pa.date32()), ("n", pa.decimal128(5, 2))]
    )
    row = {"v": "x", "t": datetime(2026, 1, 1, tzinfo=UTC), "d": date(2026, 1, 2), "n": Decimal("1.25")}
    _, errors, raw = rows_to_table([row, {"v": 1, "w": 2}, {"v": 1.5}], schema)
    texts = raw.to_pylist()
    assert rows_by_type(texts, schema)[1] == errors.to_pylist()
    corrected = pa.schema([pa.field("v", pa.string()), *list(schema)[1:]])
    rows, errors = rows_by_type([texts[0]], corrected)
    assert (rows.to_pylist(), errors) == ([row], [None])
    needed = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    assert rows_by_type(["no json", json.dumps({"v": 4})], needed)[1] == ["", None]
