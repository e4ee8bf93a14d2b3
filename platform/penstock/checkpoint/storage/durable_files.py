"""Write files of a checkpoint durably under names of their own, and map them for reading.

A new file is written under a temporary name, synced, and linked to its own: `link` refuses a name that is taken.
Temporary names are those of `LocalStore`, whose janitor removes what a crash leaves (F15).
Symbolic links are never followed (F65).

In a folder that mirrors one on HDFS (`checkpoint.mirror`) files are written there too, and read from there where they
are not here. What is here then is a copy: one that is damaged is brought anew.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.checkpoint.storage.hdfs_cache import (
    CachedFile,
    bytes_of,
    is_on_hdfs,
    make_cache_folder,
    mirrored,
    part_of,
    shown,
    state_missing,
)
from penstock.checkpoint.storage.local import named_errors
from penstock.errors import (
    CheckpointCorrupt,
    PenstockError,
    SegmentExists,
    StateMissing,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Mapped",
    "NewFile",
    "corrupt",
    "make_folder",
    "map_file",
    "read_file",
    "signature",
    "sync_folder",
]

Found = TypeVar("Found")

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_BROUGHT_WHOLE = 2**22
"""Bytes up to which a file is brought from HDFS whole: its parts would be asked for one after the other."""

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
        self._mirrored = mirrored(self.path)
        self._temp = folder / f".tmp-{secrets.token_hex(16)}"
        with state_errors(self.path):
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
        with state_errors(self.path):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        """Make what was written durable, and close the file."""
        if self._open:
            self._open = False
            with state_errors(self.path):
                try:
                    if self._mirrored is None:
                        os.fsync(self._descriptor)
                finally:
                    os.close(self._descriptor)

    def publish(self) -> None:
        """Give the file its name, after `sync`; durable after `sync_folder`. Raises `SegmentExists`."""
        self.sync()
        # Mapped now: once it has its name, it may be taken away here before its turn comes.
        with state_errors(self.path):
            data = None if self._mirrored is None else bytes_of(self._temp)
            try:
                os.link(self._temp, self.path, follow_symlinks=False)
            except FileExistsError as error:
                where = shown(self.path)
                raise SegmentExists("the name is taken", where=where, path=where) from error
        self._remove()
        if self._mirrored is not None and data is not None:
            self._mirrored.upload(data)

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
    if mirrored(folder) is not None:
        make_cache_folder(folder)  # on HDFS, a file makes its folder
        return
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        with state_errors(path):
            path.mkdir(mode=0o700, exist_ok=True)
    for path in (folder, *folder.parents[: max(2, len(missing))]):
        sync_folder(path)
    _durable.add(folder)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Of one on HDFS, wait until what was published is there."""
    remote = mirrored(folder)
    with state_errors(folder):
        if remote is not None:
            remote.wait()
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_file(path: Path, check: Callable[[bytes], Found]) -> Found:
    """Return what a check makes of a small file, whose name is used once; raises `StateMissing` where there is none.

    Where the check raises CheckpointCorrupt for a copy, it is asked again about the file on HDFS.
    """
    remote = mirrored(path)
    if remote is not None:
        with suppress(StateMissing, CheckpointCorrupt):
            return check(_read(path))
        data = remote.read()
        remote.keep(data)
        return check(data)
    return check(_read(path))


def _read(path: Path) -> bytes:
    with state_errors(path):
        descriptor = os.open(path, _OLD)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()


@dataclass(frozen=True, slots=True)
class Mapped:
    """Hold a file that is mapped into memory; its pages are read when they are touched.

    `bring(offset, size)` says whether there is more than this copy, and brings these bytes of it: what was not here
    yet is zeros, and what is damaged here need not be so there.
    """

    data: mmap.mmap
    signature: Signature
    bring: Callable[[int, int], bool]


def map_file(path: Path, size: int) -> Mapped:
    """Map a file that must have this size.

    Raises `StateMissing` where there is none and `CheckpointCorrupt` for another size.
    """
    remote = mirrored(path)
    if remote is None:
        with state_errors(path), os.fdopen(os.open(path, _OLD), "rb", buffering=0) as file:
            return _mapped(file, path, size, lambda _offset, _size: False)
    while True:
        place = _copy_of(remote, size)
        try:
            copy = _Copy(place)
        except FileNotFoundError:  # let go by another process, which has no use for it
            continue
        return _mapped(copy, path, size, partial(_bring, remote, copy))


class _Copy:
    """An open copy of a file on HDFS, for as long as it is mapped: its name may be gone."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._descriptor)


def _bring(remote: CachedFile, copy: _Copy, offset: int, size: int) -> bool:
    # By the file, and not by its map: a disk that is full is an error there, and a signal here.
    data = remote.read(offset, size)
    with state_errors(remote.path):
        while data:
            written = os.pwrite(copy.fileno(), data, offset)
            data, offset = data[written:], offset + written
    return True


def _mapped(file: FileIO | _Copy, path: Path, size: int, bring: Callable[[int, int], bool]) -> Mapped:
    stat = os.fstat(file.fileno())
    if stat.st_size != size:
        raise corrupt(path, f"{stat.st_size} bytes instead of {size}")
    return Mapped(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), _signature(path, stat), bring)


def _copy_of(remote: CachedFile, size: int) -> Path:
    """Return the copy of a file: as it is here, brought whole, or a part of it where it is long."""
    part = part_of(remote.path)
    for place in (remote.path, part):
        with suppress(FileNotFoundError):
            if place.stat(follow_symlinks=False).st_size == size:
                return place
    there = remote.size()
    if there is None:
        raise state_missing(remote.path)
    if there != size:
        raise corrupt(remote.path, f"{there} bytes instead of {size}")
    if size <= _BROUGHT_WHOLE:
        remote.fetch()
        return remote.path
    remote.make_room(part, size)
    return part


def signature(path: Path) -> Signature | None:
    """Return what tells this file from another of its name; None where there is none, or no copy."""
    for place in (path, part_of(path)) if is_on_hdfs(path) else (path,):
        with state_errors(path), suppress(FileNotFoundError):
            return _signature(path, place.stat(follow_symlinks=False))
    return None


def corrupt(path: Path, reason: str) -> CheckpointCorrupt:
    """Make the error for a damaged file; it names the batch that wrote it, which is in the file's name."""
    where, batch = shown(path), path.name.split("-", 1)[0]
    if not batch.isdecimal():
        return CheckpointCorrupt(reason, where=where, path=where, reason=reason, batch=None)
    what = f"{reason}, in a file of batch {int(batch)}"
    return CheckpointCorrupt(what, where=where, path=where, reason=reason, batch=int(batch))


def _signature(path: Path, stat: os.stat_result) -> Signature:
    # Of a copy the time changes when bytes are brought, and what is read of it is checked by its readers.
    return stat.st_ino, 0 if is_on_hdfs(path) else stat.st_mtime_ns, stat.st_size


@contextmanager
def state_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says into the errors of a store; what is not there is `StateMissing`."""
    try:
        with named_errors(shown(path)):
            yield
    except FileNotFoundError as error:
        if isinstance(error, PenstockError):
            raise
        raise state_missing(path) from error
