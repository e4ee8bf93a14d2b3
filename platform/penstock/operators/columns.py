"""Read columns of tables as one array, integers as numpy, and column types as Spark names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import BadExpression, JobError
from penstock.state.keys import Ints

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["arrow_schema", "column_array", "ddl_schema", "integers"]


def integers(table: pa.Table, name: str) -> Ints:
    """Return a column of int64 without nulls as numpy; no copy where it is one chunk."""
    numbers: Ints = column_array(table, name).to_numpy()
    return numbers


def column_array(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def arrow_schema(types: StructType) -> pa.Schema:
    """Return Spark's types as Arrow's: times in UTC, every column nullable."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(types, timezone="UTC")
    # Every column may hold nulls: an expression after a filter is null for the rows it drops.
    return pa.schema([f.with_nullable(nullable=True) for f in schema])


def ddl_schema(ddl: str, what: str) -> pa.Schema:
    """Return the columns of Spark DDL such as "n long, seen array<string>"; `what` it is, for errors.

    Raises BadExpression for one type, and JobError for two columns that differ in case at most.
    """
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(ddl)
    if not isinstance(parsed, StructType):
        raise BadExpression(f"{what} is {ddl!r}, one type: write names and types, as n long")
    columns = arrow_schema(parsed)
    names = [name.lower() for name in columns.names]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise JobError(f"{what} has two columns {twice!r}")
    return columns
