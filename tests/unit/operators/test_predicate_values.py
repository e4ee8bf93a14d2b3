"""Predicates over Arrow tables mean what they mean to Spark (SEMANTICS 4.3)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.errors import BadExpression, UserFunctionError
from penstock.graph.predicates import parse_expression, parse_predicate
from penstock.operators.predicate_values import UNFIT, TablePredicate, value_of
from penstock.testing.environment import session_of_tests

NAN = float("nan")
ROWS = pa.table(
    {
        "n": pa.array([1, -7, None, 0, 2**40], pa.int64()),
        "i": pa.array([3, 2, None, -2, 5], pa.int32()),
        "x": pa.array([0.5, NAN, None, -0.0, NAN]),
        "y": pa.array([NAN, NAN, 1.0, 0.0, None]),
        "s": pa.array(["a", "b", None, "it's", ""]),
        "b": pa.array([True, None, False, True, None]),
        "t": pa.array([-1, 0, 1_999_999, None, -2_000_001], pa.timestamp("us", tz="UTC")),
        "d": pa.array([Decimal("1.50"), None, Decimal("-2.00"), Decimal("0.00"), Decimal("7.25")], pa.decimal128(9, 2)),
    }
)
PREDICATES = [
    "n != 0",
    "n > i",
    "n BETWEEN -7 AND 1",
    "n NOT IN (1, 0)",
    "n IN (1, NULL)",
    "i % 2 = 0",
    "-i % 3 = -2",
    "+i - (+n) = -(-2)",
    "n / 2 > 0.4",
    "n + i * 2 - 1 >= 0",
    "n - i - i + 1 - n * 2 div 3 >= 0",
    "x * 2 / 3 * 5 < 1",
    f"{' + '.join(['i'] * 260)} > 300",
    f"{' - '.join(['1e17', '1e17', *['0.1e0'] * 30])} <> -3.0e0",
    "-n < 0",
    "x = x",
    "x > y",
    "x <= y",
    "x < 1",
    "x >= 1e300",
    "y != x",
    "x = 0.0",
    "n < x",
    "x % 2 = 0.5",
    "x % 2 > 1",
    "y % 2 IS NULL",
    "n % -1 = 0",
    "i div 2 = -1",
    "n div -3 = 2",
    "unix_seconds(t) = -1",
    "unix_seconds(t) < -2",
    "unix_millis(t) div 1000 = 1",
    "unix_micros(t) % 2 = 1",
    "s = 'it''s' OR s < 'b'",
    "s IS NULL",
    "b",
    "NOT b",
    "b AND n > 0",
    "b OR n IS NULL",
    "NOT (b AND NULL)",
    "d > 1",
    "D <= 0.0",
    "true",
    "NULL",
]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Return the session of the tests."""
    return session_of_tests()


def test_predicates_hold_where_they_do_in_spark(spark: SparkSession) -> None:
    """Nulls, NaN, -0.0, integers of other widths, decimals and texts, in one pass over all predicates."""
    frame = spark.createDataFrame(ROWS)
    wanted = frame.selectExpr(*[f"coalesce({text}, false) AS p{place}" for place, text in enumerate(PREDICATES)])
    for place, text in enumerate(PREDICATES):
        predicate = TablePredicate(predicate=parse_predicate(text, "keep="), what="keep=")
        predicate.check(ROWS.schema)
        assert predicate.holds(ROWS).tolist() == wanted.toArrow()[f"p{place}"].to_pylist(), text


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("z > 1", "no column 'z'"),
        ("s.t > 1", "no field 't' in string"),
        ("n > 'a'", "int64 and string are not compared"),
        ("n + 1", "gives a int64"),
        ("d + 1 > 0", r"\+ is for integers and doubles, not for decimal"),
        ("x div 2 > 0", "div is for integers"),
        ("unix_seconds(n) > 0", "unix_seconds is for timestamps"),
        ("n AND b", "a int64 is neither true nor false"),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(text: str, match: str) -> None:
    """Types are known before the first batch."""
    with pytest.raises(BadExpression, match=match):
        TablePredicate(predicate=parse_predicate(text, "keep="), what="keep=").check(ROWS.schema)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("n / n > 0", "division by zero"),
        ("i div (n - n) > 0", "division by zero"),
        ("n * n * n > 0", "overflow"),
    ],
)
def test_what_cannot_be_computed_stops_the_batch(text: str, match: str) -> None:
    """As in ANSI mode nothing wraps around, and nothing becomes null."""
    with pytest.raises(UserFunctionError, match=match):
        TablePredicate(predicate=parse_predicate(text, "keep="), what="keep= of 'w'").holds(ROWS)


def test_null_by_zero_is_null_and_the_least_number_divides_by_minus_one() -> None:
    """As in Spark, which looks at a divisor only where there is something to divide."""
    rows = pa.table({"n": pa.array([None, -(2**63)], pa.int64()), "z": pa.array([0, -1], pa.int64())})
    assert [value_of(parse_expression(text), rows).to_pylist() for text in ("n % z", "n / z")] == [
        [None, 0],
        [None, float(2**63)],
    ]
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        value_of(parse_expression("n div z"), rows)


def test_a_text_that_no_column_holds_for_all_rows_is_no_value() -> None:
    """F75: 2 GiB of letters are more than the places of a column of texts can say, which Arrow does not look at."""
    rows = pa.table({"n": pa.nulls(2**30)})
    with pytest.raises(UNFIT, match="a text of 2 letters for 1,073,741,824 rows"):
        value_of(parse_expression("'it'"), rows)
