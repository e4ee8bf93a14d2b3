"""Tell into which Delta tables rows can be merged: those whose files a writer of plain Parquet may replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SinkSchemaMismatch, SinkValueRefused, UpsertImpossible
from penstock.sinks.keys import refuse_missing_keys

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["refuse_lost_keys", "refuse_unfit_columns", "refuse_unmergeable", "why_not_rewritable"]

_PROTOCOLS = {(1, 1), (1, 2), (1, 3), (1, 7), (3, 7)}
"""Readers and writers: those that ask for nothing but invariants and CHECK, and those of named features."""
_ALLOWED = {"appendOnly", "checkConstraints", "invariants", "timestampNtz", "variantType"}
"""Features that ask for nothing more. delta-rs adds variantType with any setting; a column of it fits no stream."""
_SETTINGS = {
    "delta.enableChangeDataFeed": "a change data feed",
    "delta.columnMapping.mode": "column mapping",
    "delta.enableRowTracking": "row tracking",
    "delta.enableDeletionVectors": "deletion vectors",
}
_COMPUTED = {"delta.generationExpression", "delta.identity.start", "delta.identity.step"}


def why_not_rewritable(table: DeltaTable) -> str | None:
    """Return what a table asks of who replaces its files, beyond new files and an entry; None where it is nothing.

    NOT NULL and CHECK ask nothing more: rows are compared with them before their batch is committed, and rows that
    the table has were compared before.
    """
    protocol, settings = table.protocol(), table.metadata().configuration
    for name, meaning in _SETTINGS.items():
        if str(settings.get(name, "false")).lower() not in {"false", "none"}:
            return f"{meaning} ({name})"
    if any(_COMPUTED & set(field.metadata) for field in table.schema().fields):
        return "columns that its writers compute"
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _ALLOWED
    if features:
        return f"the features {', '.join(sorted(features))}"
    if (protocol.min_reader_version, protocol.min_writer_version) not in _PROTOCOLS:
        return f"protocol {protocol.min_reader_version}, {protocol.min_writer_version}"
    return None


def refuse_unmergeable(table: DeltaTable, keys: Sequence[str], where: str) -> None:
    """Raise UpsertImpossible for a table whose files may not be replaced."""
    if str(table.metadata().configuration.get("delta.appendOnly", "false")).lower() == "true":
        raise UpsertImpossible("the table only takes appends (delta.appendOnly)", where=where)
    why = why_not_rewritable(table)
    if why is not None:
        raise UpsertImpossible(f"the table has {why}, and an upsert by {list(keys)} rewrites its files", where=where)


def refuse_unfit_columns(schema: pa.Schema, keys: Sequence[str], partition_by: Sequence[str], where: str) -> None:
    """Raise SinkSchemaMismatch for keys that cannot be compared, and for partitions that the log has no text for."""
    refuse_missing_keys(keys, schema, where)
    for key in keys:
        kind = schema.field(key).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
            raise SinkSchemaMismatch(f"key {key!r} is {kind}, and keys are compared exactly", where=where)
    for name in partition_by:
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
            raise SinkSchemaMismatch(
                f"partition_by names {name!r}, which is {kind}; an upsert takes whole numbers, decimals, texts, "
                "booleans, dates and timestamps",
                where=where,
            )


def refuse_lost_keys(rows: pa.Table, keys: Sequence[str], partition_by: Sequence[str], where: str) -> None:
    """Raise SinkValueRefused for a key that a table reads back as null: an empty text that rows are partitioned by."""
    for name in partition_by:
        column = rows[name]
        if name in keys and pa.types.is_string(column.type) and pc.any(pc.equal(column, "")).as_py():
            raise SinkValueRefused(
                f"key {name!r} is an empty text, which a Delta table that is partitioned by it reads as null",
                where=where,
            )
