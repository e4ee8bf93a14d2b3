"""Tasks compute simple expressions of SQL as Spark does, and leave all others to it (SEMANTICS 2.10, decision 177)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.graph.predicates import parse_expression
from penstock.operators.columns import arrow_schema
from penstock.operators.expression_types import expression_type
from penstock.operators.predicate_values import UNFIT, value_of
from penstock.testing.environment import session_of_tests
from penstock.testing.examples import examples

COLUMNS = pa.schema(
    [
        ("a", pa.int8()),
        ("h", pa.int16()),
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("u", pa.timestamp("us", tz="UTC")),
        ("f", pa.float32()),
        ("m", pa.decimal128(9, 2)),
    ]
)
NUMBERS = ["1", "-3", "7", "2147483648", "-2147483648", "0.5", "-0.0", "-0e0", "1.5e3"]
LEAVES = [*COLUMNS.names, *NUMBERS, "'b'", "true", "NULL"]
SIGNS = ("+", "-", "*", "/", "%", "div", "=", "<", "<=", ">", ">=", "!=", "AND", "OR")


def combined(of: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return expressions over expressions."""
    pairs = st.tuples(of, st.sampled_from(SIGNS), of).map(lambda made: f"({made[0]} {made[1]} {made[2]})")
    alone = st.tuples(st.sampled_from(("NOT ", "-", "+", "unix_seconds", "unix_millis", "unix_micros")), of)
    # A blank after the sign: two signs are a comment.
    chains = st.tuples(of, st.sampled_from("+-"), of, st.sampled_from("+-"), of).map(lambda made: f"({' '.join(made)})")
    return (
        pairs | chains | alone.map(lambda made: f"({made[0]} ({made[1]}))") | of.map(lambda made: f"({made} IS NULL)")
    )


EXPRESSIONS = st.recursive(st.sampled_from(LEAVES), combined, max_leaves=4)
FEW = st.integers(-9, 9)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Return values of a type, among them null, NaN, both zeros, and the ends of the type."""
    if pa.types.is_integer(kind):
        least = -(1 << kind.bit_width - 1)
        return st.none() | FEW | st.sampled_from((least, -least - 1))
    if pa.types.is_floating(kind):
        return st.none() | st.sampled_from((0.0, -0.0, 0.5, -2.0, 1e300, float("nan"), float("inf")))
    if pa.types.is_timestamp(kind):
        return st.none() | st.integers(-(10**7), 10**7)
    return st.none() | (st.booleans() if pa.types.is_boolean(kind) else st.sampled_from(("", "a", "b", "é")))


def rows_of(drawn: list[dict[str, Any]]) -> pa.Table:
    return pa.table({f.name: pa.array([row.get(f.name) for row in drawn], f.type) for f in COLUMNS})


ROWS = st.lists(
    st.fixed_dictionaries({f.name: values(f.type) for f in COLUMNS if f.name != "m"}), min_size=1, max_size=4
).map(rows_of)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Return the session of the tests."""
    return session_of_tests()


@given(rows=ROWS, texts=st.lists(EXPRESSIONS, min_size=12, max_size=12))
@settings(max_examples=examples(12), deadline=None)
def test_types_and_values_are_those_of_spark(spark: SparkSession, rows: pa.Table, texts: list[str]) -> None:
    """Of each random expression whose type is said; one that no task computes is Spark's to compute or to refuse."""
    ours: dict[str, pa.Array] = {}
    for text in texts:
        try:
            parsed = parse_expression(text)
        except ValueError:
            continue
        kind = expression_type(parsed, COLUMNS, COLUMNS.names)
        if kind is not None:
            try:
                value = value_of(parsed, rows)
            except UNFIT:
                continue
            assert value.type == kind, text
            ours[text] = value
    if not ours:
        return
    named = [f"{text} AS c{place}" for place, text in enumerate(ours)]
    frame = spark.createDataFrame(rows).selectExpr(*named)
    theirs = frame.toArrow()
    assert arrow_schema(frame.schema).types == [value.type for value in ours.values()], named
    for place, (text, value) in enumerate(ours.items()):
        wanted = theirs[f"c{place}"].cast(value.type)
        assert list(map(str, value.to_pylist())) == list(map(str, wanted.to_pylist())), text


@pytest.mark.parametrize(
    "text",
    [
        "f + 1",
        "m > 0",
        "n + 0.5",
        "n < 0.5",
        "n + x",
        "0.5",
        "1e999 < x",
        "s = 1",
        "t > s",
        "b = b",
        "b < b",
        "-s",
        "NULL",
        "9223372036854775808 > n",
        "N + 1",
        "(n = NULL)",
        "(n + 1) IS NULL AND s",
        "s.t = 1",
        "x div 2",
        "+s = 'a'",
        "+t",
        "+b",
        "s = '${system:user.name}'",
        "s = 'it''s'",
        f"n IN ({', '.join(map(str, range(1_000)))})",
        "n AND b",
    ],
)
def test_what_is_not_certain_is_left_to_spark(text: str) -> None:
    """Types that Spark would change first, and names in other letters."""
    assert expression_type(parse_expression(text), COLUMNS, COLUMNS.names) is None


def test_a_name_that_is_a_word_of_sql_is_left_to_spark() -> None:
    """The caller says which are names alone."""
    assert expression_type(parse_expression("n + 1"), COLUMNS, ["x"]) is None
