"""Work with files of a checkpoint that this machine sees: write them durably, and map them for reading.

Symbolic links are never followed (F65).
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.checkpoint.storage.folder import CheckpointFolder, Mapped, Signature, corrupt
from penstock.checkpoint.storage.local import OLD, LocalStore, make_durable, make_folders, storage_errors, sync
from penstock.checkpoint.storage.new_file import NewFile, state_errors, state_missing
from penstock.errors import RootMissing, StorageDenied, StorageUnavailable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LocalFolder", "map_open", "read_plain"]

Checked = TypeVar("Checked")

_private: set[Path] = set()
_shared: set[Path] = set()


class LocalFolder(PosixPath):
    """A `CheckpointFolder` on this machine, which is a path as well."""

    __slots__ = ()

    @property
    def here(self) -> Path:
        """The place itself."""
        return self

    @property
    def address(self) -> str:
        """The path."""
        return str(self)

    @property
    def fetched(self) -> int:
        """Nothing has to be brought."""
        return 0

    def store(self, *, make: bool = True) -> LocalStore:
        """Open the store whose root is this folder."""
        if not make and not self.is_dir():
            raise RootMissing("there is no such folder", where=str(self))
        return LocalStore(self)

    def hurried(self, seconds: float) -> Self:
        """Return the place: nobody else is asked."""
        return self

    @contextmanager
    def uncached(self) -> Iterator[Self]:
        """Yield the place: there are no copies."""
        yield self

    def size(self) -> int | None:
        """Return the size of the plain file in bytes, None where there is none."""
        with state_errors(str(self)), suppress(FileNotFoundError, NotADirectoryError):
            status = self.stat(follow_symlinks=False)
            return status.st_size if stat.S_ISREG(status.st_mode) else None
        return None

    def is_taken(self) -> bool:
        """Return whether anything has this path."""
        return self.exists()

    def is_missing(self) -> bool:
        """Return whether there is no such folder."""
        with state_errors(str(self)):
            return not self.is_dir()

    def files(self) -> list[Self]:
        """Return all files below the folder but temporary ones, sorted."""
        with state_errors(str(self)):
            walked = os.walk(self, onerror=_raise_unless_gone)
            places = [type(self)(folder, name) for folder, _, names in walked for name in names]
        return sorted(place for place in places if not place.name.startswith("."))

    def folders(self) -> Sequence[str]:
        """Return the names of the folders right in the folder, sorted."""
        with state_errors(str(self)):
            if not self.is_dir():
                raise RootMissing("there is no such folder", where=str(self))
            return sorted(path.name for path in self.iterdir() if path.is_dir())

    def presence(self) -> Callable[[LocalFolder], bool]:
        """Return what looks for a file."""
        return lambda file: file.size() is not None

    def read(self) -> bytes:
        """Return the file."""
        return read_plain(self, str(self))

    def read_checked(self, check: Callable[[bytes], Checked]) -> Checked:
        """Return what a check makes of the file."""
        return check(self.read())

    def map(self, size: int) -> Mapped:
        """Map the file."""
        with state_errors(str(self)), os.fdopen(os.open(self, OLD), "rb", buffering=0) as file:
            data, status = map_open(file.fileno(), self, size)
        return Mapped(data, _signature(status), lambda _offset, _size: False)

    def signature(self) -> Signature | None:
        """Return what tells this file from another of its name."""
        with state_errors(str(self)), suppress(FileNotFoundError):
            return _signature(self.stat(follow_symlinks=False))
        return None

    def fetch(self) -> Path:
        """Return the path of a file that is there."""
        if not self.is_file():
            raise state_missing(str(self))
        return self

    def fetch_anew(self) -> bool:
        """Return False: it is no copy."""
        return False

    def make(self) -> None:
        """Make the folder, and those above it, durably and for this user alone."""
        if self in _private and self.is_dir():
            return
        missing = [path for path in (self, *self.parents) if not path.is_dir()]
        for path in reversed(missing):
            with state_errors(str(path)):
                path.mkdir(mode=0o700, exist_ok=True)
        for path in (self, *self.parents[: max(2, len(missing))]):
            path.sync()
        _private.add(self)

    def make_shared(self) -> None:
        """Make the folder as any process makes one."""
        where = str(self.parent)
        try:
            self.mkdir(parents=True, exist_ok=True)
        except (PermissionError, FileExistsError, NotADirectoryError) as why:
            raise StorageDenied(f"the folder cannot be made: {why.strerror}", where=where) from why
        except OSError as why:
            raise StorageUnavailable(f"the folder cannot be made: {why.strerror}", where=where) from why

    def new_file(self, name: str) -> NewFile:
        """Begin a file in this folder."""
        place = self / name
        return NewFile(place, str(place))

    def sync(self) -> None:
        """Make the names in the folder durable."""
        with state_errors(str(self)):
            sync(self)

    def create(self, data: bytes) -> None:
        """Write the file durably; raises `SegmentExists`."""
        with self.parent.new_file(self.name) as file:
            file.write(data)
            file.publish()
        self.parent.sync()

    def create_fleeting(self, data: bytes) -> None:
        """Write the file, and its folder where that is missing."""
        self.parent.make()
        with state_errors(str(self)):
            self.write_bytes(data)

    def stage(self, data: memoryview) -> None:
        """Write an output file as any process writes one, durably; no partial file keeps the name."""
        with storage_errors(str(self)):
            _make_for_output(self.parent)
            file = self.open("xb")
            try:
                with file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                self.unlink(missing_ok=True)
                raise
        self.parent.sync()

    def adopt(self, file: Path, *, link: bool) -> None:
        """Link the file to this name, or copy it where that is wanted or where the folders are on two file systems."""
        self.parent.make()
        with state_errors(str(self)), suppress(FileExistsError):
            if link:
                with suppress(OSError):
                    os.link(file, self)
                    return
            temporary = self.with_name(f".tmp-{secrets.token_hex(16)}")
            try:
                shutil.copyfile(file, temporary)
                sync(temporary)
                temporary.replace(self)
            finally:
                temporary.unlink(missing_ok=True)

    def move_to(self, target: Self) -> None:
        """Rename the folder durably."""
        self.rename(target)
        target.parent.sync()

    def remove(self) -> None:
        """Remove the file."""
        self.unlink(missing_ok=True)

    def remove_files(self, files: Sequence[Self]) -> None:
        """Remove files, one after the other."""
        for file in files:
            file.remove()

    def remove_all(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self, ignore_errors=True)

    def let_go(self, names: Collection[str]) -> None:
        """Keep everything: nothing here is a copy."""


def map_open(descriptor: int, place: CheckpointFolder, size: int) -> tuple[pa.Buffer, os.stat_result]:
    """Map an open file that must have this size in bytes, or raise `CheckpointCorrupt`; return its status too.

    The map stays when the descriptor is closed, and holds none: a process has more maps than it may have open files.
    """
    import pyarrow as pa

    status = os.fstat(descriptor)
    if status.st_size != size:
        raise corrupt(place, f"{status.st_size} bytes instead of {size}")
    # Python's mmap would keep a second descriptor. By the number, as the name may have gone to another file.
    with pa.memory_map(f"/dev/fd/{descriptor}") as file:
        return file.read_buffer(), status


def read_plain(path: Path, where: str) -> bytes:
    """Return a file of this machine that is no symbolic link; `where` names it in errors."""
    with state_errors(where), os.fdopen(os.open(path, OLD), "rb") as file:
        return file.read()


def _raise_unless_gone(why: OSError) -> None:
    """Leave out a folder that was removed meanwhile, and none that may not be read: it would look empty."""
    if not isinstance(why, FileNotFoundError | NotADirectoryError):
        raise why


def _signature(status: os.stat_result) -> Signature:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _make_for_output(folder: Path) -> None:
    """Make a folder for any user, durably; one that is there too, once a process."""
    if folder in _shared and folder.is_dir():
        return
    make_folders(folder)
    for made in (folder, *folder.parents[:2]):
        make_durable(made)
    _shared.add(folder)
