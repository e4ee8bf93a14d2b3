"""A wrong type in DDL is found without Spark, and what Spark takes is never refused (F66)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.ddl import ddl_problem

SIMPLE = [
    "bigint", "BINARY", "boolean", "byte", "char(3)", "character(3)", "date", "dec", "decimal(10, 2)", "double",
    "float", "int", "integer", "interval day to second", "interval year", "long", "numeric(4)", "real", "short",
    "smallint", "string", "String", "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint", "varchar(5)", "variant",
    "void", "string collate UTF8_LCASE",
]  # fmt: skip
NAMES = ["a", "B1", "`odd, name`", "`tick``ed`", "date", "array", "größe"]
TYPES = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        st.tuples(st.sampled_from(["string", "int"]), inner).map(lambda of: f"MAP<{of[0]},{of[1]}>"),
        st.tuples(inner, inner).map(lambda of: f"struct<x: {of[0]} COMMENT 'a, b>', `y z` :{of[1]}>"),
    ),
    max_leaves=4,
)
AFTER = ["", " NOT NULL", " COMMENT 'it''s, so'", ' COMMENT "a < b"']


@st.composite
def columns(draw: Any) -> list[str]:
    """Draw columns of different names, each with a type that Spark has."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3))
    named = [name if name not in ("größe", "array", "date") else f"`{name}`" for name in names]
    return [f"{name} {draw(TYPES)}{draw(st.sampled_from(AFTER))}" for name in named]


@pytest.mark.spark
@settings(max_examples=examples(20))
@given(drawn=columns())
def test_what_spark_takes_passes(spark: Any, drawn: list[str]) -> None:
    """Whatever follows a type, and however deep it is."""
    from pyspark.sql.types import StructType

    ddl = ", ".join(drawn)
    assert StructType.fromDDL(ddl) is not None
    assert ddl_problem(ddl) is None


@pytest.mark.spark
@pytest.mark.parametrize(
    "ddl",
    [
        "struct<id:bigint,name:string>",
        "STRUCT<id: bigint, more: struct<x: int>>",
        "id long, -- the key\nname string",
        "id long, -- it's the key\nname string",
        "/* of an order */ id long, name /* and surname */ string",
    ],
)
def test_what_a_schema_is_copied_from_passes(spark: Any, ddl: str) -> None:
    """Spark itself writes `df.schema.simpleString()` as one type, and SQL has comments."""
    from pyspark.sql.types import StructType

    assert isinstance(StructType.fromDDL(ddl), StructType)
    assert ddl_problem(ddl) is None


@settings(max_examples=examples(50))
@given(drawn=columns(), data=st.data())
def test_a_type_that_spark_does_not_have_is_named(drawn: list[str], data: Any) -> None:
    """In any column, and inside other types."""
    at = data.draw(st.integers(0, len(drawn) - 1))
    whole = f"wrong {data.draw(st.sampled_from(['{}', 'array<{}>', 'map<int, {}>', 'struct<x: int, y: {}>']))}"
    ddl = ", ".join([*drawn[:at], whole.format("nosuchtype"), *drawn[at:]])
    problem = ddl_problem(ddl)
    assert problem is not None
    assert re.search("column '(wrong|y)' has the type 'nosuchtype', which Spark does not have", problem), problem


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("a", "column 'a' has no type"),
        ("a int, b", "column 'b' has no type"),
        ("a struct<x>", "column 'x' has no type"),
        ("a int,", None),
        ("a array", None),
        ("", None),
    ],
)
def test_a_column_without_a_type_is_named_and_the_rest_is_left_to_spark(ddl: str, problem: str | None) -> None:
    """Only what is wrong for sure is refused."""
    assert ddl_problem(ddl) == problem
