"""Look at the files of a folder that a source reads, on this machine and on HDFS.

A file system is frozen and pickled to tasks; it keeps connections by process. Paths are those below the folder.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.checkpoint.storage.hdfs import PATIENCE, parse_root
from penstock.checkpoint.storage.locate import is_url
from penstock.errors import (
    AlreadyExists,
    CheckpointError,
    FileVanished,
    FolderUnreadable,
    NotFound,
    SourceUnavailable,
    StorageDenied,
)
from penstock.sources.file.positions import Entry

if TYPE_CHECKING:
    from penstock.checkpoint.storage.webhdfs import Status, WebHdfs

__all__ = ["FileSystem", "HdfsFiles", "Listed", "LocalFiles", "are_in", "file_system"]

_AT_ONCE = 8
"""Questions that HDFS is asked at once."""
_BUFFER = 4 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """What is in a folder.

    Attributes:
        files: Its plain files, but those whose tokens were known.
        folders: Its folders; of their entries only the time counts, 0 where it is not known without another question.
        tokens: A number (int64) for each file in it, sorted, which another file of that name does not have. There are
            none where a listing has times and lengths anyway.
        of_files: Those of `files`, in their order.
    """

    files: list[Entry]
    folders: list[Entry]
    tokens: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    of_files: Sequence[int] = ()


class FileSystem(Protocol):
    """What a source does with files below one folder.

    All raise SourceUnavailable where a server does not answer and FolderUnreadable where the user may not.
    """

    times_of_folders: bool
    """Whether the entries of folders in a listing have their times, so that nobody needs to ask for each."""

    @property
    def root(self) -> str:
        """The folder, as people are shown it."""

    def folder(self, path: str) -> Entry | None:
        """Return a folder, "" for the root; None where there is none."""

    def listed(self, path: str, known: np.ndarray | None = None) -> Listed | None:
        """Return what is in a folder, None where it is gone; of names whose tokens are known, nothing is asked."""

    def look(self, paths: Sequence[str]) -> list[Entry | None]:
        """Return files as they are now; None for one that is gone, or that somebody is still writing."""

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading, also at any place of it; raises FileVanished."""

    def check(self, *, changes: bool) -> None:
        """Raise FolderUnreadable where the folder may not be listed, or with `changes` its files not be removed."""

    def delete(self, path: str) -> None:
        """Remove a file that is there."""

    def move(self, path: str, target: FileSystem, name: str) -> bool:
        """Give a file another name below another folder of the same file system, which is made.

        Returns False, and changes nothing, where the name is taken.
        """


def file_system(root: str | Path) -> FileSystem:
    """Return the file system of a path, or of a URL as `webhdfs://host:9870/landing`; raises ConfigError."""
    if isinstance(root, str) and is_url(root):
        parse_root(root)
        return HdfsFiles(root.rstrip("/"))
    return LocalFiles(str(Path(root)))


@dataclass(frozen=True)
class LocalFiles:
    """Files that this machine sees. Links to files count as files; links to folders are passed over."""

    root: str
    times_of_folders = False

    def folder(self, path: str) -> Entry | None:
        """Return a folder with its time."""
        with self._named(path), suppress(FileNotFoundError, NotADirectoryError):
            status = os.stat(self._full(path))  # noqa: PTH116 - asked thousands of times a look
            return Entry(path, status.st_mtime_ns, 0) if stat.S_ISDIR(status.st_mode) else None
        return None

    def listed(self, path: str, known: np.ndarray | None = None) -> Listed | None:
        """Return what is in a folder; a token is of name and inode, which cost no question each."""
        prefix = f"{path}/" if path else ""
        files, folders, of_files = [], [], []
        with self._named(path), suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(self._full(path)) as names:
                entries = list(names)
            tokens = np.fromiter((hash((e.name, e.inode())) for e in entries), np.int64, len(entries))
            wanted = np.ones(len(tokens), bool) if known is None else ~are_in(tokens, known)
            for i in np.flatnonzero(wanted).tolist():
                entry = entries[i]
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Entry(prefix + entry.name, 0, 0))
                    continue
                with suppress(FileNotFoundError):  # gone meanwhile, or a link to nothing
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode):
                        files.append(_local(prefix + entry.name, status))
                        of_files.append(int(tokens[i]))
            passed = tokens[~wanted]
            return Listed(files, folders, np.sort(np.concatenate([passed, np.array(of_files, np.int64)])), of_files)
        return None

    def look(self, paths: Sequence[str]) -> list[Entry | None]:
        """Return files as they are now."""
        return [self._look(path) for path in paths]

    def _look(self, path: str) -> Entry | None:
        with self._named(path), suppress(FileNotFoundError, NotADirectoryError):
            return _local(path, os.stat(self._full(path)))  # noqa: PTH116 - as above
        return None

    def open(self, path: str) -> IO[bytes]:
        """Open a file."""
        with self._named(path):
            try:
                return Path(self._full(path)).open("rb")
            except (FileNotFoundError, NotADirectoryError) as why:
                raise FileVanished("the file is gone", where=self._full(path)) from why

    def check(self, *, changes: bool) -> None:
        """Raise FolderUnreadable; of a folder below, the first look tells."""
        with self._named(""), os.scandir(self.root):
            pass
        if changes and not os.access(self.root, os.W_OK):
            raise FolderUnreadable("files of the folder cannot be moved or deleted", where=self.root)

    def delete(self, path: str) -> None:
        """Remove a file."""
        with self._named(path), suppress(FileNotFoundError):
            os.unlink(self._full(path))  # noqa: PTH108 - as above

    def move(self, path: str, target: FileSystem, name: str) -> bool:
        """Link the file to its new name, which refuses one that is taken, and remove the old name."""
        source, new = Path(self._full(path)), Path(target.root, name)
        with self._named(path):
            new.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, new, follow_symlinks=False)
            except FileExistsError:
                if not new.samefile(source):  # else a crash has left both names
                    return False
            source.unlink()
        return True

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        try:
            yield
        except PermissionError as why:
            raise FolderUnreadable(f"not permitted: {why.strerror}", where=self._full(path)) from why
        except FileVanished:
            raise
        except OSError as why:
            if isinstance(why, FileNotFoundError):
                raise
            raise SourceUnavailable(f"the file system says: {why.strerror}", where=self._full(path)) from why


def _local(path: str, status: os.stat_result) -> Entry:
    return Entry(path, status.st_mtime_ns, status.st_size, status.st_ctime_ns)


def are_in(tokens: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return which tokens are among known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(tokens), bool)
    places = np.minimum(np.searchsorted(known, tokens), len(known) - 1)
    is_known: np.ndarray = known[places] == tokens
    return is_known


@dataclass(frozen=True)
class HdfsFiles:
    """Files on HDFS, by the NameNodes' WebHDFS, as checkpoints use it."""

    root: str
    times_of_folders = True

    def folder(self, path: str) -> Entry | None:
        """Return a folder with its time."""
        status = self._asked(path, lambda calls, full: calls.status(full))
        return _hdfs(path, status) if status is not None and status.kind == "DIRECTORY" else None

    def listed(self, path: str, known: np.ndarray | None = None) -> Listed | None:
        """Return what is in a folder, a thousand names a question."""
        prefix = f"{path}/" if path else ""
        files, folders, after = [], [], ""
        while True:
            try:
                part, left = self._asked(path, lambda calls, full, after=after: calls.some_children(full, after))
            except FileVanished:
                return None
            for status in part:
                if status.is_file:
                    files.append(_hdfs(prefix + status.name, status))
                elif status.kind == "DIRECTORY":
                    folders.append(_hdfs(prefix + status.name, status))
            if not left or not part:
                return Listed(files, folders)
            after = part[-1].name

    def look(self, paths: Sequence[str]) -> list[Entry | None]:
        """Return files as they are now, asking after several at once; each is two questions."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # starts no thread without a path
            return list(pool.map(self._look, paths))

    def _look(self, path: str) -> Entry | None:
        status = self._asked(path, lambda calls, full: calls.status(full))
        if status is None or not status.is_file:
            return None
        with suppress(FileVanished):
            # The time of a file that is being written is that of its creation, and its length that of whole blocks.
            if not self._asked(path, lambda calls, full: calls.is_being_written(full)):
                return _hdfs(path, status)
        return None

    def open(self, path: str) -> IO[bytes]:
        """Open a file whose bytes are brought as they are read."""
        status = self._asked(path, lambda calls, full: calls.status(full))
        if status is None:
            raise FileVanished("the file is gone", where=self._full(path))
        return io.BufferedReader(_HdfsFile(self, path, status.length), _BUFFER)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return so many bytes of a file that has them."""
        data: bytes = self._asked(path, lambda calls, full: calls.read(full, length, offset=offset), size=length)
        return data

    def check(self, *, changes: bool) -> None:
        """Raise FolderUnreadable where HDFS does not list the folder."""
        self._asked("", lambda calls, full: calls.some_children(full, ""))

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._asked(path, lambda calls, full: calls.delete(full))

    def move(self, path: str, target: FileSystem, name: str) -> bool:
        """Rename the file; HDFS refuses a name that is taken."""
        _, _, folder = parse_root(target.root)
        new = f"{folder}/{name}"

        def attempt(calls: Any, full: str) -> bool:
            calls.make_folder(new.rpartition("/")[0], private=False)
            try:
                calls.rename(full, new)
            except AlreadyExists:
                return False
            except NotFound:  # by an earlier try whose answer was lost
                return calls.status(new) is not None
            return True

        return bool(self._asked(path, attempt))

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _asked(self, path: str, attempt: Any, *, size: int = 0) -> Any:
        """Ask until an answer comes, and raise what it means for a source."""
        where = self._full(path)
        urls, user, folder = parse_root(self.root)
        full = f"{folder}/{path}" if path else folder
        try:
            calls = _web(tuple(urls), user, os.getpid()).calls(where, size=size)
            return calls.again(lambda: attempt(calls, full))
        except StorageDenied as why:
            raise FolderUnreadable(why.what, where=where) from why
        except NotFound as why:
            raise FileVanished(why.what, where=where) from why
        except CheckpointError as why:
            raise SourceUnavailable(why.what, where=where) from why


@lru_cache(maxsize=16)
def _web(urls: tuple[str, ...], user: str | None, process: int) -> WebHdfs:  # noqa: ARG001 - part of the key
    """Return the connections of this process; a fork makes its own."""
    from penstock.checkpoint.storage.webhdfs import WebHdfs

    return WebHdfs(urls, user, patience=PATIENCE)


def _hdfs(path: str, status: Status) -> Entry:
    return Entry(path, round(status.modified * 1_000) * 1_000_000, status.length)


class _HdfsFile(io.RawIOBase):
    """A file on HDFS as Python reads one; each read is a question, so a buffer belongs above it."""

    def __init__(self, files: HdfsFiles, path: str, length: int) -> None:
        self._files, self._path, self._length, self._at = files, path, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._length - self._at)
        if length <= 0:
            return 0
        buffer[:length] = self._files.read(self._path, self._at, length)
        self._at += length
        return length
