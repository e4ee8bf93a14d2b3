"""Which column of PostgreSQL holds which type of Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.sinks.postgres.columns import fits, postgres_type


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        (pa.int32(), "integer"), (pa.int32(), "bigint"), (pa.int32(), "numeric(10,0)"), (pa.int64(), "numeric"),
        (pa.float32(), "double precision"), (pa.decimal128(5, 2), "numeric(6,3)"), (pa.decimal128(5, 2), "numeric"),
        (pa.string(), "character varying(3)"), (pa.list_(pa.int64()), "json"), (pa.struct([("a", pa.string())]), "jsonb"),
        (pa.timestamp("us", "UTC"), "timestamp with time zone"), (pa.timestamp("us"), "timestamp without time zone"),
    ],
)  # fmt: skip
def test_a_column_that_loses_nothing_fits(type_: pa.DataType, column: str) -> None:
    """The same type, or a wider one."""
    assert fits(type_, column)


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        (pa.int64(), "integer"), (pa.int64(), "numeric(18,0)"), (pa.int64(), "double precision"), (pa.float64(), "real"),
        (pa.float64(), "numeric"), (pa.decimal128(5, 2), "numeric(5,3)"), (pa.decimal128(5, 2), "numeric(5,1)"),
        (pa.string(), "character(3)"), (pa.string(), "bytea"), (pa.timestamp("us"), "timestamp with time zone"),
        (pa.list_(pa.int64()), "bigint[]"), (pa.int64(), "text"), (pa.bool_(), "smallint"),
    ],
)  # fmt: skip
def test_a_column_that_could_lose_something_does_not_fit(type_: pa.DataType, column: str) -> None:
    """A double in a numeric would lose digits, and could be NaN."""
    assert not fits(type_, column)


@pytest.mark.parametrize(
    "type_",
    [pa.timestamp("ns"), pa.uint64(), pa.time64("us"), pa.map_(pa.int64(), pa.string()), pa.list_(pa.time32("s"))],
)
def test_some_types_have_no_column(type_: pa.DataType) -> None:
    """Nanoseconds and unsigned integers are not PostgreSQL's; keys of JSON are texts."""
    assert postgres_type(type_) is None
