"""Write files of the state durably under names of their own, and map them for reading.

A new file is written under a temporary name, synced, and linked to its own: `link` refuses a name that is taken.
Temporary names are those of `LocalStore`, whose janitor removes what a crash leaves (F15).
Symbolic links are never followed (F65).
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from penstock.errors import (
    CheckpointCorrupt,
    RootUnsafe,
    SegmentExists,
    StateMissing,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

__all__ = ["Mapped", "NewFile", "corrupt", "make_folder", "map_file", "read_file", "signature", "sync_folder"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_LINKED = {errno.ELOOP, errno.ENOTDIR}

_durable: set[Path] = set()

Signature = tuple[int, int, int]
"""Inode, time of change in nanoseconds, size in bytes: what tells a file from one put in its place."""


class NewFile:
    """A file that is being written and that nobody can see before `publish`.

    Leaving the context without `publish` removes what was written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self.size = 0
        self._temp = folder / f".tmp-{secrets.token_hex(16)}"
        with _storage_errors(self.path):
            self._descriptor = os.open(self._temp, _NEW, 0o600)
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append bytes; raises `StorageFull`, `StorageDenied` or `StorageUnavailable`, each naming the file."""
        rest = memoryview(data)
        self.size += len(rest)
        with _storage_errors(self.path):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        """Make what was written durable, and close the file."""
        if self._open:
            self._open = False
            with _storage_errors(self.path):
                try:
                    os.fsync(self._descriptor)
                finally:
                    os.close(self._descriptor)

    def publish(self) -> None:
        """Give the file its name, after `sync`; durable after `sync_folder`. Raises `SegmentExists`."""
        self.sync()
        with _storage_errors(self.path):
            try:
                os.link(self._temp, self.path, follow_symlinks=False)
            except FileExistsError as error:
                raise SegmentExists("the name is taken", where=str(self.path), path=str(self.path)) from error
        self._remove()

    def discard(self) -> None:
        """Remove the temporary file, if it is still there."""
        if self._open:
            self._open = False
            with suppress(OSError):
                os.close(self._descriptor)
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError):  # a left-over is the janitor's (F15)
            self._temp.unlink()


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, durably.

    A folder that is there is synced too, once a process: whoever made it may have died before that.
    """
    if folder in _durable and folder.is_dir():
        return
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        with _storage_errors(path):
            path.mkdir(mode=0o700, exist_ok=True)
    for path in (folder, *folder.parents[: max(2, len(missing))]):
        sync_folder(path)
    _durable.add(folder)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    with _storage_errors(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_file(path: Path) -> bytes:
    """Return a small file whole; raises `StateMissing` where there is none."""
    with _storage_errors(path):
        descriptor = os.open(path, _OLD)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()


@dataclass(frozen=True, slots=True)
class Mapped:
    """Hold a file that is mapped into memory; its pages are read when they are touched."""

    data: pa.Buffer
    signature: Signature


def map_file(path: Path, size: int) -> Mapped:
    """Map a file that must have this size.

    Raises `StateMissing` where there is none and `CheckpointCorrupt` for another size.
    """
    with _storage_errors(path):
        descriptor = os.open(path, _OLD)
        try:
            found = os.fstat(descriptor)
            if found.st_size != size:
                raise corrupt(path, f"{found.st_size} bytes instead of {size}")
            data = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
    return Mapped(pa.py_buffer(data), _signature(found))


def signature(path: Path) -> Signature:
    """Return what tells this file from another of its name; raises `StateMissing` where there is none."""
    with _storage_errors(path):
        return _signature(path.stat(follow_symlinks=False))


def corrupt(path: Path, reason: str) -> CheckpointCorrupt:
    """Make the error for a damaged file; it names the batch that wrote it, which is in the file's name."""
    batch = path.name.split("-", 1)[0]
    if not batch.isdecimal():
        return CheckpointCorrupt(reason, where=str(path), path=str(path), reason=reason, batch=None)
    what = f"{reason}, in a file of batch {int(batch)}"
    return CheckpointCorrupt(what, where=str(path), path=str(path), reason=reason, batch=int(batch))


def _signature(found: os.stat_result) -> Signature:
    return found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says into the errors of a store."""
    where = str(path)
    try:
        yield
    except FileNotFoundError as error:
        raise StateMissing("no such state file", where=where, path=where) from error
    except OSError as error:
        if isinstance(error, CheckpointCorrupt | SegmentExists):
            raise
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise StorageFull(f"no room for {where}: {reason}", where=where, path=where) from error
        if error.errno in _DENIED:
            raise StorageDenied(f"not permitted: {reason}", where=where, path=where) from error
        if error.errno in _LINKED:
            raise RootUnsafe("a link or a file stands where state should be", where=where, path=where) from error
        raise StorageUnavailable(f"the store failed: {reason}", where=where, path=where) from error
