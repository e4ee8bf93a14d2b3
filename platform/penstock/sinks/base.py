"""State what every sink promises (DESIGN 4, SEMANTICS 9.4)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checkpoint.files import sync_folder
from penstock.checkpoint.local import make_durable, make_folders, storage_errors
from penstock.checkpoint.mirror import mirrored
from penstock.checkpoint.places import have_file
from penstock.time.arrival import ARRIVAL, arrival_order

__all__ = ["Publication", "Publisher", "Sink", "Staged", "place_of", "stage_table"]


_durable: set[Path] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Name one file of rows that a task wrote for a sink; `path` is relative to the sink's staging folder."""

    path: str
    size: int
    rows: int
    checksum: str
    fails: tuple[str, ...] = ()
    """The names of the row rules that every row in the file fails."""
    unit: int | None = None
    """The end of the window whose rows these are, microseconds, where a check judges windows one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Hold what a publisher is asked to make visible: the files that Commit `batch` names, under one app id."""

    app: str
    batch: int
    files: Sequence[Staged]
    schema: pa.Schema = field(repr=False)


class Publisher(Protocol):
    """Make the files of a Commit visible on the driver."""

    idempotent: bool
    """Whether a batch that is published twice is visible once."""

    def publish(self, publication: Publication) -> None:
        """Make the files visible; with `idempotent`, a batch that is visible already is left as it is.

        Raises SinkAhead when a later batch of this app is visible and this one is not.
        """

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that is visible, None where there is none or it cannot be told."""


class Sink(Protocol):
    """Describe where rows go.

    A sink may have more, and is asked for it by name: `check(schema)` raises SinkSchemaMismatch and writes nothing, so
    that a diff can tell; `ready(spark)` raises where the session lacks what publishing will need; `place()` says where
    its rows go, the same for as long as it is the same table; `find_version` and `put_back`, as in
    `sinks.delta_history`, take back what was published; with `in_order = True` its files tell where each row stands,
    and `read_staged` returns rows in order of arrival. A publisher may have `refuse_values(files)`, which raises
    SinkValueRefused for rows that are not committed yet and that it would not take.
    """

    def staging(self, folder: Path) -> Path:
        """Return where the tasks put this sink's files; `folder` is its own below the checkpoint."""

    def prepare(self, schema: pa.Schema, spark: Any) -> None:
        """Check that the rows fit before anything is written. Raises SinkSchemaMismatch."""

    def open(self, staging: Path, spark: Any) -> Publisher:
        """Return the publisher of a run."""

    def describe(self) -> str:
        """Return one line for `penstock explain`."""


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
    """Make a folder, durably; one that is there too, once a process: whoever made it may have died before that."""
    if folder in _durable and folder.is_dir():
        return
    make_folders(folder)
    for made in (folder, *folder.parents[:2]):
        make_durable(made)
    _durable.add(folder)


def read_staged(folder: Path, files: Sequence[Any]) -> pa.Table:
    """Return the rows of staged files, for sinks that read them on the driver; in order of arrival where that is told.

    `files` must not be empty; each has a `path`.
    """
    rows = pa.concat_tables(pq.read_table(have_file(folder / file.path)) for file in files)
    if ARRIVAL not in rows.column_names:
        return rows
    return rows.take(arrival_order(rows[ARRIVAL])).drop_columns([ARRIVAL])


def place_of(sink: Any) -> str | None:
    """Return where the rows of a sink go, None where it does not say."""
    place: str | None = getattr(sink, "place", lambda: None)()
    return place
