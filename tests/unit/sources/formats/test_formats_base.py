"""Rows of the records that could be decoded stand at the places of these records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.sources.formats.base import columns_of, placed
from penstock.sources.formats.text import Text


@given(st.lists(st.sampled_from(["row", "misfit", "error"])))
def test_rows_and_errors_stand_where_their_records_stood(kinds: list[str]) -> None:
    """A row that does not fit has its reason; a record that was not decoded its own."""
    known = [(i, kind) for i, kind in enumerate(kinds) if kind != "error"]
    rows = pa.table({"n": pa.array([i if kind == "row" else None for i, kind in known], pa.int64())})
    misfits = pa.array(["misfit" if kind == "misfit" else None for _, kind in known], pa.string())
    made = placed(rows, misfits, ["error" if kind == "error" else None for kind in kinds])
    assert made.rows["n"].to_pylist() == [i if kind == "row" else None for i, kind in enumerate(kinds)]
    errors = [None if kind == "row" else kind for kind in kinds]
    assert (made.errors.to_pylist() if made.errors is not None else None) == (errors if any(errors) else None)


def test_a_format_that_asks_nobody_is_itself_when_opened() -> None:
    """`opened` is for those that ask a server."""
    form = Text()
    assert form.opened(["t"]) is form


@pytest.mark.spark
def test_ddl_is_what_spark_takes_for_it(spark: Any) -> None:
    """A name that is there twice would be two columns of one name."""
    assert columns_of("a int, b string NOT NULL").field("b").nullable is False
    for ddl, word in (("a lnog", "no DDL"), ("a int, a int", "names a column twice")):
        with pytest.raises(ConfigError, match=word):
            columns_of(ddl)
