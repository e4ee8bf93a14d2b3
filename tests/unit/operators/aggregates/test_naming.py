"""Partials are named by what they aggregate, so that other aggregates do not rename them (DESIGN 5)."""

from __future__ import annotations

import pytest

from penstock.graph.aggregates import AggregateKind
from penstock.operators.aggregates.naming import aggregates_in, cast_of, old_names, partial_name, plain_sql

SUM, COUNT, MEAN = AggregateKind.SUM, AggregateKind.COUNT, AggregateKind.MEAN


@pytest.mark.parametrize(
    ("first", "other", "same"),
    [
        ("a+b", " a  +\n b ", True),
        ("CASE WHEN a THEN 1 END", "case  when a then 1 end", True),
        ("`v`", "V", True),
        ("f( a , b )", "f(a,b)", True),
        ("a = 'x y'", "a = 'x  y'", False),
        ("a = 'X'", "a = 'x'", False),
        ("a b", "ab", False),
        ("`a b`", "`A b`", False),
        ("'it''s  a'", "'it''s a'", False),
    ],
)
def test_blanks_and_case_make_no_difference_outside_quotes(first: str, other: str, same) -> None:
    """C5: a blank in an expression is no other aggregate; one inside quotes is."""
    assert (plain_sql(first) == plain_sql(other)) is same
    assert (partial_name("sum", first) == partial_name("sum", other)) is same


def test_a_name_can_be_a_column_of_any_table() -> None:
    """API: data checkpoints are Delta tables, which take no blanks or brackets in names."""
    assert partial_name("sum", "V") == "_sum_v"
    assert partial_name("n", "a + b").removeprefix("_n_x").isalnum()
    hashed = partial_name("sum", "a+b").removeprefix("_sum_")
    assert partial_name("sum", hashed) != partial_name("sum", "a+b")


@pytest.mark.parametrize(
    ("expression", "inner"),
    [
        ("CAST(v AS DECIMAL(38, 0))", "v"),
        ("cast( a + f(b) as double )", "a+f(b)"),
        ("CAST(v AS BIGINT)", None),
        ("CAST(a AS DOUBLE) + CAST(b AS DOUBLE)", None),
        ("TRY_CAST(v AS DOUBLE)", None),
        ("v", None),
    ],
)
def test_a_cast_is_seen_where_it_is_the_whole_expression(expression: str, inner: str | None) -> None:
    """PEN-STA-004: what is to be done is a cast to decimal or double."""
    assert cast_of(expression) == inner


def test_a_layout_is_read_whatever_its_expressions_hold() -> None:
    """DESIGN 5: state says what it was written as; commas, brackets and quotes do not mislead."""
    text = (
        "count() int64, sum(if(a = ')', b, 1)) decimal128(20, 2), mean(v) double, first(x) struct<a: int64, b: string>"
    )
    assert list(aggregates_in(text)) == [
        (COUNT, "", "int64"),
        (SUM, "if(a = ')', b, 1)", "decimal128(20, 2)"),
        (MEAN, "v", "double"),
        (AggregateKind.FIRST, "x", "struct<a: int64, b: string>"),
    ]


def test_names_by_place_were_those_of_the_first_that_used_them() -> None:
    """DESIGN 5: a mean and a sum of one double had their partials at the place of the first."""
    names = old_names([(COUNT, "", "int64"), (MEAN, "d", "double"), (SUM, "d", "double"), (SUM, "i", "int64")])
    assert names == {
        "_p1_n": "_n_d",
        "_p1_double": "_double_d",
        "_p3_n": "_n_i",
        "_p3_sum": "_sum_i",
        "_p3_carry": "_carry_i",
    }
