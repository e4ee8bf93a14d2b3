"""Rows as PostgreSQL's binary COPY: what a real server makes of them, and which it can never hold."""

from __future__ import annotations

import math
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres_writing import Writing

from penstock.errors import SinkValueRefused

pytestmark = pytest.mark.integration

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
NESTED = pa.struct([("tags", pa.list_(pa.string())), ("by", pa.map_(pa.string(), pa.float64())), ("d", pa.date32())])
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "truth": (pa.bool_(), st.booleans()),
    "tiny": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "whole": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "big": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "money": (pa.decimal128(20, 6), st.decimals(-(10**13), 10**13, places=6)),
    "words": (pa.string(), TEXT),
    "bytes": (pa.binary(), st.binary(max_size=8)),
    "day": (pa.date32(), st.dates()),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "local": (pa.timestamp("us"), st.datetimes()),
    "nested": (
        NESTED,
        st.fixed_dictionaries(
            {
                "tags": st.lists(TEXT | st.none(), max_size=3),
                "by": st.dictionaries(TEXT, st.floats(allow_nan=False, allow_infinity=False), max_size=2).map(
                    lambda pairs: list(pairs.items())
                ),
                "d": st.dates(),
            }
        ),
    ),
}
SCHEMA = pa.schema([("n", pa.int64()), *((name, type_) for name, (type_, _) in TYPES.items())])


def shown(value: Any) -> Any:
    """Return a value as psycopg returns it from its column."""
    if isinstance(value, dict):
        return {
            "tags": value["tags"],
            "by": {key: float(number) for key, number in dict(value["by"]).items()},
            "d": str(value["d"]),
        }
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def test_every_value_comes_back_as_it_was(postgres: Any, tmp_path: Any) -> None:
    """A law over all types, with nulls between them; -0.0, infinities and the ends of the integers too."""
    writing = Writing(tmp_path, postgres)
    row = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in TYPES.items()})
    batch = iter(range(1_000_000))

    @settings(max_examples=examples(40))
    @given(st.lists(row, min_size=1, max_size=5))
    def law(rows: list[dict[str, Any]]) -> None:
        number = next(batch)
        table = pa.Table.from_pylist([{"n": number * 10 + i, **row} for i, row in enumerate(rows)], SCHEMA)
        writing.publish(number, table)
        columns = ", ".join(f"{name}::double precision" if name == "single" else name for name in TYPES)
        query = f"SELECT n, {columns} FROM {writing.table} WHERE n / 10 = {number} ORDER BY n"  # noqa: S608 - names of ours
        assert [[shown(value) for value in got[1:]] for got in postgres.ask(query)] == [
            [shown(row[name]) for name in TYPES] for row in rows
        ]

    law()


def test_rows_of_many_pieces_keep_their_order(postgres: Any, tmp_path: Any) -> None:
    """A piece of the COPY has some thousand rows; a text of any length stays beside its number."""
    writing = Writing(tmp_path, postgres)
    texts = ["x" * (n % 7) if n % 5 else None for n in range(50_001)]
    writing.publish(0, pa.table({"k": pa.array(range(50_001), pa.int64()), "t": pa.array(texts, pa.string())}))
    assert writing.rows("k, t", "ctid") == list(enumerate(texts))


def test_the_calendar_ends_where_postgres_ends(postgres: Any, tmp_path: Any) -> None:
    """The first and the last day, and the last microsecond of 64 bits, are taken."""
    writing = Writing(tmp_path, postgres)
    days = pa.array([-2_440_588, 2_145_042_905, 0], pa.int32()).cast(pa.date32())
    instants = pa.array([-2_440_588 * 86_400_000_000, 2**63 - 1, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    writing.publish(0, pa.table({"d": days, "at": instants}))
    assert writing.rows("d::text, (at AT TIME ZONE 'UTC')::text") == [
        ("1970-01-01", "1970-01-01 00:00:00"),
        ("4714-11-24 BC", "4714-11-24 00:00:00 BC"),
        ("5874897-12-31", "294247-01-10 04:00:54.775807"),
    ]


REFUSED = {
    "NUL in a text": pa.array(["a", "a\0b"]),
    "NUL in JSON": pa.array([["a\0b"]]),
    "NUL in a key of JSON": pa.array([[("a\0", 1)]], pa.map_(pa.string(), pa.int64())),
    "NaN in JSON": pa.array([[1.0, math.nan]]),
    "infinity in JSON": pa.array([{"x": math.inf}]),
    "a day before the calendar": pa.array([-2_440_589], pa.int32()).cast(pa.date32()),
    "a day after it": pa.array([2_145_042_906], pa.int32()).cast(pa.date32()),
    "an instant before it": pa.array([-(2**63)], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "an instant in JSON after the year 9999": pa.array([[2**62]], pa.list_(pa.timestamp("us", "UTC"))),
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_a_value_that_no_column_holds_is_refused_before_the_commit(postgres: Any, tmp_path: Any, values: Any) -> None:
    """SEMANTICS 9.6: by `refuse_values`, with the name of the column; nothing is written."""
    writing = Writing(tmp_path, postgres)
    with pytest.raises(SinkValueRefused, match="'v'"):
        writing.publish(0, pa.table({"v": values}))
    assert writing.rows() == []


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("text NOT NULL", pa.array(["a", None])),
        ("varchar(2)", pa.array(["ab", "äöü"])),
        ("integer CHECK (v > 0)", pa.array([1, 0], pa.int32())),
        ("integer UNIQUE", pa.array([1, 1], pa.int32())),
    ],
)
def test_a_value_against_a_rule_of_the_table_is_refused_before_the_commit(
    postgres: Any, tmp_path: Any, column: str, values: Any
) -> None:
    """SEMANTICS 9.6: NOT NULL and lengths are compared here; other rules the server is asked for."""
    writing = Writing(tmp_path, postgres)
    postgres.ask(f"CREATE TABLE {writing.table} (v {column})")
    with pytest.raises(SinkValueRefused):
        writing.publish(0, pa.table({"v": values}))
    assert writing.rows() == []
    writing.publish(0, pa.table({"v": values[:1]}))
    assert len(writing.rows()) == 1


def test_narrow_values_go_into_wider_columns(postgres: Any, tmp_path: Any) -> None:
    """A table that is there may be wider than the stream."""
    writing = Writing(tmp_path, postgres)
    postgres.ask(
        f"CREATE TABLE {writing.table} (i bigint, f double precision, d numeric(20,4), n numeric, t varchar, j json, "
        "extra text DEFAULT 'x')"
    )
    columns = {
        "i": pa.array([1], pa.int32()), "f": pa.array([0.5], pa.float32()),
        "d": pa.array([Decimal("1.50")], pa.decimal128(5, 2)), "n": pa.array([7], pa.int64()),
        "t": pa.array(["ü"]), "j": pa.array([[1]]),
    }  # fmt: skip
    writing.publish(0, pa.table(columns))
    assert writing.rows() == [(1, 0.5, Decimal("1.5000"), Decimal(7), "ü", [1], "x")]
