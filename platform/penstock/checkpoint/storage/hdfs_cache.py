"""Share what a process has of a root on HDFS, and keep the folder of this machine for copies of its files."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from penstock.checkpoint.storage.hdfs import HdfsStore
from penstock.checkpoint.storage.local import LocalStore

__all__ = ["FRESH", "Connection", "bytes_of", "connection_of", "make_private", "part_of", "store_of"]

FRESH = ".fresh-"
"""How the name of a cache begins that one command makes for itself."""
_SWEPT = ".swept"
_DAY, _WEEK = 86_400.0, 604_800.0
_OURS = (("_logs",), ("_reports",), ("_versions",))
"""What is in the folder and on HDFS not: what a supervisor keeps of its drivers, and reports."""
_UPLOADS = 4
"""Files that a process writes to a root at once: a task's segment and manifest, and those of the task beside it."""


class Connection:
    """What a process shares of a root: its store, the bytes brought, and files on their way to HDFS by folder."""

    def __init__(self, cache: str, url: str, patience: float) -> None:
        self.fetched = 0
        self.pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="penstock-upload")
        self.uploads: dict[str, list[Future[None]]] = {}
        self._of = (cache, url, patience)

    @property
    def store(self) -> HdfsStore:
        """The store of the root, which must be there."""
        cache, url, patience = self._of
        return store_of(cache, url, make=False, patience=patience, process=os.getpid())


# Connections and threads are no child's to use: by the id of the process a child makes its own.
@lru_cache(maxsize=64)
def connection_of(cache: str, url: str, patience: float, process: int) -> Connection:  # noqa: ARG001 - part of the key
    """Return what a process shares of a root; nobody is asked before something is wanted of it."""
    return Connection(cache, url, patience)


@lru_cache(maxsize=64)
def store_of(cache: str, url: str, *, make: bool, patience: float, process: int) -> HdfsStore:  # noqa: ARG001 - as above
    """Return the store of a folder on HDFS, once a process, and have the cache ready and swept."""
    folder = Path(cache)
    # Whoever else could write in it could put in a state of his own.
    LocalStore(folder.parent)
    make_private(folder)
    _sweep(folder)
    return HdfsStore(url, make=make, patience=patience)


def _sweep(folder: Path) -> None:
    """Remove what nobody has written for long, once a day: killed tasks leave parts, and partitions move on."""
    mark, now = folder / _SWEPT, time.time()
    with suppress(FileNotFoundError):
        if mark.stat().st_mtime > now - _DAY:
            return
    mark.touch(mode=0o600)
    for left in folder.parent.glob(f"{FRESH}*"):
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
