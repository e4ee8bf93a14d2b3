"""Lay out the rows of a segment: their columns, their order, and bounds between them.

Every table has `_group` (int64; 0 where a step has no groups) and `_hash` (int64), then any columns.
`_expires` (int64, may be null) and `_deleted` (bool, a tombstone) mean the same wherever they stand.
Rows are sorted by (`_group`, `_hash`), and so is everything that is said about ranges of rows.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.state.keys import Bools, Ints

__all__ = [
    "DELETED",
    "EXPIRES",
    "GROUP",
    "HASH",
    "Bound",
    "bucket_starts",
    "conform",
    "group_hash",
    "position",
    "sort_rows",
    "start_of_group",
]

GROUP, HASH, EXPIRES, DELETED = "_group", "_hash", "_expires", "_deleted"
_LEAST = -(2**63)

Bound: TypeAlias = tuple[int, int]
"""A group and a hash: the place in the order just before all rows of that group and hash."""


def start_of_group(group: int) -> Bound:
    """Return the bound before all rows of a group."""
    return (group, _LEAST)


def group_hash(rows: pa.Table | pa.RecordBatch) -> tuple[Ints, Ints]:
    """Return the columns `_group` and `_hash` as numpy arrays, without a copy where the table has one chunk.

    Raises TypeError where one is missing, not int64, or has nulls.
    """
    return _integers(rows, GROUP), _integers(rows, HASH)


def sort_rows(table: pa.Table) -> pa.Table:
    """Return the table in one chunk, sorted by (`_group`, `_hash`); rows of equal group and hash keep their order.

    Dictionary columns are decoded and metadata of the schema is left out.
    A table that is sorted already is not copied.
    Raises TypeError for columns that a segment cannot hold.
    """
    table = _plain(table)
    groups, hashes = group_hash(table)
    if len(groups) < 2 or _is_sorted(groups, hashes):  # noqa: PLR2004 - two rows make an order
        return table
    order = np.argsort(hashes, kind="stable") if _all_equal(groups) else np.lexsort((hashes, groups))
    return table.take(pa.array(order))


def bucket_starts(groups: Ints, hashes: Ints) -> Bools:
    """Mark in sorted rows those that begin a new group and hash."""
    starts = np.ones(len(groups), dtype=np.bool_)
    starts[1:] = (groups[1:] != groups[:-1]) | (hashes[1:] != hashes[:-1])
    return starts


def position(groups: Ints, hashes: Ints, bound: Bound) -> int:
    """Return how many of these sorted rows stand before a bound."""
    group, value = bound
    first = last = 0
    if len(groups) and groups[0] == groups[-1] == group:
        last = len(groups)
    else:
        first, last = (int(np.searchsorted(groups, group, side)) for side in ("left", "right"))
    return first + int(np.searchsorted(hashes[first:last], value))


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with exactly these columns: reordered, widened, nulls where it has none (schema evolution).

    Raises StateError where a stored column does not fit the wanted type.
    """
    if table.schema.equals(schema):
        return table
    known = set(table.column_names)
    columns = []
    for field in schema:
        if field.name not in known:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                problem = f"state column {field.name!r} is stored as {column.type} and cannot be read as {field.type}"
                raise StateError(problem, column=field.name) from error
        columns.append(column)
    return pa.table(columns, schema=schema)


def _plain(table: pa.Table) -> pa.Table:
    if len(set(table.column_names)) != table.num_columns:
        raise TypeError(f"two columns of a part have the same name: {', '.join(table.column_names)}")
    for name, kind in ((EXPIRES, pa.int64()), (DELETED, pa.bool_())):
        if name in table.column_names and table.schema.field(name).type != kind:
            raise TypeError(f"column {name} must be {kind}, not {table.schema.field(name).type}")
    if DELETED in table.column_names and table.column(DELETED).null_count:
        raise TypeError(f"column {DELETED} has nulls: a row is deleted or it is not")
    if any(pa.types.is_dictionary(field.type) for field in table.schema):
        fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in table.schema]
        table = table.cast(pa.schema(fields))
    return table.replace_schema_metadata(None).combine_chunks()


def _integers(rows: pa.Table | pa.RecordBatch, name: str) -> Ints:
    if name not in rows.schema.names:
        raise TypeError(f"a part needs a column {name}; it has {', '.join(rows.schema.names)}")
    column = rows.column(name)
    if column.type != pa.int64() or column.null_count:
        raise TypeError(f"column {name} must be int64 without nulls, not {column.type}")
    values: Ints = column.to_numpy()
    return values


def _is_sorted(groups: Ints, hashes: Ints) -> bool:
    up, same = groups[1:] > groups[:-1], groups[1:] == groups[:-1]
    return bool(np.all(up | (same & (hashes[1:] >= hashes[:-1]))))


def _all_equal(groups: Ints) -> bool:
    return bool(groups[0] == groups[-1]) and bool(np.all(groups == groups[0]))
