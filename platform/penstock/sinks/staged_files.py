"""Write the files that a batch stages for a sink, and read them back: durable, and checked against their Commit."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import SinkRefused, StateMissing
from penstock.time.arrival import ARRIVAL, arrival_order

if TYPE_CHECKING:  # workers stage files and import no models of the log
    from penstock.checkpoint.log.entries import StagedFile

COLUMNS = "columns"
"""In `StagedFile.stats`: the columns of the rows as an IPC schema by Base64, where the file does not have them all."""

__all__ = ["encoded", "facts_of", "read_staged", "schema_of", "stage_bytes", "stage_table", "verify_staged"]


def stage_table(table: pa.Table, folder: CheckpointFolder, name: str) -> dict[str, Any]:
    """Write rows to `folder/name`, durable on return, and return the file's facts.

    The folder is made if need be.
    Raises StorageFull, StorageDenied, RootUnsafe or StorageUnavailable; no partial file keeps the name, and a file that
    has it is left.
    """
    return stage_bytes(encoded(table), folder, name, rows=table.num_rows)


def stage_bytes(data: memoryview, folder: CheckpointFolder, name: str, *, rows: int) -> dict[str, Any]:
    """Write a file of so many rows, as `stage_table` does."""
    (folder / name).stage(data)
    return facts_of(data, name, rows=rows)


def encoded(table: pa.Table) -> memoryview:
    """Return the file of a table."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="snappy")
    return memoryview(buffer.getvalue())


def facts_of(data: memoryview, name: str, *, rows: int) -> dict[str, Any]:
    """Return the facts of a staged file that has these bytes and so many rows."""
    return {"path": name, "size": len(data), "rows": rows, "checksum": hashlib.sha256(data).hexdigest()}


def schema_of(folder: CheckpointFolder, file: StagedFile) -> pa.Schema:
    """Return the columns of the rows of a staged file, those that name its folder included, and no order of arrival."""
    if COLUMNS in file.stats:
        return pa.ipc.read_schema(pa.py_buffer(b64decode(str(file.stats[COLUMNS]))))
    schema = pq.read_schema((folder / file.path).fetch())
    return pa.schema([field for field in schema if field.name != ARRIVAL])


def read_staged(folder: CheckpointFolder, files: Sequence[Any]) -> pa.Table:
    """Return the rows of staged files on the driver, in order of arrival where the files have a column for it.

    `files` must not be empty; each has a `path`. Raises SinkRefused for one that a task has written for another sink.
    """
    if any(getattr(file, "written", None) is not None for file in files):  # entries of a log have no such field
        raise SinkRefused("the batch has files that were written for a folder, and this sink takes rows")
    rows = pa.concat_tables(pq.read_table((folder / file.path).fetch()) for file in files)
    if ARRIVAL not in rows.column_names:
        return rows
    return rows.take(arrival_order(rows[ARRIVAL])).drop_columns([ARRIVAL])


def verify_staged(folder: CheckpointFolder, files: Iterable[StagedFile]) -> None:
    """Read files that a Commit names, before they are published; raises CheckpointCorrupt for what is not as it was."""
    for file in files:
        path = folder / file.path

        def check(data: bytes, path: CheckpointFolder = path, file: StagedFile = file) -> None:
            if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.checksum:
                raise corrupt(str(path), "the staged file is not what the Commit names")

        try:
            path.read_checked(check)
        except StateMissing:
            raise corrupt(str(path), "the staged file is gone") from None
