"""Keep the rows of a replayed file in their order of replay, in pieces with a checksum each, for tasks to map.

A copy is one file: the pieces, each an Arrow IPC stream of its own, then an index in JSON, then how long the index is,
its checksum, and MAGIC. A task reads the pieces that its rows lie in, and no others.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import stat
import struct
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.checkpoint.storage.local import storage_errors
from penstock.errors import RootUnsafe, SortedCopyDamaged

__all__ = ["SortedCopy", "copies_folder", "hold", "sweep", "write_copy"]

MAGIC = b"PENSORT1"
_TRAILER = struct.Struct("<QI8s")
_UNUSED = 3600.0
"""Seconds after which a copy that no process holds is deleted: a driver that restarts finds its own."""


@dataclass(frozen=True)
class SortedCopy:
    """The places of the pieces of a copy: offset, length in bytes, rows and checksum of each."""

    path: Path
    schema: pa.Schema
    pieces: tuple[tuple[int, int, int, int], ...]
    facts: dict[str, Any]

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return sum(rows for _, _, rows, _ in self.pieces)

    @classmethod
    def opened(cls, path: Path) -> SortedCopy | None:
        """Return the copy at a path, None where there is none that is whole."""
        try:
            with path.open("rb") as file:
                return cls._read(path, file)
        except (OSError, ValueError, KeyError, struct.error, pa.ArrowException):
            return None

    @classmethod
    def _read(cls, path: Path, file: BinaryIO) -> SortedCopy | None:
        file.seek(-_TRAILER.size, os.SEEK_END)
        end = file.tell()
        length, checksum, magic = _TRAILER.unpack(file.read())
        file.seek(end - length)
        index = file.read(length)
        if magic != MAGIC or zlib.crc32(index) != checksum:
            return None
        record = json.loads(index)
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(record["schema"])))
        return cls(path, schema, tuple(tuple(piece) for piece in record["pieces"]), record["facts"])

    def read(self, first: int, last: int) -> Iterator[pa.Table]:
        """Yield the rows from one number to before another; raises SortedCopyDamaged."""
        begins = 0
        with pa.memory_map(str(self.path)) as file:
            for offset, length, rows, checksum in self.pieces:
                start, stop = max(first, begins), min(last, begins + rows)
                if start < stop:
                    file.seek(offset)
                    data = file.read_buffer(length)
                    if len(data) != length or zlib.crc32(data) != checksum:
                        problem = f"rows {begins} to {begins + rows} of a sorted copy are not what was written"
                        raise SortedCopyDamaged(problem, where=str(self.path))
                    yield pa.ipc.open_stream(data).read_all().slice(start - begins, stop - start)
                begins += rows

    @property
    def is_whole(self) -> bool:
        """Return whether every piece is what was written."""
        try:
            return bool(sum(table.num_rows for table in self.read(0, self.rows)) == self.rows)
        except (SortedCopyDamaged, OSError, pa.ArrowException):
            return False


def write_copy(path: Path, schema: pa.Schema, tables: Iterable[pa.Table], facts: dict[str, Any]) -> None:
    """Write a copy of tables, a piece each, under a name that it has only when it is on disk.

    `facts` are asked for when the last table was taken.
    """
    temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with storage_errors(str(path)):
        try:
            with temporary.open("xb") as file:
                pieces = [_write_piece(file, table) for table in tables]
                encoded = base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
                index = json.dumps({"schema": encoded, "pieces": pieces, "facts": facts}).encode()
                file.write(index + _TRAILER.pack(len(index), zlib.crc32(index), MAGIC))
                file.flush()
                os.fsync(file.fileno())  # a power cut could leave the name without the rows
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _write_piece(file: BinaryIO, table: pa.Table) -> tuple[int, int, int, int]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data, offset = sink.getvalue(), file.tell()
    file.write(data)
    return offset, len(data), table.num_rows, zlib.crc32(data)


def copies_folder() -> Path:
    """Return the folder of sorted copies; one that another user could have filled is refused (F65)."""
    with storage_errors("TMPDIR"):
        folder = Path(tempfile.gettempdir()) / f"penstock-replay-{os.getuid()}"
    with storage_errors(str(folder)):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise RootUnsafe("the folder of sorted copies is not private", where=str(folder))
    return folder


def hold(path: Path) -> int:
    """Return the descriptor of a file that is locked until it is closed: no sweep deletes the file meanwhile."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.utime(descriptor)
    return descriptor


def sweep(folder: Path) -> None:
    """Delete copies, and parts of copies, that no process holds and that none has opened for an hour."""
    for path in folder.iterdir():
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_mtime < time.time() - _UNUSED:
                path.unlink()
