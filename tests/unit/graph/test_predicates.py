"""Predicates in a part of Spark SQL, parsed where the job is built (SEMANTICS 4.3)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.errors import BadExpression
from penstock.graph.predicates import Call, Chain, Column, Literal, columns_of, parse_predicate

V = Column(("v",))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("v != 0", Call("!=", (V, Literal(0)))),
        ("v <> -1.5", Call("!=", (V, Literal(-1.5)))),
        ("`v` == 'it''s'", Call("=", (V, Literal("it's")))),
        ("NOT v = 1 AND v > 2", Call("and", (Call("not", (Call("=", (V, Literal(1))),)), Call(">", (V, Literal(2)))))),
        ("v + 2 * 3 < 1", Call("<", (Call("+", (V, Call("*", (Literal(2), Literal(3))))), Literal(1)))),
        ("v div 2 % 3 = 0", Call("=", (Chain(("div", "%"), (V, Literal(2), Literal(3))), Literal(0)))),
        (
            "v + 1 - 2 * 3 > 0",
            Call(">", (Chain(("+", "-"), (V, Literal(1), Call("*", (Literal(2), Literal(3))))), Literal(0))),
        ),
        ("unix_seconds (v) > 0", Call(">", (Call("unix_seconds", (V,)), Literal(0)))),
        ("unix_seconds > 0", Call(">", (Column(("unix_seconds",)), Literal(0)))),
        ("v IS NOT NULL", Call("not", (Call("is_null", (V,)),))),
        ("v NOT IN (1, 2)", Call("not", (Call("or", (Call("=", (V, Literal(1))), Call("=", (V, Literal(2))))),))),
        ("v BETWEEN 1 AND 2", Call("and", (Call(">=", (V, Literal(1))), Call("<=", (V, Literal(2)))))),
        ("v.total > 1e3", Call(">", (Column(("v", "total")), Literal(1000.0)))),
        ("-2147483648", Literal(-(2**31))),
        ("-(2147483648)", Call("negative", (Literal(2**31),))),
        ("- + -5", Call("negative", (Call("positive", (Literal(-5),)),))),
        ("(a OR b) and true", Call("and", (Call("or", (Column(("a",)), Column(("b",)))), Literal(value=True)))),
    ],
)
def test_predicates_are_parsed_by_the_precedence_of_sql(text: str, parsed: Any) -> None:
    """NOT binds less than comparisons, AND less than NOT, OR less than AND."""
    assert parse_predicate(text, "keep=") == parsed


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "not a predicate"),
        (None, "not a predicate"),
        ("length(v) > 1", "length is a function"),
        ("v LIKE 'a%'", "'LIKE' is not understood"),
        ("v >", "ends too soon"),
        ("v > 1 -- 2", "'--' is not understood"),
        ("v > 1 /* 2 */", r"'/\*' is not understood"),
        ("(v > 1", r"lacks \) after '1'"),
        ("v IN 1", r"lacks \( after 'IN'"),
        ("v IS 3", "lacks NULL after 'IS'"),
        ("v NOT 3", "lacks IN or BETWEEN after 'NOT'"),
        ("v > 1;", "';' is not understood"),
        ("v > 1 2", "'2' is not understood"),
        ("v > 'a", '"\'a" is not understood'),
        (f"v > 0.{'1' * 39}", "more digits than a decimal of Spark"),
        (f"{'(' * 500}v{')' * 500}", "too many parentheses or signs"),
        (f"{'(v + ' * 101}v{')' * 101} > 1", "more than 100 operators within each other"),
        (f"{'NOT ' * 101}v > 1", "more than 100 operators within each other"),
    ],
)
def test_anything_else_is_refused_by_name(text: Any, match: str) -> None:
    """4.3: what no task can evaluate is refused where it is written."""
    with pytest.raises(BadExpression, match=match):
        parse_predicate(text, "keep=")


def test_a_decimal_has_no_negative_zero() -> None:
    """A double has one: Spark reads `-0e0` as a double, `-0.0` as a decimal."""
    assert [str(parse_predicate(text, "keep=").value) for text in ("-0.0", "-0e0")] == ["0.0", "-0.0"]


def test_a_long_list_is_a_flat_tree() -> None:
    """Python follows no tree of as many levels as a list may have items, and pickles none for a task."""
    for text in (
        f"v IN ({', '.join(map(str, range(5_000)))})",
        " AND ".join(f"v <> {n}" for n in range(5_000)),
        f"{' + '.join(['v'] * 5_000)} > 1",
        f"{' * '.join(['v'] * 5_000)} > 1",
    ):
        parsed = parse_predicate(text, "keep=")
        assert len(list(columns_of(parsed))) == 5_000
        assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_what_is_not_too_deep_can_be_sent() -> None:
    """4.3: the deepest expression reaches the tasks, from a program as deep as pytest is here."""
    parsed = parse_predicate(f"{'NOT ' * 97}v > 1", "keep=")
    assert cloudpickle.loads(cloudpickle.dumps(parsed)) == parsed
