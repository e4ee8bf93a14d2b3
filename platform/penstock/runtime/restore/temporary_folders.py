"""Make a folder beside its place, in one that is the writer's own; clear up what dead writers have left (F72).

A writer locks its folder for as long as it lives, by flock(2), which a process that is stopped keeps and one that died
does not. So a process that clears up, however late it wakes, takes nothing away from a writer that lives.
Where the file system has no locks, as on HDFS, nothing that others have made is cleared up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from penstock.errors import AlreadyExists, CannotCopy

__all__ = ["alone_in", "clear_left", "copy_plain", "making", "move_into_place", "refuse_links"]

Folder = TypeVar("Folder", bound=CheckpointFolder)

_PIECE = 2**22
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN}


@contextmanager
def making(parent: Folder, name: str) -> Iterator[Folder]:
    """Yield a new folder `<parent>/<name>-<random>` that nobody else writes to or clears up inside the block.

    An error removes what it holds. Who is killed leaves it to `clear_left`.
    """
    folder = parent / f"{name}-{secrets.token_hex(16)}"
    with ExitStack() as locks:
        if not isinstance(folder, HdfsFolder):
            _make_locked(folder, locks)
        try:
            yield folder
        except Exception:
            folder.remove_all()
            raise


def _make_locked(folder: CheckpointFolder, locks: ExitStack) -> None:
    while True:
        folder.make()
        with suppress(FileNotFoundError):
            lock = os.open(folder.here, _FOLDER)
            locks.callback(os.close, lock)
            with suppress(OSError):  # a file system without locks: then nobody clears up either
                fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_missing():  # who clears up may have come between the two
            return


def clear_left(folders: Iterable[Path]) -> None:
    """Remove folders whose writers are dead; those of writers that live, or may live, stay."""
    for folder in folders:
        with suppress(OSError):
            lock = os.open(folder, _FOLDER | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder for a short while; raises CannotCopy where another process of this machine holds it."""
    lock = os.open(folder, _FOLDER)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as why:
            if why.errno in _BUSY:
                busy = "another command is putting a checkpoint into its place; end it, or wait for it, and try again"
                raise CannotCopy(busy, where=str(folder)) from None
        yield
    finally:
        os.close(lock)


def move_into_place(made_in: CheckpointFolder, place: CheckpointFolder) -> None:
    """Give a folder that is whole its name; raises CannotCopy where that cannot be done."""
    try:
        made_in.move_to(place)
    except (OSError, AlreadyExists) as why:
        reason = getattr(why, "strerror", None) or why
        raise CannotCopy(f"it cannot be moved to its place: {reason}", where=str(place)) from why


def refuse_links(source: Path) -> None:
    """Raise CannotCopy where a folder of this machine holds anything but files and folders (F65)."""
    for path in sorted(source.rglob("*")):
        with suppress(FileNotFoundError):  # swept meanwhile
            _refuse_link(path, path.lstat().st_mode)


def copy_plain(path: Path, folder: CheckpointFolder) -> None:
    """Copy a file into a folder under its name, which the folder's `sync` makes durable.

    Raises CannotCopy for a symbolic link, also where one was put there since `refuse_links`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as why:
        if why.errno == errno.ELOOP:
            _refuse_link(path, stat.S_IFLNK)
        raise
    with os.fdopen(descriptor, "rb") as source, folder.new_file(path.name) as copy:
        while data := source.read(_PIECE):
            copy.write(data)
        copy.publish()


def _refuse_link(path: Path, mode: int) -> None:
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "what is neither a file nor a folder"
        raise CannotCopy(f"{what} is not copied; Penstock makes none in a checkpoint", where=str(path))
