"""Rows become the bytes of a file, and come back."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SinkSchemaMismatch, SinkValueRefused
from penstock.sinks.files.formats import JsonLinesFormat, ParquetFormat

ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(st.characters(exclude_categories=["Cs"]))
    ),
    min_size=1,
)
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def table(rows: list[tuple[int | None, str | None]]) -> pa.Table:
    """Return rows as a table."""
    return pa.table([[k for k, _ in rows], [s for _, s in rows]], schema=SCHEMA)


@given(ROWS)
def test_parquet_comes_back(rows: list[tuple[int | None, str | None]]) -> None:
    """The round trip as a law."""
    assert pq.read_table(io.BytesIO(ParquetFormat().encode(table(rows)))).equals(table(rows))


@given(ROWS, st.integers(0, 3))
def test_a_line_of_json_for_each_row(rows: list[tuple[int | None, str | None]], start: int) -> None:
    """The round trip as a law, also of a part of a table; a line feed in a text is no end of a line."""
    part = table(rows).slice(start)
    text = bytes(JsonLinesFormat().encode(part)).decode()
    assert text.count("\n") == part.num_rows
    assert [json.loads(line) for line in text.split("\n")[:-1]] == part.to_pylist()


def test_what_json_cannot_hold_is_refused() -> None:
    """Types before the first batch, values before the Commit (SEMANTICS 9.6)."""
    JsonLinesFormat().check(SCHEMA)
    with pytest.raises(SinkSchemaMismatch):
        JsonLinesFormat().check(pa.schema([("k", pa.duration("us"))]))
    with pytest.raises(SinkValueRefused):
        JsonLinesFormat().encode(pa.table({"k": [float("nan")]}))
