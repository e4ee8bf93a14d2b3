"""Give the columns of a Delta table their Arrow types, and the texts of partition values in its log their values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError, TableUnreadable
from penstock.sources.delta.actions import Table

__all__ = ["FEED", "column_types", "columns_of_table", "partition_value", "schema_of"]

FEED = pa.schema(
    [
        ("_change_type", pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""What a row of a change data feed has beside the columns of the table."""
_MICRO = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns_of_table(table: Table, where: str) -> pa.Schema:
    """Return all columns of a table; raises TableUnreadable for a type that Arrow does not have."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        return to_arrow_schema(StructType.fromJson(json.loads(table.columns)), timezone="UTC")
    except (PySparkException, KeyError, ValueError) as why:
        raise TableUnreadable(f"the table has a column that cannot be read: {why}", where=where) from why


def schema_of(columns: pa.Schema, wanted: Sequence[str] | None, *, changes: bool, where: str) -> pa.Schema:
    """Return the columns that a stream has: all, or those that are wanted, and those of the change data feed.

    Raises ConfigError for a column that the table lacks, or that has the name of one of the feed.
    """
    for name in wanted or ():
        if name not in columns.names:
            raise ConfigError(f"columns= has {name!r}, and the table has {', '.join(columns.names)}", where=where)
    fields = [pa.field(name, columns.field(name).type) for name in wanted or columns.names]
    if not changes:
        return pa.schema(fields)
    taken = [field.name for field in fields if field.name in FEED.names]
    if taken:
        raise ConfigError(f"the table has a column {taken[0]!r} as well as the change data feed", where=where)
    return pa.schema([*fields, *FEED])


def column_types(schema: pa.Schema) -> dict[str, str]:
    """Return the types of columns as Spark writes them, for positions and for people."""
    from pyspark.sql.pandas.types import from_arrow_type

    return {field.name: str(from_arrow_type(field.type).simpleString()) for field in schema}


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value that a text stands for in the log ("Partition Value Serialization"); an empty text is null.

    A time without a zone is UTC. Raises ValueError for a text that is no such value.
    """
    return pa.scalar(None if text in (None, "") else _value(str(text), kind), kind)


def _value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text.lower()]
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        at = datetime.fromisoformat(text)
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC) - _EPOCH) // _MICRO
    return text.encode() if pa.types.is_binary(kind) else text
