"""Ask after files and folders of a checkpoint, and carry them: of this machine, or of one on HDFS behind a mirror."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.checkpoint.files import state_errors, state_missing, sync_folder
from penstock.checkpoint.mirror import is_on_hdfs, mirrored
from penstock.errors import RootMissing

__all__ = [
    "bring_anew",
    "files_below",
    "folders_in",
    "have_file",
    "is_taken",
    "let_go",
    "move_folder",
    "remove_file",
    "remove_folder",
    "size_of",
    "upload",
]


def size_of(path: Path) -> int | None:
    """Return the size of a file in bytes, None where there is none; of one on HDFS, as it is there."""
    remote = mirrored(path)
    if remote is not None:
        return remote.size()
    with state_errors(path), suppress(FileNotFoundError, NotADirectoryError):
        found = path.stat(follow_symlinks=False)
        return found.st_size if stat.S_ISREG(found.st_mode) else None
    return None


def have_file(path: Path) -> Path:
    """Return the path of a file that can be read here, whole; raises `StateMissing` where there is none."""
    remote = mirrored(path)
    size = size_of(path)
    if size is None:
        raise state_missing(path)
    if remote is not None and not (path.is_file() and path.stat().st_size == size):
        remote.fetch()
    return path


def bring_anew(path: Path) -> bool:
    """Bring a copy of a file on HDFS anew, and return whether it is one; raises `StateMissing` where there is none."""
    remote = mirrored(path)
    if remote is not None:
        remote.fetch()
    return remote is not None


def upload(path: Path) -> None:
    """Write a file that somebody else has made in a mirror to HDFS too; nothing is to be done for others.

    Raises `AlreadyExists` where HDFS has one of that name; then it is here no longer.
    """
    remote = mirrored(path)
    if remote is not None:
        remote.upload()
        sync_folder(path.parent)


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder that are no temporary ones, sorted; none where there is no folder."""
    remote = mirrored(folder)
    if remote is not None:
        return remote.files_below()
    found = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if not path.name.startswith("."))


def folders_in(folder: Path) -> Sequence[str]:
    """Return the names of the folders right in a folder, sorted. Raises RootMissing where there is none."""
    remote = mirrored(folder)
    if remote is not None:
        return remote.store.folders(remote.name)
    if not folder.is_dir():
        raise RootMissing("there is no such folder", where=str(folder))
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def is_taken(path: Path) -> bool:
    """Return whether anything stands at a path."""
    remote = mirrored(path)
    return path.exists() if remote is None else remote.store.is_taken(remote.name)


def move_folder(made_in: Path, folder: Path) -> None:
    """Give a folder that is whole another name, durably; raises FileExistsError and other OSErrors."""
    here, there = mirrored(made_in), mirrored(folder)
    if here is not None and there is not None:
        here.store.move_folder(here.name, there.name)
        shutil.rmtree(made_in, ignore_errors=True)
        return
    made_in.rename(folder)
    sync_folder(folder.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that is possible."""
    remote = mirrored(folder)
    if remote is not None:
        remote.store.remove_folder(remote.name)
    shutil.rmtree(folder, ignore_errors=True)


def remove_file(path: Path) -> None:
    """Remove a file; to remove what is not there changes nothing."""
    remote = mirrored(path)
    if remote is not None:
        remote.remove()
    else:
        path.unlink(missing_ok=True)


def let_go(folder: Path, names: Collection[str]) -> None:
    """Remove copies of files on HDFS that are older than all of these names: nobody reads them soon."""
    oldest = min(names, default="")
    if is_on_hdfs(folder) and folder.is_dir():
        for path in folder.iterdir():
            if path.name < oldest and not path.name.startswith("."):  # those are being written
                path.unlink(missing_ok=True)
