"""Rows that a requeue sends through again: written by the driver, read by tasks after the rows of the source.

The file has a row for each. `_raw` is its text, and `_columns` says whether that is JSON of the row's columns or the
source's own text. `_reason`, `_partition`, `_position` and `_name` (of the partition) are those of the quarantine.
`_first` is the batch that quarantined the row first, and `_times` how often it was sent, this time included.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.locate import folder_at
from penstock.errors import CheckpointCorrupt, ConfigError
from penstock.sources.base import PARTIAL, POSITION, TaskReader, with_hidden
from penstock.sources.formats.json import Json

__all__ = ["COLUMNS", "REQUEUED", "decoded", "encoded", "originals", "parsed_reason"]

REQUEUED = 2**31 - 1
"""The source partition of rows that are sent again: it sorts after those of the source, and is none of them."""
COLUMNS = pa.schema(
    [
        ("_raw", pa.string()),
        ("_columns", pa.bool_()),
        ("_reason", pa.string()),
        ("_partition", pa.int32()),
        ("_position", pa.int64()),
        ("_name", pa.string()),
        ("_first", pa.int64()),
        ("_times", pa.int64()),
    ]
)
_HISTORY = re.compile(r"(.*) \(requeued (\d+) times?, first quarantined in batch (\d+)\)", re.DOTALL)


def parsed_reason(reason: str, batch: int) -> tuple[str, int, int]:
    """Return the reason of a row in quarantine, how often it was sent again, and the batch that had it there first."""
    sent = _HISTORY.fullmatch(reason)
    return (reason, 0, batch) if sent is None else (sent[1], int(sent[2]), int(sent[3]))


def encoded(rows: pa.Table) -> tuple[bytes, int]:
    """Return the file of rows, and its checksum."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, COLUMNS) as writer:
        writer.write_table(rows.select(COLUMNS.names).cast(COLUMNS))
    data = sink.getvalue().to_pybytes()
    return data, zlib.crc32(data)


@lru_cache(maxsize=1)
def _rows(file: str, checksum: int) -> pa.Table:
    data = folder_at(file).fetch().read_bytes()
    if zlib.crc32(data) != checksum:
        raise CheckpointCorrupt("the rows of a requeue are not those that its Offsets name", where=file)
    return pa.ipc.open_stream(data).read_all().combine_chunks()


def decoded(sent: Mapping[str, Any], reader: TaskReader, schema: pa.Schema) -> pa.Table:
    """Return the rows of a requeue as the source would: the columns of `schema`, then the hidden ones.

    A text that still makes no row is one with the error, as from the source.
    """
    rows = _rows(sent["file"], sent["checksum"])
    texts, reasons = rows["_raw"].to_pylist(), rows["_reason"].to_pylist()
    known = rows["_columns"].to_numpy(zero_copy_only=False)
    # Of a record whose text is not all of it, nobody can make a row.
    empty = np.array([t is None or r.endswith(PARTIAL) for t, r in zip(texts, reasons, strict=True)])
    places, parts = [], []
    errors: list[str | None] = [None] * len(texts)
    for at in (np.flatnonzero(known & ~empty), np.flatnonzero(~known & ~empty), np.flatnonzero(empty)):
        if not len(at):
            continue
        mine = [texts[i] for i in at]
        made = None  # a record that has no text is what it was
        if not empty[at[0]]:
            made = _of_columns(mine, schema) if known[at[0]] else reader.decoded(mine, schema)
        table, wrong = made or (_nulls(schema, len(at)), [reasons[i] for i in at])
        places.append(at)
        parts.append(table.select(schema.names).cast(schema))
        for i, error in zip(at, wrong, strict=True):
            # JSON of columns that does not fit stays JSON of columns: it keeps the reason that says so.
            # The error of before keeps it as well: the reason may name the file and the line.
            stays = error is not None and (known[i] or reasons[i].endswith(error))
            errors[i] = reasons[i] if stays else error
    order = np.argsort(np.concatenate(places), kind="stable")
    table = pa.concat_tables(parts).take(pa.array(order))
    # A null index gives a null row: a row with an error has no values.
    table = table.take(pa.array([i if error is None else None for i, error in enumerate(errors)], pa.int64()))
    raw = [text if error is not None else None for text, error in zip(texts, errors, strict=True)]
    positions = pa.array(range(len(texts)), pa.int64())
    return with_hidden(table, REQUEUED, positions, pa.array(errors, pa.string()), pa.array(raw, pa.string()))


def originals(sent: Mapping[str, Any], rows: pa.Table, reasons: pa.Array) -> dict[str, pa.Array]:
    """Return partition, position, name and reason of rows that are quarantined again, with how often they were sent."""
    of = _rows(sent["file"], sent["checksum"]).take(rows[POSITION].combine_chunks())
    said = [
        f"{reason} (requeued {times} time{'' if times == 1 else 's'}, first quarantined in batch {first})"
        for reason, times, first in zip(
            reasons.to_pylist(), of["_times"].to_pylist(), of["_first"].to_pylist(), strict=True
        )
    ]
    columns = {name: of[name].combine_chunks() for name in ("_partition", "_position", "_name")}
    return {**columns, "_reason": pa.array(said, pa.string())}


def _of_columns(texts: list[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]] | None:
    try:
        made = Json("").decode([text.encode() for text in texts], schema)
    except (ConfigError, ValueError):  # types that JSON cannot hold
        return None
    return made.rows, [None] * len(texts) if made.errors is None else made.errors.to_pylist()


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)
