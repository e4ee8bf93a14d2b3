"""A function of the user's makes rows of records, and is named where it is wrong (F48, SEMANTICS 9.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, DecoderFailed
from penstock.sources.formats.arrow_function import ArrowFunction

SCHEMA = pa.schema([("n", pa.int32()), ("text", pa.string())])


def lengths(records: pa.Table) -> pa.Table:
    """Return of each record its length and its text, and an error for one that has no value or is empty."""
    n = pc.binary_length(records["value"])
    error = pc.if_else(pc.fill_null(pc.greater(n, 0), False), None, "no letters")  # noqa: FBT003 - a value of Arrow
    return pa.table({"text": records["value"].cast(pa.string(), safe=False), "_error": error, "n": n.cast(pa.int64())})


def decoded(fn: Callable[[pa.Table], Any], *values: bytes | None, schema: pa.Schema = SCHEMA) -> Any:
    return ArrowFunction(fn, output="").decode(values, schema)


@given(st.lists(st.none() | st.text(max_size=4).map(str.encode)))
def test_a_function_makes_rows_and_marks_bad_records(records: list[bytes | None]) -> None:
    """Columns come in the order and in the types of the output; a bad record is a row of nulls."""
    made = decoded(lengths, *records)
    assert made.rows.schema == SCHEMA
    good = [{"n": len(record), "text": record.decode()} if record else {"n": None, "text": None} for record in records]
    assert made.rows.to_pylist() == good
    errors = [None if record else "no letters" for record in records]
    assert (made.errors.to_pylist() if made.errors is not None else None) == (errors if any(errors) else None)


def raising(records: pa.Table) -> pa.Table:
    """Raise for a record that it does not expect."""
    return pa.table({"n": [int(value.as_py()) for value in records["value"]], "text": pa.nulls(len(records))})


WRONG: dict[str, tuple[Callable[[pa.Table], Any], str]] = {
    "raises": (raising, "ValueError: invalid literal for int"),
    "no table": (lambda records: records["value"], "returns a pa.Table, and returned ChunkedArray"),
    "fewer rows": (lambda records: lengths(records).slice(1), "a row for each record, and returned 1 for 2"),
    "another column": (lambda records: lengths(records).append_column("more", records["value"]), "'more'"),
    "a column twice": (lambda records: lengths(records).append_column("n", records["value"]), "'n', 'n'"),
    "a column less": (lambda records: lengths(records).drop_columns("n"), "the columns ['n', 'text'], and returned"),
    "another type": (lambda _: pa.table({"n": ["1", "2"], "text": ["a", "b"]}), "'n' is int32, and the function"),
    "too large": (lambda _: pa.table({"n": [1, 2**31], "text": ["a", "b"]}), "2147483648 does not fit int"),
}  # fmt: skip


@pytest.mark.fault("F48")
@pytest.mark.parametrize(("fn", "words"), WRONG.values(), ids=list(WRONG))
def test_a_function_that_is_wrong_is_named_at_its_line(fn: Any, words: str) -> None:
    """Nothing is quarantined for it: no record is at fault."""
    with pytest.raises(DecoderFailed) as failed:
        decoded(fn, b"x", b"y")
    assert words in failed.value.what
    assert failed.value.where is not None
    line = fn.__code__.co_firstlineno + (2 if fn is raising else 0)
    assert failed.value.where == f"{__file__}:{line}"


def test_a_callable_object_and_a_partial_are_functions() -> None:
    """And are named by what they call."""

    class Doubling:
        def __call__(self, records: pa.Table) -> pa.Table:
            raise RuntimeError("no")

    line = Doubling.__call__.__code__.co_firstlineno + 1
    for fn in (Doubling(), partial(Doubling())):
        with pytest.raises(DecoderFailed, match="no") as failed:
            decoded(fn, b"x")
        assert failed.value.where == f"{__file__}:{line}"
    with pytest.raises(ConfigError, match="'text' is no function"):
        ArrowFunction("text", output="n int")  # type: ignore[arg-type]


def test_a_null_in_a_column_that_allows_none_is_wrong_unless_the_record_is_bad() -> None:
    """The function says which records are bad."""
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False), pa.field("text", pa.string())])
    assert decoded(lengths, b"a", None, schema=schema).rows["n"].to_pylist() == [1, None]
    with pytest.raises(DecoderFailed, match="'n' is null"):
        decoded(lambda records: lengths(records).drop_columns("_error"), b"a", None, schema=schema)


def test_no_error_at_all_is_a_column_of_nulls() -> None:
    """Whatever type it has."""
    made = decoded(lambda _: pa.table({"n": [1], "text": ["a"], "_error": pa.nulls(1)}), b"x")
    assert (made.rows.to_pylist(), made.errors) == ([{"n": 1, "text": "a"}], None)


@pytest.mark.spark
def test_columns_are_those_of_the_output(spark: Any) -> None:
    """The column that marks bad records is none of them."""
    assert ArrowFunction(lengths, output="n int, text string").columns() == SCHEMA
    with pytest.raises(ConfigError, match="'_error'"):
        ArrowFunction(lengths, output="_error string").columns()
