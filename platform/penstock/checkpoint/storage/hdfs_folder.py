"""Work with a checkpoint on HDFS: what is written goes there, and state is read through copies here (DESIGN 6).

Only files whose names are used once have copies: the run's random id is in the name. Such a copy needs no comparison
with HDFS, and may be removed at any time. All else is read from HDFS each time. A damaged copy is brought again. Of
long files only the bytes that are read are brought: `map` makes room for the others.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Self, TypeVar

from penstock.checkpoint.storage.folder import Mapped, Signature, corrupt
from penstock.checkpoint.storage.hdfs import PATIENCE, HdfsStore
from penstock.checkpoint.storage.hdfs_cache import (
    FRESH,
    Connection,
    Copy,
    bytes_of,
    connection_of,
    fresh_copy,
    make_private,
    part_of,
    store_of,
)
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import map_open, read_plain
from penstock.checkpoint.storage.new_file import NewFile, state_errors, state_missing
from penstock.errors import (
    AlreadyExists,
    CheckpointCorrupt,
    CommitUnknown,
    NotFound,
    SegmentExists,
    StateMissing,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

__all__ = ["HdfsFolder"]

Checked = TypeVar("Checked")

_PIECE = 2**26
"""Bytes that are brought at a time."""
_BROUGHT_WHOLE = 2**22
"""Bytes up to which a file is brought from HDFS whole: its parts would be asked for one after the other."""
_AT_ONCE = 8
"""Files that are removed at once, which takes as long as one."""


@dataclass(frozen=True, order=True, slots=True)
class HdfsFolder:
    """A `CheckpointFolder` below a root on HDFS.

    Attributes:
        url: The URL of the root, as `HdfsStore` takes it.
        cache: The folder of this machine for copies of the root's files; its parent is this user's own.
        below: The path from the root, "" for the root itself.
        patience: Seconds that a call may take.
    """

    url: str
    cache: str
    below: str = ""
    patience: float = field(default=PATIENCE, compare=False)

    def __str__(self) -> str:
        return f"{self.url}/{self.below}" if self.below else self.url

    def __truediv__(self, name: str) -> Self:
        return replace(self, below=f"{self.below}/{name}" if self.below else name)

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return str(self).rpartition("/")[2]

    @property
    def parent(self) -> Self:
        """The folder that has it; the root has none."""
        if not self.below:
            raise ValueError(f"{self} is a root")
        return replace(self, below=self.below.rpartition("/")[0])

    @property
    def here(self) -> Path:
        """The place of its copy."""
        return Path(self.cache, self.below)

    @property
    def address(self) -> str:
        """Root, cache and path, of which no root and no path has a `#`."""
        return f"{self.url}#{self.cache}#{self.below}"

    @property
    def fetched(self) -> int:
        """Bytes that this process has brought here from the root."""
        return self.connection.fetched

    def relative_to(self, other: HdfsFolder) -> PurePosixPath:
        """Return the path from another folder of the root to this place."""
        return PurePosixPath(self.below).relative_to(other.below)

    def store(self, *, make: bool = True) -> HdfsStore:
        """Open the store whose root is this folder, once a process."""
        return self._open(str(self), make=make)

    def hurried(self, seconds: float) -> Self:
        """Return the same place, whose calls take at most so many seconds."""
        return replace(self, patience=seconds)

    @contextmanager
    def uncached(self) -> Iterator[Self]:
        """Yield the same place with a cache that begins empty, and is removed after the block."""
        root = Path(self.cache)
        LocalStore(root.parent)
        with tempfile.TemporaryDirectory(prefix=FRESH, dir=root.parent) as fresh:
            yield replace(self, cache=str(Path(fresh, root.name)))

    def size(self) -> int | None:
        """Return the size of the file on HDFS in bytes, None where there is none."""
        with self._asked() as store:
            return store.size(self.below)

    def is_taken(self) -> bool:
        """Return whether anything on HDFS has this name."""
        return self._store().is_taken(self.below)

    def is_missing(self) -> bool:
        """Return False: only HDFS knows."""
        return False

    def files(self, *, before: float | None = None) -> list[Self]:
        """Return all files below the folder, sorted; with `before` those written before it, in seconds since 1970."""
        with self._asked() as store:
            return [replace(self, below=path) for path in store.list(self.below, before=before)]

    def folders(self) -> Sequence[str]:
        """Return the names of the folders right in the folder, sorted."""
        return self._store().folders(self.below)

    def presence(self) -> Callable[[HdfsFolder], bool]:
        """Return what knows all files below the folder: they are asked after at once."""
        return frozenset(self.files()).__contains__

    def read(self) -> bytes:
        """Return the file as it is on HDFS."""
        return self._read_range(0, None)

    def read_checked(self, check: Callable[[bytes], Checked]) -> Checked:
        """Return what a check makes of the copy, or else of the file, which is kept here."""
        with suppress(StateMissing, CheckpointCorrupt):
            return check(read_plain(self._copy, str(self)))
        data = self.read()
        with fresh_copy(self._copy) as file:
            file.write(data)
        return check(data)

    def map(self, size: int) -> Mapped:
        """Map a copy: as it is here, brought whole, or an empty one whose bytes are brought as they are read."""
        while True:
            place = self._copy_of(size)
            try:
                copy = Copy(place)
            except FileNotFoundError:  # let go by another process, which has no use for it
                continue
            data, status = map_open(copy.descriptor, self, size)
            return Mapped(data, _signature(status), partial(self._bring, copy))

    def signature(self) -> Signature | None:
        """Return what tells the copy from another; of a time nothing, which changes when bytes are brought."""
        for place in (self._copy, part_of(self.here)):
            with state_errors(str(self)), suppress(FileNotFoundError):
                return _signature(place.stat(follow_symlinks=False))
        return None

    def fetch(self) -> Path:
        """Return the copy, which is brought where it is missing."""
        if not self._copy.is_file():
            self.fetch_anew()
        return self._copy

    def fetch_anew(self) -> bool:
        """Bring the whole file here, and return True."""
        size = self.size()
        if size is None:
            raise state_missing(str(self))
        with fresh_copy(self._copy) as file:
            for offset in range(0, size, _PIECE):
                file.write(self._read_range(offset, min(_PIECE, size - offset)))
        return True

    def make(self) -> None:
        """Make the folder of the copies; on HDFS, a file makes its folder."""
        make_private(self._copy)

    def make_shared(self) -> None:
        """Do nothing: on HDFS, a file makes its folder."""

    def new_file(self, name: str) -> NewFile:
        """Begin a file that is written here, and to HDFS once it is published."""
        return _UploadedFile(self / name)

    def sync(self) -> None:
        """Wait until all files published in this folder are on HDFS, and raise the first error.

        What could not be written there is here no longer.
        """
        uploads = self.connection.uploads.pop(self.below, [])
        failed = [why for upload in uploads if (why := upload.exception()) is not None]
        if failed:
            raise failed[0]

    def create(self, data: bytes | memoryview) -> None:
        """Write the file to HDFS, and not here; raises `AlreadyExists`."""
        with self._asked() as store:
            store.create(self.below, data)

    create_fleeting = create
    stage = create

    def carry(self, file: Path) -> None:
        """Write the file to HDFS as another one is here; raises `AlreadyExists`."""
        self.create(bytes_of(file))

    def adopt(self, file: Path, *, link: bool) -> None:
        """Write the file to HDFS as another one is here."""
        with suppress(AlreadyExists):
            self.carry(file)

    def move_to(self, target: Self) -> None:
        """Rename the folder on HDFS; its copies here go."""
        self._store().move_folder(self.below, target.below)
        shutil.rmtree(self.here, ignore_errors=True)

    def remove(self) -> None:
        """Remove the file, there and here."""
        with self._asked() as store:
            store.delete(self.below)
        for copy in (self.here, part_of(self.here)):
            copy.unlink(missing_ok=True)

    def remove_files(self, files: Sequence[Self]) -> None:
        """Remove files, some at a time."""
        if files:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(type(self).remove, files))

    def remove_all(self) -> None:
        """Remove the folder with all that is in it, there and here."""
        self._store().remove_folder(self.below)
        shutil.rmtree(self.here, ignore_errors=True)

    def let_go(self, names: Collection[str]) -> None:
        """Remove copies in the folder that are older than all of these names."""
        oldest = min(names, default="")
        if self.here.is_dir():
            for path in self.here.iterdir():
                if path.name < oldest and not path.name.startswith("."):  # those are being written
                    path.unlink(missing_ok=True)

    @property
    def connection(self) -> Connection:
        """What this process shares of the root."""
        return connection_of(self.cache, self.url)

    @property
    def _copy(self) -> Path:
        """The place of the copy, in a cache of which this process knows that no other user writes in it (F65)."""
        connection_of(self.cache, self.url)
        return self.here

    def _store(self) -> HdfsStore:
        return self._open(self.url, make=False)

    def _open(self, url: str, *, make: bool) -> HdfsStore:
        return store_of(self.cache, self.url, url, make=make, patience=self.patience, process=os.getpid())

    def _read_range(self, offset: int, size: int | None) -> bytes:
        with self._asked() as store:
            data = store.read_range(self.below, offset, size)
        self.connection.fetched += len(data)
        return data

    def _copy_of(self, size: int) -> Path:
        whole = self._copy
        part = part_of(whole)
        for place in (whole, part):
            with suppress(FileNotFoundError):
                if place.stat(follow_symlinks=False).st_size == size:
                    return place
        there = self.size()
        if there is None:
            raise state_missing(str(self))
        if there != size:
            raise corrupt(self, f"{there} bytes instead of {size}")
        if size <= _BROUGHT_WHOLE:
            self.fetch_anew()
            return whole
        with fresh_copy(part) as file:
            file.truncate(size)
        return part

    def _bring(self, copy: Copy, offset: int, size: int) -> bool:
        # By the file, and not by its map: a disk that is full is an error there, and a signal here.
        data = self._read_range(offset, size)
        with state_errors(str(self)):
            while data:
                written = os.pwrite(copy.descriptor, data, offset)
                data, offset = data[written:], offset + written
        return True

    @contextmanager
    def _asked(self) -> Iterator[HdfsStore]:
        """Yield the store; what it raises in the block names this place, and not what opening it raises."""
        where, store = str(self), self._store()
        try:
            yield store
        except NotFound as error:
            raise state_missing(where) from error
        except (AlreadyExists, CommitUnknown, StorageDenied, StorageFull, StorageUnavailable) as error:
            raise type(error)(error.what, where=where, path=where) from error


class _UploadedFile(NewFile):
    """A new file whose copy is here; the folder's `sync` waits until it is on HDFS."""

    def __init__(self, file: HdfsFolder) -> None:
        super().__init__(file._copy, str(file))  # noqa: SLF001 - a part of it
        self._file = file

    def publish(self) -> None:
        """Give the copy its name, and begin to write the file to HDFS."""
        self.sync()
        # Mapped now: once it has its name, it may be taken away here before its turn comes.
        with state_errors(self.where):
            data = bytes_of(self._temp)
        super().publish()
        connection = self._file.connection
        uploads = connection.uploads.setdefault(self._file.parent.below, [])
        uploads.append(connection.pool.submit(self._upload, data))

    def _make_durable(self, descriptor: int) -> None:
        """Do nothing: what is here is a copy."""

    def _upload(self, data: memoryview) -> None:
        try:
            self._file.create(data)
        except BaseException as error:
            # Whatever has the name on HDFS is not known to be this.
            with suppress(OSError):
                self._place.unlink()
            if isinstance(error, AlreadyExists):
                raise SegmentExists("the name is taken", where=self.where, path=self.where) from error
            raise


def _signature(status: os.stat_result) -> Signature:
    return status.st_ino, 0, status.st_size
