"""Rows that a test feeds are fitted to the schema, and each that does not fit says why (SEMANTICS 9.3)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from source_reading import end_of_batch

from penstock.errors import BadRecordFound
from penstock.sources import BadRecord, MemorySource
from penstock.sources.memory import MemoryReader
from penstock.sources.records import cast_columns, rows_to_table

UTC_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("t", UTC_TIME),
        ("b", pa.bool_()),
        ("m", pa.decimal128(6, 2)),
        ("a", pa.list_(pa.int64())),
        ("f", pa.float32()),
        ("g", pa.list_(pa.float32())),
    ]
)

FIT: list[tuple[str, Any, Any]] = [
    ("i", 2**31 - 1, 2**31 - 1),
    ("i", 2.0, 2),
    ("l", -(2**63), -(2**63)),
    ("d", 3, 3.0),
    ("d", float("inf"), float("inf")),
    ("s", "", ""),
    ("b", False, False),
    ("m", Decimal("12.30"), Decimal("12.30")),
    ("a", [1, None], [1, None]),
    ("f", 3.4028234663852886e38, 3.4028234663852886e38),
    ("f", float("-inf"), float("-inf")),
    ("g", [0.5, None], [0.5, None]),
    ("t", -1.5, datetime(1969, 12, 31, 23, 59, 58, 500_000, UTC)),
    ("t", 0.1, datetime(1970, 1, 1, 0, 0, 0, 100_000, UTC)),
    ("t", datetime.fromisoformat("2024-02-29T01:00:00"), datetime(2024, 2, 29, 1, tzinfo=UTC)),
    ("t", datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2024, 1, 1, tzinfo=UTC)),
    ("t", datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
]
UNFIT: list[tuple[str, Any, str]] = [
    ("i", True, "column 'i': True does not fit int"),
    ("d", False, "column 'd': False does not fit double"),
    ("t", True, "column 't': True does not fit timestamp"),
    ("m", True, "column 'm': True does not fit decimal(6,2)"),
    ("i", 1.5, "column 'i': 1.5 does not fit int"),
    ("i", float("nan"), "column 'i': nan does not fit int"),
    ("i", 2**31, "column 'i': 2147483648 does not fit int"),
    ("l", 2**63, "column 'l': 9223372036854775808 does not fit bigint"),
    ("i", "5", "column 'i': '5' does not fit int"),
    ("s", 5, "column 's': 5 does not fit string"),
    ("b", 1, "column 'b': 1 does not fit boolean"),
    ("m", Decimal("1.234"), "column 'm': Decimal('1.234') does not fit decimal(6,2)"),
    ("m", Decimal("123456.7"), "column 'm': Decimal('123456.7') does not fit decimal(6,2)"),
    ("t", "2024-01-01", "column 't': '2024-01-01' does not fit timestamp"),
    ("t", float("inf"), "column 't': inf does not fit timestamp"),
    ("t", 1e30, "column 't': 1e+30 does not fit timestamp"),
    ("a", [1, "x"], "column 'a': [1, 'x'] does not fit array<bigint>"),
    ("f", 1e39, "column 'f': 1e+39 does not fit float"),
    ("f", -1e300, "column 'f': -1e+300 does not fit float"),
    ("g", [1.0, 1e300], "column 'g': [1.0, 1e+300] does not fit array<float>"),
    ("m", 1.999, "column 'm': 1.999 does not fit decimal(6,2)"),
    ("x", 1, "unknown column 'x'"),
]


@pytest.mark.fault("F43")
@pytest.mark.parametrize(("column", "value", "kept"), FIT)
def test_a_value_that_fits_is_kept(column: str, value: Any, kept: Any) -> None:
    """API, test kit: a number in a timestamp column is seconds since 1970; a time without a zone is UTC (F43)."""
    table, errors, raw = rows_to_table([{column: value}, {}], SCHEMA)
    assert table[column].to_pylist() == [kept, None]
    assert errors.null_count == raw.null_count == 2


@pytest.mark.fault("F40", "F43")
@pytest.mark.parametrize(("column", "value", "reason"), UNFIT)
def test_a_value_that_does_not_fit_is_told_and_its_row_is_null(column: str, value: Any, reason: str) -> None:
    """SEMANTICS 9.3: nothing is bent to fit; the rows beside it are as they were."""
    good = {"i": 1, "l": 2, "d": 0.5, "s": "x", "t": 1, "b": True, "m": Decimal(1), "a": [], "f": 0.5, "g": []}
    table, errors, raw = rows_to_table([good, {**good, column: value}, good], SCHEMA)
    assert errors.to_pylist() == [None, reason, None]
    assert table.slice(1, 1).to_pylist() == [dict.fromkeys(SCHEMA.names)]
    assert table.slice(0, 1).equals(table.slice(2, 1))
    assert table["a"].to_pylist() == [[], None, []]
    assert [r is None for r in raw.to_pylist()] == [True, False, True]
    assert set(json.loads(raw[1].as_py())) == {*good, column}


def test_a_row_has_one_reason_and_a_long_value_is_cut() -> None:
    """The first column that does not fit, in the order of the schema."""
    _, errors, _ = rows_to_table([{"s": 5, "i": "x" * 1000}], SCHEMA)
    (reason,) = errors.to_pylist()
    assert reason.startswith("column 'i': 'xxx")
    assert len(reason) < 150


def test_other_scalars_are_taken_as_arrow_takes_them() -> None:
    """Dates and bytes have types of their own."""
    schema = pa.schema([("d", pa.date32()), ("y", pa.binary())])
    table, errors, _ = rows_to_table([{"d": date(2024, 2, 29), "y": b"\x00"}, {"d": 5.5, "y": 7}], schema)
    assert table.to_pylist()[0] == {"d": date(2024, 2, 29), "y": b"\x00"}
    assert errors.to_pylist() == [None, "column 'd': 5.5 does not fit date"]


@pytest.mark.fault("F40", "F43")
@pytest.mark.parametrize(
    ("values", "kind", "kept"),
    [
        ([1e300, 0.5, float("inf"), None], pa.float32(), [None, 0.5, float("inf"), None]),
        (["1e300", "1e38", "-Infinity"], pa.float32(), [None, 9.999999680285692e37, float("-inf")]),
        (["1e999", "1e300"], pa.float64(), [None, 1e300]),
        ([1.999, 1.1, 0.1 + 0.2], pa.decimal128(10, 2), [None, Decimal("1.10"), None]),
        ([0.35, 19.99, 0.57, 0.355], pa.decimal128(10, 2), [Decimal("0.35"), Decimal("19.99"), Decimal("0.57"), None]),
        (["1.999", "1.9"], pa.decimal128(10, 2), [None, Decimal("1.90")]),
    ],
)
def test_a_column_of_a_file_is_bent_to_no_other_value(values: list[Any], kind: pa.DataType, kept: list[Any]) -> None:
    """SEMANTICS 9.3, C9: a number that would become infinite or rounded goes to quarantine, as a long does."""
    table = pa.table({"v": values})
    if not isinstance(values[0], str):
        table = table.cast(pa.schema([("v", pa.float64())]))
    cast, errors, _ = cast_columns(table, pa.schema([("v", kind)]), where="a file")
    assert cast["v"].to_pylist() == kept
    assert errors is not None
    assert [e is not None for e in errors.to_pylist()] == [
        k is None and v is not None for k, v in zip(kept, values, strict=True)
    ]


F64, F32, MONEY = pa.float64(), pa.float32(), pa.decimal128(10, 2)


@pytest.mark.fault("F40", "F43")
@pytest.mark.parametrize(
    ("bad", "good", "stored", "kind", "kept"),
    [
        ([0.5, 1e300], [0.5], pa.list_(F64), pa.list_(F32), [0.5]),
        ([0.5, 1e300], [0.5, 1.0], pa.list_(F64, 2), pa.list_(F32), [0.5, 1.0]),
        (["1e300"], ["inf"], pa.list_(pa.string()), pa.list_(F32), [float("inf")]),
        ([[], [1e300]], [[0.5], None], pa.list_(pa.list_(F64)), pa.list_(pa.list_(F32)), [[0.5], None]),
        ([1.999], [0.1], pa.list_(F64), pa.list_(MONEY), [Decimal("0.10")]),
        ({"a": 1.999}, {"a": 1.1}, pa.struct({"a": F64}), pa.struct({"a": MONEY}), {"a": Decimal("1.10")}),
        ({"a": 1e300}, {"a": 0.5}, pa.struct({"a": F64, "b": F64}), pa.struct({"a": F32}), {"a": 0.5}),
        (
            {"b": 1.0, "a": 1e300},
            {"b": 1e300, "a": 0.5},
            pa.struct({"b": F64, "a": F64}),
            pa.struct({"a": F32, "b": F64, "c": F32}),
            {"a": 0.5, "b": 1e300, "c": None},
        ),
        ([("x", 1e300)], [("x", 0.5)], pa.map_(pa.string(), F64), pa.map_(pa.string(), F32), [("x", 0.5)]),
        (
            [(1.999, "x")],
            [(0.5, "x")],
            pa.map_(F64, pa.string()),
            pa.map_(MONEY, pa.string()),
            [(Decimal("0.50"), "x")],
        ),
        (
            [("x", [{"a": 1e300}])],
            [("x", [{"a": 0.5}, None])],
            pa.map_(pa.string(), pa.list_(pa.struct({"a": F64}))),
            pa.map_(pa.string(), pa.list_(pa.struct({"a": F32}))),
            [("x", [{"a": 0.5}, None])],
        ),
    ],
)
def test_no_value_in_a_nested_one_is_bent(bad: Any, good: Any, stored, kind, kept: Any) -> None:
    """SEMANTICS 9.3, C9: what holds for a number holds for those in lists, maps and structs."""
    chunks = pa.chunked_array([pa.array([good, bad, None], stored), pa.array([None, good], stored)])
    cast, errors, _ = cast_columns(pa.table({"v": chunks}), pa.schema([("v", kind)]), where="a file")
    assert cast["v"].to_pylist() == [kept, None, None, None, kept]
    assert errors is not None
    assert [reason is not None for reason in errors.to_pylist()] == [False, True, False, False, False]
    whole, none, _ = cast_columns(pa.table({"v": chunks.slice(2)}), pa.schema([("v", kind)]), where="a file")
    assert none is None
    assert whole["v"].to_pylist() == [None, None, kept]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_null_instead_of_a_pair_is_no_map(depth: int) -> None:
    """At any depth: Arrow would end the process of the receiver, or of the task."""
    kind, value = pa.map_(pa.string(), pa.int32()), [None]
    for _ in range(depth):
        kind, value = pa.map_(pa.string(), pa.list_(kind)), {"a": [value]}
    table, errors, _ = rows_to_table([{"p": value}, {"p": None}], pa.schema([("p", kind)]))
    assert table["p"].to_pylist() == [None, None]
    assert [error is None for error in errors.to_pylist()] == [False, True]


def test_no_rows_make_an_empty_table() -> None:
    """An empty chunk has the schema."""
    table, errors, raw = rows_to_table([], SCHEMA)
    assert (table.schema, table.num_rows, len(errors), len(raw)) == (SCHEMA, 0, 0, 0)


def test_a_memory_source_that_fails_names_the_row() -> None:
    """SEMANTICS 9.3: BadRecord.FAIL."""
    source = MemorySource("i int", on_bad_record=BadRecord.FAIL)
    reader = MemoryReader(source, pa.schema([("i", pa.int32())]))
    source.feed([[{"i": 1}], [{"i": 1}, {"i": "x"}]])
    with pytest.raises(BadRecordFound, match="row 1 of partition 1 does not fit: column 'i': 'x' does not fit int"):
        reader.span(None, end_of_batch(reader, None))
