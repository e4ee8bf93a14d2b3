"""Write the files that a batch stages for a sink, and read them back: durable, and checked against their Commit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import StateMissing
from penstock.time.arrival import ARRIVAL, arrival_order

if TYPE_CHECKING:  # workers stage files and import no models of the log
    from penstock.checkpoint.log.entries import StagedFile

__all__ = ["read_staged", "stage_table", "verify_staged"]


def stage_table(table: pa.Table, folder: CheckpointFolder, name: str) -> dict[str, Any]:
    """Write rows to `folder/name`, durable on return, and return the file's facts.

    The folder is made if need be.
    Raises StorageFull, StorageDenied, RootUnsafe or StorageUnavailable; no partial file keeps the name, and a file that
    has it is left.
    """
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="snappy")
    data = buffer.getvalue()
    (folder / name).stage(memoryview(data))
    return {"path": name, "size": data.size, "rows": table.num_rows, "checksum": hashlib.sha256(data).hexdigest()}


def read_staged(folder: CheckpointFolder, files: Sequence[Any]) -> pa.Table:
    """Return the rows of staged files on the driver, in order of arrival where the files have a column for it.

    `files` must not be empty; each has a `path`.
    """
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
