"""Say by which columns rows replace others, for each sink that can."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError, SinkSchemaMismatch, SinkValueRefused
from penstock.graph.policies import Pane
from penstock.graph.windows import PANE

__all__ = [
    "Mode",
    "checked_keys",
    "how_written",
    "refuse_missing_keys",
    "refuse_null_keys",
    "which_retracted",
    "without_retracted",
]


class Mode(Enum):
    """What becomes of a row whose key the table has already."""

    APPEND = "append"
    UPSERT = "upsert"


def checked_keys(mode: Mode, keys: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the keys; raises ConfigError where they and the mode do not go together."""
    if (mode is Mode.UPSERT) != bool(keys):
        raise ConfigError("keys=[...] goes with mode=Mode.UPSERT, and each needs the other", where=where)
    if len(set(keys)) < len(keys):
        raise ConfigError(f"keys names a column twice: {list(keys)}", where=where)
    return tuple(keys)


def how_written(keys: Sequence[str]) -> str:
    """Return in words, for `penstock explain`, what becomes of rows."""
    return f"upsert by {', '.join(keys)}" if keys else "append"


def refuse_missing_keys(keys: Sequence[str], schema: pa.Schema, where: str) -> None:
    """Raise SinkSchemaMismatch where the stream lacks a column of the key."""
    for key in keys:
        if key not in schema.names:
            raise SinkSchemaMismatch(f"keys names {key!r}, and the stream has {schema.names}", where=where)


def refuse_null_keys(keys: Sequence[str], rows: pa.Table, where: str) -> None:
    """Raise SinkValueRefused for a row without a key: nothing would ever replace it."""
    for key in keys:
        if rows[key].null_count:
            raise SinkValueRefused(f"key {key!r} is null", where=where)


def without_retracted(rows: pa.Table) -> pa.Table:
    """Return the rows that windows emit, without those that take one back: they only delete the row of their keys."""
    retracted = which_retracted(rows)
    return rows if retracted is None else rows.filter(pc.invert(retracted))


def which_retracted(rows: pa.Table) -> pa.ChunkedArray | None:
    """Return which rows take one back, None for rows of no window that is emitted more than once."""
    if PANE not in rows.column_names or not pa.types.is_string(rows.schema.field(PANE).type):
        return None
    return pc.fill_null(pc.equal(rows[PANE], Pane.RETRACTED.value), fill_value=False)
