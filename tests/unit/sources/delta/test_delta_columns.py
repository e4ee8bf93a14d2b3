"""Columns have the types that Spark gives them, and partition values are what they stand for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_reading import append, read_all, reader_of

from penstock.errors import ConfigError, TableUnreadable
from penstock.sources.delta.actions import Table
from penstock.sources.delta.columns import column_types, columns_of_table, partition_value, schema_of

TIME = pa.timestamp("us", tz="UTC")
AT = datetime(2026, 11, 25, 8, 30, 0, 250_000, tzinfo=UTC)
VALUES: list[tuple[str | None, pa.DataType, Any]] = [
    (None, pa.string(), None), ("", pa.string(), None), ("a%b/c d=é", pa.string(), "a%b/c d=é"),
    ("-7", pa.int32(), -7), ("1.5", pa.float64(), 1.5), ("Infinity", pa.float64(), float("inf")),
    ("2.50", pa.decimal128(5, 2), Decimal("2.50")), ("true", pa.bool_(), True), ("False", pa.bool_(), False),
    ("2026-11-25", pa.date32(), date(2026, 11, 25)), ("\u0001\u0002", pa.binary(), b"\x01\x02"),
    ("2026-11-25 08:30:00.25", TIME, AT), ("2026-11-25T08:30:00.250000Z", TIME, AT),
    ("2026-11-25 08:30:00.250000", pa.timestamp("us"), AT.replace(tzinfo=None)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "value"), VALUES)
def test_a_partition_value_is_what_its_text_stands_for(text: str | None, kind: pa.DataType, value: Any) -> None:
    """Delta protocol, "Partition Value Serialization"."""
    scalar = partition_value(text, kind)
    assert (scalar.type, scalar.as_py()) == (kind, value)


def test_rows_of_a_partitioned_table_are_as_they_were_written(tmp_path: Path) -> None:
    """Values of each type that a partition may have, null too, in the order of the table's columns."""
    kinds = {f"p{i}": kind for i, kind in enumerate(dict.fromkeys(kind for _, kind, _ in VALUES))}
    full = {n: next(v for _, k, v in reversed(VALUES) if k == kind and v is not None) for n, kind in kinds.items()}
    full = {name: value for name, value in full.items() if value != b"\x01\x02"}  # which delta-rs does not take
    schema = pa.schema([("k", pa.int64()), *((name, kinds[name]) for name in full), ("s", pa.string())])
    written = [{"k": 1, **full, "s": "x"}, {"k": 2, **dict.fromkeys(full), "s": None}]
    append(tmp_path, pa.Table.from_pylist(written, schema), partition_by=list(full))
    reader = reader_of(tmp_path)
    assert reader.schema == schema
    assert sorted(read_all(reader)[0], key=lambda row: row["k"]) == written
    only = reader_of(tmp_path, columns=["p0"])
    assert sorted(read_all(only)[0], key=str) == [{"p0": full["p0"]}, {"p0": None}]


def test_a_type_that_arrow_lacks_is_named() -> None:
    """Before the first batch."""
    table = Table({"id": "1", "schemaString": '{"type": "struct", "fields": [{"name": "x", "type": "odd"}]}'}, {})
    with pytest.raises(TableUnreadable, match="a column that cannot be read"):
        columns_of_table(table, "t")


def test_columns_that_are_not_there_or_there_twice_are_refused() -> None:
    """A change data feed adds three, which a table may have as well."""
    columns = pa.schema([("k", pa.int64()), ("_change_type", pa.string())])
    with pytest.raises(ConfigError, match="columns= has 'x', and the table has k, _change_type"):
        schema_of(columns, ["x"], changes=False, where="t")
    with pytest.raises(ConfigError, match="'_change_type' as well as the change data feed"):
        schema_of(columns, None, changes=True, where="t")
    names = schema_of(columns, ["k"], changes=True, where="t").names
    assert names == ["k", "_change_type", "_commit_version", "_commit_timestamp"]
    assert column_types(columns) == {"k": "bigint", "_change_type": "string"}
