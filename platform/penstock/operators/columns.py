"""Read columns of tables as one array, and integers as numpy."""

from __future__ import annotations

import pyarrow as pa

from penstock.state.keys import Ints

__all__ = ["column_array", "integers"]


def integers(table: pa.Table, name: str) -> Ints:
    """Return a column of int64 without nulls as numpy; no copy where it is one chunk."""
    numbers: Ints = column_array(table, name).to_numpy()
    return numbers


def column_array(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
