"""Make records of rows: keys, values, partitions, and the size that each will have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RecordTooLarge, SinkSchemaMismatch, SinkValueRefused
from penstock.sinks.encoders import Encoder, json_of, plain_text

__all__ = ["Records", "RowLayout"]

_ROWS_A_PIECE = 65_536
_BYTES_A_PIECE = 64 << 20
OVERHEAD = 128
"""Bytes that a batch of one record has beside its key, value and headers: 61 for the batch, the rest lengths."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of some rows, in their order. Keys and values are binary, partitions int32, and null is for none."""

    keys: pa.Array
    values: pa.Array
    partitions: pa.Array | None

    def __iter__(self) -> Iterator[tuple[bytes | None, bytes | None, int | None]]:
        partitions = [None] * len(self.values) if self.partitions is None else self.partitions.to_pylist()
        return zip(self.keys.to_pylist(), self.values.to_pylist(), partitions, strict=True)

    def refuse_larger(self, most: int, headers: int, where: str) -> None:
        """Raise RecordTooLarge where a record and its headers, of so many bytes, have more than `most` bytes."""
        sizes = pc.add(*(pc.binary_length(part).fill_null(0).cast(pa.int64()) for part in (self.keys, self.values)))
        largest = (pc.max(sizes).as_py() or 0) + headers + OVERHEAD
        if largest > most:
            raise RecordTooLarge(
                f"a row has {largest:,} bytes as a record, and the topic takes {most:,}", where=where, size=largest
            )

    def refuse_partitions(self, count: int, where: str) -> None:
        """Raise SinkValueRefused for a partition that a topic of so many partitions does not have."""
        if self.partitions is None:
            return
        span = pc.min_max(self.partitions).as_py()
        if span["min"] is not None and not 0 <= span["min"] <= span["max"] < count:
            wrong = span["min"] if span["min"] < 0 else span["max"]
            raise SinkValueRefused(f"a row is for partition {wrong}, and the topic has {count}", where=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Which columns make what of a record; as the sink's arguments of these names say."""

    key: str | Sequence[str] | None
    value: Encoder
    partition: str | None
    tombstone: str | None

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkSchemaMismatch for columns that are not there, or cannot be what they are to be."""
        for column in self._key_columns:
            _field(schema, column, "key=")
            _json_can_hold(schema, column)
        if self.partition is not None and not pa.types.is_integer(_field(schema, self.partition, "partition=").type):
            raise SinkSchemaMismatch(f"partition= is column {self.partition!r}, which is no whole number")
        if self.tombstone is not None and not pa.types.is_boolean(_field(schema, self.tombstone, "tombstone=").type):
            raise SinkSchemaMismatch(f"tombstone= is column {self.tombstone!r}, which is no boolean")
        self.value.check(pa.schema([field for field in schema if field.name not in self._apart]))

    def records(self, rows: pa.Table) -> Iterator[Records]:
        """Yield the records of rows in pieces; raises SinkValueRefused."""
        a_row = max(1, rows.nbytes // max(1, rows.num_rows))
        size = max(1, min(_ROWS_A_PIECE, _BYTES_A_PIECE // a_row))
        for start in range(0, rows.num_rows, size):
            yield self._encoded(rows.slice(start, size).combine_chunks())

    def _encoded(self, rows: pa.Table) -> Records:
        values = self.value.encode(rows.drop_columns(list(self._apart))).cast(pa.binary())
        if self.tombstone is not None:
            gone = rows[self.tombstone].combine_chunks().fill_null(fill_value=False)
            values = pc.if_else(gone, pa.scalar(None, pa.binary()), values)
        partitions = None
        if self.partition is not None:
            partitions = _partitions(rows[self.partition].combine_chunks(), self.partition)
        return Records(self._keys(rows), values, partitions)

    def _keys(self, rows: pa.Table) -> pa.Array:
        if self.key is None:
            return pa.nulls(rows.num_rows, pa.binary())
        if isinstance(self.key, str):
            return plain_text(rows[self.key].combine_chunks(), self.key).cast(pa.binary())
        parts = [json_of(rows[column].combine_chunks(), column) for column in self.key]
        joined = pc.binary_join_element_wise(*parts, ",")
        return pc.binary_join_element_wise("[", joined, "]", "").cast(pa.binary())

    @property
    def _key_columns(self) -> Sequence[str]:
        return [] if self.key is None else [self.key] if isinstance(self.key, str) else self.key

    @property
    def _apart(self) -> tuple[str, ...]:
        """Return the columns that are no part of the value."""
        return tuple(column for column in (self.partition, self.tombstone) if column is not None)


def _field(schema: pa.Schema, column: str, argument: str) -> pa.Field:
    if schema.names.count(column) != 1:
        raise SinkSchemaMismatch(f"{argument} names {column!r}, and the stream has {schema.names}")
    return schema.field(column)


def _json_can_hold(schema: pa.Schema, column: str) -> None:
    kind = schema.field(column).type
    json_of(pa.nulls(0, kind), column)  # raises for a type that it does not know


def _partitions(column: pa.Array, name: str) -> pa.Array:
    try:
        return column.cast(pa.int32())
    except pa.ArrowInvalid as why:
        raise SinkValueRefused(f"column {name!r} has a number that no partition has: {why}") from why
