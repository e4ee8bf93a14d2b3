"""Create and read the files of a folder that anybody may read, on this machine and on HDFS.

Paths are those below the folder. A file is created whole, once, and durably; nothing is renamed or written over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.hdfs import PATIENCE, parse_root
from penstock.checkpoint.storage.hdfs_cache import bytes_of
from penstock.checkpoint.storage.hdfs_create import HdfsCreation
from penstock.checkpoint.storage.local import create_beside, make_folders, storage_errors, sync
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import is_url
from penstock.errors import (
    AlreadyExists,
    CommitUnknown,
    NotFound,
    OutputDenied,
    RootUnsafe,
    SinkUnavailable,
    StorageDenied,
    StorageUnavailable,
)

if TYPE_CHECKING:
    from penstock.checkpoint.storage.webhdfs import WebHdfs

__all__ = ["Entry", "HdfsOutput", "LocalOutput", "OutputFolder", "output_folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is in a folder; `size` in bytes, and `modified` in seconds since 1970 by the clock of the file system."""

    name: str
    is_folder: bool
    size: int
    modified: float


class OutputFolder(Protocol):
    """A folder that a sink writes files into.

    All methods raise OutputDenied where the user may not, and SinkUnavailable where the file system does not answer.
    """

    @property
    def root(self) -> str:
        """The folder, as people are shown it."""

    def create(self, path: str, data: bytes | memoryview) -> bool:
        """Create a file whole and durably, and the folders above it; False where the name is taken.

        Raises StorageFull, and then the name is free.
        """

    def adopt(self, path: str, file: CheckpointFolder) -> bool:
        """Give a staged file a name here, whole and durably; False where the name is taken. The staged file stays.

        It is a link where both are on one file system of this machine, and a copy of the bytes otherwise. Raises
        StateMissing where there is no such file, and StorageFull.
        """

    def read(self, path: str) -> bytes | None:
        """Return a file, None where there is none."""

    def names(self, path: str) -> list[str]:
        """Return the names of what is right in a folder, sorted; none where there is no folder."""

    def entries(self, path: str) -> list[Entry]:
        """Return what is right in a folder, in any order; none where there is no folder. No link is followed."""

    def delete(self, path: str) -> None:
        """Remove a file; to remove what is not there changes nothing."""

    def full(self, path: str) -> str:
        """Return a path with the folder before it, as programs open it."""


def output_folder(root: str | Path) -> OutputFolder:
    """Return the folder of a path, or of a URL as `webhdfs://host:9870/out`; raises ConfigError."""
    if isinstance(root, str) and is_url(root):
        parse_root(root)
        return HdfsOutput(root.rstrip("/"))
    return LocalOutput(os.path.abspath(root))  # noqa: PTH100 - links stay as they are


@dataclass(frozen=True)
class LocalOutput:
    """A folder that this machine sees. Files get the rights of any file of the process."""

    root: str

    def create(self, path: str, data: bytes | memoryview) -> bool:
        """Write a temporary file, and link it to its name."""
        folder, name = os.path.split(self.full(path))
        with _named(self.full(path)), storage_errors(self.full(path)):
            make_folders(folder)
            return create_beside(folder, name, data)

    def adopt(self, path: str, file: CheckpointFolder) -> bool:
        """Link a file that was staged on this machine; copy another, through the disk and not through memory."""
        source = file.fetch()
        if not isinstance(file, LocalFolder):
            return self.create(path, bytes_of(source))
        folder = Path(self.full(path)).parent
        with _named(self.full(path)), storage_errors(self.full(path)):
            make_folders(folder)
            try:
                os.link(source, self.full(path), follow_symlinks=False)
            except FileExistsError:
                is_new = False
            except OSError:  # of two file systems, or of one without links
                return self.create(path, bytes_of(source))
            else:
                is_new = True
            sync(folder)  # also where the name was taken: who gave it may have died before that
        return is_new

    def read(self, path: str) -> bytes | None:
        """Return a file."""
        with _named(self.full(path)), storage_errors(self.full(path)):
            try:
                return Path(self.full(path)).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        with _named(self.full(path)), storage_errors(self.full(path)):
            try:
                return sorted(os.listdir(self.full(path)))  # noqa: PTH208 - names, once a batch
            except (FileNotFoundError, NotADirectoryError):
                return []

    def entries(self, path: str) -> list[Entry]:
        """Return what is in a folder."""
        entries = []
        with _named(self.full(path)), storage_errors(self.full(path)), suppress(FileNotFoundError, NotADirectoryError):
            for each in os.scandir(self.full(path)):
                with suppress(FileNotFoundError):  # somebody has deleted it meanwhile
                    stat, is_folder = each.stat(follow_symlinks=False), each.is_dir(follow_symlinks=False)
                    entries.append(
                        Entry(name=each.name, is_folder=is_folder, size=stat.st_size, modified=stat.st_mtime)
                    )
        return entries

    def delete(self, path: str) -> None:
        """Remove a file."""
        with _named(self.full(path)), storage_errors(self.full(path)):
            Path(self.full(path)).unlink(missing_ok=True)

    def full(self, path: str) -> str:
        """Return the path of a file."""
        return f"{self.root}/{path}" if path else self.root


@dataclass(frozen=True)
class HdfsOutput:
    """A folder on HDFS, by the NameNodes' WebHDFS. Files get the rights that HDFS gives by its umask."""

    root: str

    def create(self, path: str, data: bytes | memoryview) -> bool:
        """Write a temporary file, and rename it, which HDFS refuses for a name that is taken."""
        where = self.full(path)
        calls, full = self._calls(where, size=len(data)), self._on_hdfs(path)
        folder, _, name = full.rpartition("/")
        creation = HdfsCreation(calls, folder, name, data, where, private=False)
        with _named(where):
            try:
                try:
                    calls.again(creation.attempt)
                except NotFound:
                    calls.again(lambda: calls.make_folder(folder, private=False))
                    calls.again(creation.attempt)
            except AlreadyExists:
                return False
            except NotFound as why:
                raise StorageUnavailable("a folder was taken away", where=where, path=where) from why
            finally:
                creation.tidy()
        return True

    def adopt(self, path: str, file: CheckpointFolder) -> bool:
        """Copy the file, through the disk of this machine and not through its memory."""
        return self.create(path, bytes_of(file.fetch()))

    def read(self, path: str) -> bytes | None:
        """Return a file."""
        where = self.full(path)
        with _named(where), suppress(NotFound):
            calls, full = self._calls(where), self._on_hdfs(path)
            status = calls.again(lambda: calls.status(full))
            if status is None or not status.is_file:
                return None
            reading = self._calls(where, size=status.length)
            data: bytes = reading.again(lambda: reading.read(full, status.length))
            return data
        return None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        where = self.full(path)
        with _named(where):
            calls, full = self._calls(where), self._on_hdfs(path)
            return sorted(each.name for each in calls.again(lambda: calls.children(full)))

    def entries(self, path: str) -> list[Entry]:
        """Return what is in a folder."""
        where = self.full(path)
        with _named(where):
            calls, full = self._calls(where), self._on_hdfs(path)
            return [
                Entry(name=each.name, is_folder=not each.is_file, size=each.length, modified=each.modified)
                for each in calls.again(lambda: calls.children(full))
            ]

    def delete(self, path: str) -> None:
        """Remove a file."""
        where = self.full(path)
        with _named(where):
            calls, full = self._calls(where), self._on_hdfs(path)
            calls.again(lambda: calls.delete(full))

    def full(self, path: str) -> str:
        """Return the URL of a file."""
        return f"{self.root}/{path}" if path else self.root

    def _on_hdfs(self, path: str) -> str:
        folder = parse_root(self.root)[2]
        return f"{folder}/{path}" if path else folder

    def _calls(self, where: str, *, size: int = 0) -> Any:
        urls, user, _ = parse_root(self.root)
        return _web(tuple(urls), user, os.getpid()).calls(where, size=size)


@lru_cache(maxsize=16)
def _web(urls: tuple[str, ...], user: str | None, process: int) -> WebHdfs:  # noqa: ARG001 - part of the key
    """Return the connections of this process."""
    from penstock.checkpoint.storage.webhdfs import WebHdfs

    return WebHdfs(urls, user, patience=PATIENCE)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Turn errors of storage into those of a sink; that there is no room is said as it is."""
    try:
        yield
    except (StorageDenied, RootUnsafe) as why:
        raise OutputDenied(why.what, where=where) from why
    except (StorageUnavailable, CommitUnknown) as why:
        raise SinkUnavailable(why.what, where=where) from why
