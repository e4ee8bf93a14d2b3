"""Read blocks of receivers inside Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import BadRecordFound, BlocksGone, NotFound
from penstock.graph.policies import BadRecord
from penstock.receivers.block_log import BlockLog
from penstock.receivers.blocks import Place, rows_in
from penstock.sources.base import ERROR, RAW, Span, TaskReader, with_hidden
from penstock.sources.json_texts import rows_by_type
from penstock.sources.records import cast_columns

__all__ = ["BlocksInTask", "RowsOfBlock", "StoredRows", "blocks_of", "first_position", "log_name"]

_ROWS_A_BLOCK = 32
"""Bits of the position of a row that are its number in the block; those above are the number of the block."""

Fitted = tuple[pa.Table, pa.Array | None, pa.Array | None]


def first_position(number: int) -> int:
    """Return the position of the first row of the block with a number."""
    return number << _ROWS_A_BLOCK


def log_name(source: str, receiver: str) -> str:
    """Return the name of a receiver's blocks; no name of a source has a "-"."""
    return f"{source}-{receiver}"


def blocks_of(span: Span) -> list[tuple[int, str, Place]]:
    """Return the blocks of a span in order: the index of the receiver among the span's, its name, and the place."""
    return [
        (index, receiver, Place(epoch, number))
        for index, receiver in enumerate(span["receivers"])
        for epoch, first, end in span["blocks"].get(receiver, ())
        for number in range(first, end)
    ]


class RowsOfBlock(Protocol):
    """Make the job's columns of what a block has."""

    def fitted(self, block: pa.Table) -> Fitted:
        """Return the rows, and for each an error and its raw text; None for both where all rows are good."""

    def decoded(self, texts: Sequence[str]) -> tuple[pa.Table, list[str | None]] | None:
        """Return the rows of raw texts, and for each what is wrong with it; by default there is no way."""
        return None


@dataclass(frozen=True)
class StoredRows(RowsOfBlock):
    """Rows that were made to fit the schema when they were stored, which may have been another one."""

    schema: pa.Schema

    def fitted(self, block: pa.Table) -> Fitted:
        """Return the columns by name: one that the block lacks is null, and one that the job lacks is left out."""
        errors, raw = block[ERROR].combine_chunks(), block[RAW].combine_chunks()
        rows = pa.table(
            {
                field.name: block[field.name] if field.name in block.column_names else pa.nulls(len(block), field.type)
                for field in self.schema
            }
        )
        if rows.schema.types != self.schema.types or any(not field.nullable for field in self.schema):
            rows, misfits, texts = cast_columns(rows, self.schema, where="a block")
            if misfits is not None:
                errors, raw = pc.coalesce(errors, misfits), pc.coalesce(raw, texts)
        else:
            rows = rows.cast(self.schema)
        return (rows, None, None) if errors.null_count == len(errors) else (rows, errors, raw)

    def decoded(self, texts: Sequence[str]) -> tuple[pa.Table, list[str | None]] | None:
        """Return the rows of JSON by column, as `store` would take them."""
        return rows_by_type(texts, self.schema)


@dataclass(frozen=True)
class BlocksInTask(TaskReader):
    """Read blocks; a split reads some of them whole.

    `checkpoint` is the folder of the job, None where a source was never part of one.
    """

    checkpoint: CheckpointFolder | None
    source: str
    form: RowsOfBlock
    on_bad_record: BadRecord

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of this split, block by block; raises BlocksGone, CheckpointCorrupt and BadRecordFound."""
        blocks = blocks_of(span)
        own: Sequence[tuple[int, str, Place]] = blocks[
            len(blocks) * split // splits : len(blocks) * (split + 1) // splits
        ]
        if not own:
            return
        assert self.checkpoint is not None
        store = self.checkpoint.store(make=False)
        for index, receiver, place in own:
            log = BlockLog(store, log_name(self.source, receiver))
            path = log.path(place)
            try:
                data = store.read(path)
            except NotFound as why:
                raise BlocksGone("a block that the batch reads is gone", where=path) from why
            block = rows_in(data, receiver=log.receiver, place=place, path=path)
            if not block.num_rows:  # in the place of one that is lost, and without columns
                continue
            rows, errors, raw = self.form.fitted(block)
            if errors is not None and self.on_bad_record is BadRecord.FAIL:
                raise BadRecordFound(next(e for e in errors.to_pylist() if e is not None), where=path)
            first = first_position(place.number)
            positions = pa.array(range(first, first + rows.num_rows), pa.int64())
            yield with_hidden(rows, index, positions, errors, raw)

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]] | None:
        """Return what the form makes of texts."""
        return self.form.decoded(texts)
