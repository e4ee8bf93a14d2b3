"""Keep the folder of this machine for copies of files on HDFS, and what a process shares of their root."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO

from penstock.checkpoint.storage.hdfs import HdfsStore
from penstock.checkpoint.storage.local import LocalStore, named_errors

__all__ = [
    "FRESH",
    "Connection",
    "Copy",
    "bytes_of",
    "connection_of",
    "fresh_copy",
    "make_private",
    "part_of",
    "store_of",
]

FRESH = ".fresh-"
"""How the name of a cache begins that one command makes for itself."""
_SWEPT = ".swept"
_DAY, _WEEK = 86_400.0, 604_800.0
_OURS = (("_logs",), ("_reports",), ("_versions",))
"""What is in the folder and on HDFS not: what a supervisor keeps of its drivers, and reports."""
_UPLOADS = 4
"""Files that a process writes to a root at once: a task's segment and manifest, and those of the task beside it."""


_connections: dict[tuple[int, str, str], Connection] = {}


class Connection:
    """What a process shares of a root: the bytes brought, and by folder the files on their way to HDFS."""

    def __init__(self) -> None:
        self.fetched = 0
        self.pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="penstock-upload")
        self.uploads: dict[str, list[Future[None]]] = {}


def connection_of(cache: str, url: str) -> Connection:
    """Return what this process shares of a root, with a cache that is this user's own and swept; asks nobody else.

    There is one for as long as the process lives, because who waits for uploads must see those of all threads.
    Raises RootUnsafe where another user can write into the folder of caches, and so could put in a state of his own.
    """
    # Threads are no child's to use: by the id of the process the child of a fork makes its own.
    key = (os.getpid(), cache, url)
    if key not in _connections:
        folder = Path(cache)
        LocalStore(folder.parent)
        make_private(folder)
        _sweep(folder)
        # Without a lock, which a fork could leave held for ever; of threads that come at once, all get the first one's.
        _connections.setdefault(key, Connection())
    return _connections[key]


@lru_cache(maxsize=64)
def store_of(cache: str, root: str, url: str, *, make: bool, patience: float, process: int) -> HdfsStore:  # noqa: ARG001 - part of the key
    """Return the store of the folder `url` on HDFS, below `root`, once a process."""
    connection_of(cache, root)
    return HdfsStore(url, make=make, patience=patience)


def _sweep(folder: Path) -> None:
    """Remove what nobody has written for long, once a day: killed tasks leave parts, and partitions move on."""
    mark, now = folder / _SWEPT, time.time()
    with suppress(FileNotFoundError):
        if mark.stat().st_mtime > now - _DAY:
            return
    mark.touch(mode=0o600)
    for left in folder.parent.glob(f"{FRESH}*"):
        with suppress(FileNotFoundError):
            if left.stat().st_mtime < now - _DAY:
                shutil.rmtree(left, ignore_errors=True)
    for place, _, names in os.walk(folder):
        if Path(place).relative_to(folder).parts[:1] not in _OURS:
            for path in (Path(place, name) for name in names if name != _SWEPT):
                with suppress(FileNotFoundError):
                    age = now - path.stat().st_mtime
                    if age > (_DAY if path.name.startswith(".") else _WEEK):
                        path.unlink()


def make_private(folder: Path) -> None:
    """Make a folder of the cache, for its user alone."""
    with suppress(FileExistsError):
        try:
            folder.mkdir(mode=0o700)
        except FileNotFoundError:
            make_private(folder.parent)
            folder.mkdir(mode=0o700)


def part_of(path: Path) -> Path:
    """Return where a copy of a file is that need not be whole."""
    return path.with_name(f"{path.name}.part")


def bytes_of(file: Path) -> memoryview:
    """Return the bytes of a file, without reading them, also when it is removed."""
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        return memoryview(mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) if size else b"")


@contextmanager
def fresh_copy(place: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name in a cache when it is whole, in the place of what has it."""
    make_private(place.parent)
    temp = place.with_name(f".tmp-{os.urandom(16).hex()}")
    with named_errors(os.fspath(place)):  # the disk here is full, and not HDFS
        try:
            with temp.open("xb") as file:
                yield file
            temp.replace(place)  # two that bring the same file bring the same
        finally:
            temp.unlink(missing_ok=True)


class Copy:
    """An open copy of a file on HDFS, for as long as it is mapped: its name may be gone."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.descriptor)
