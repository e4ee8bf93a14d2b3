"""Write the files that a batch stages for a sink, and read them back: durable, and checked against their Commit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checkpoint.storage.durable_files import read_file, sync_folder
from penstock.checkpoint.storage.filesystem import have_file
from penstock.checkpoint.storage.hdfs_cache import mirrored, shown
from penstock.checkpoint.storage.local import make_durable, make_folders, storage_errors
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import StateMissing
from penstock.time.arrival import ARRIVAL, arrival_order

if TYPE_CHECKING:  # workers stage files and import no models of the log
    from penstock.checkpoint.log.entries import StagedFile

__all__ = ["read_staged", "stage_table", "verify_staged"]

_durable: set[Path] = set()


def stage_table(table: pa.Table, folder: Path, name: str) -> dict[str, Any]:
    """Write rows to `folder/name`, durable on return, and return the file's facts.

    The folder is made if need be.
    Raises StorageFull, StorageDenied, RootUnsafe or StorageUnavailable; no partial file keeps the name, and a file that
    has it is left.
    """
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="snappy")
    data = buffer.getvalue()
    path = folder / name
    remote = mirrored(path)
    if remote is not None:
        remote.create(memoryview(data))
    else:
        _write(path, data)
    return {"path": name, "size": data.size, "rows": table.num_rows, "checksum": hashlib.sha256(data).hexdigest()}


def _write(path: Path, data: pa.Buffer) -> None:
    with storage_errors(str(path)):
        _make_folder(path.parent)
        file = path.open("xb")
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def _make_folder(folder: Path) -> None:
    """Make a folder durable, once a process, even where it exists: its maker may have died before the fsync."""
    if folder in _durable and folder.is_dir():
        return
    make_folders(folder)
    for made in (folder, *folder.parents[:2]):
        make_durable(made)
    _durable.add(folder)


def read_staged(folder: Path, files: Sequence[Any]) -> pa.Table:
    """Return the rows of staged files on the driver, in order of arrival where the files have a column for it.

    `files` must not be empty; each has a `path`.
    """
    rows = pa.concat_tables(pq.read_table(have_file(folder / file.path)) for file in files)
    if ARRIVAL not in rows.column_names:
        return rows
    return rows.take(arrival_order(rows[ARRIVAL])).drop_columns([ARRIVAL])


def verify_staged(folder: Path, files: Iterable[StagedFile]) -> None:
    """Read files that a Commit names, before they are published; raises CheckpointCorrupt for what is not as it was."""
    for file in files:
        path = folder / file.path

        def check(data: bytes, path: Path = path, file: StagedFile = file) -> None:
            if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.checksum:
                raise corrupt(shown(path), "the staged file is not what the Commit names")

        try:
            read_file(path, check)
        except StateMissing:
            raise corrupt(shown(path), "the staged file is gone") from None
