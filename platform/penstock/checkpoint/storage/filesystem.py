"""Ask after files and folders of a checkpoint, and carry them: of this machine, or of one on HDFS behind a mirror."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from penstock.checkpoint.storage.durable_files import NewFile, make_folder, read_file, state_errors, sync_folder
from penstock.checkpoint.storage.hdfs_cache import is_on_hdfs, mirrored, state_missing
from penstock.errors import RootMissing

__all__ = [
    "bring_anew",
    "carry",
    "files_before",
    "files_below",
    "folders_in",
    "have_file",
    "is_taken",
    "let_go",
    "move_folder",
    "presence_in",
    "read_whole",
    "remove_file",
    "remove_files",
    "remove_folder",
    "size_of",
    "write_for_now",
    "write_whole",
]

_AT_ONCE = 8
"""Requests to HDFS that are under way at once."""


def size_of(path: Path) -> int | None:
    """Return the size of a file in bytes, None where there is none; of one on HDFS, as it is there."""
    remote = mirrored(path)
    if remote is not None:
        return remote.size()
    with state_errors(path), suppress(FileNotFoundError, NotADirectoryError):
        status = path.stat(follow_symlinks=False)
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def have_file(path: Path) -> Path:
    """Return the path of a file that can be read here; raises `StateMissing` where there is none.

    For files whose names are used once, as copies are.
    """
    remote = mirrored(path)
    if not path.is_file():
        if remote is None:
            raise state_missing(path)
        remote.fetch()
    return path


def bring_anew(path: Path) -> bool:
    """Bring a copy of a file on HDFS anew, and return whether it is one; raises `StateMissing` where there is none."""
    remote = mirrored(path)
    if remote is not None:
        remote.fetch()
    return remote is not None


def read_whole(path: Path) -> bytes:
    """Return a file whose name may be used again: of one on HDFS, as it is there. Raises `StateMissing`."""
    remote = mirrored(path)
    return remote.read() if remote is not None else read_file(path, bytes)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whose name may be used again, durably; on HDFS no copy of it is kept.

    Raises `SegmentExists`, on HDFS `AlreadyExists`, where the name is taken.
    """
    remote = mirrored(path)
    if remote is not None:
        remote.create(data)
        return
    make_folder(path.parent)
    with NewFile(path.parent, path.name) as file:
        file.write(data)
        file.publish()
    sync_folder(path.parent)


def write_for_now(path: Path, data: bytes) -> None:
    """Write a file that nobody needs once this process is gone, so not durably; its name is used once."""
    remote = mirrored(path)
    if remote is not None:
        remote.create(data)
        return
    make_folder(path.parent)
    with state_errors(path):
        path.write_bytes(data)


def carry(file: Path, path: Path) -> None:
    """Write a file that is here to HDFS; raises `AlreadyExists` where the name is taken."""
    remote = mirrored(path)
    assert remote is not None
    remote.carry(file)


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder that are no temporary ones, sorted; none where there is no folder."""
    remote = mirrored(folder)
    if remote is not None:
        return remote.files_below()
    paths = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sorted(path for path in paths if not path.name.startswith("."))


def files_before(folder: Path, moment: float) -> list[Path]:
    """Return the files below a folder on HDFS that were written before a moment, in seconds since 1970."""
    remote = mirrored(folder)
    assert remote is not None
    return remote.files_below(before=moment)


def presence_in(folder: Path) -> Callable[[Path], bool]:
    """Return what tells whether a file below a folder is there; on HDFS all are asked after at once."""
    if not is_on_hdfs(folder):
        return lambda path: size_of(path) is not None
    there = set(files_below(folder))
    return there.__contains__


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


def remove_files(paths: Sequence[Path]) -> None:
    """Remove files, oldest first; on HDFS some at a time, which takes as long as one."""
    if paths and is_on_hdfs(paths[0]):
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(remove_file, paths))
        return
    for path in paths:
        remove_file(path)


def let_go(folder: Path, names: Collection[str]) -> None:
    """Remove copies of files on HDFS that are older than all of these names: nobody reads them soon."""
    oldest = min(names, default="")
    if is_on_hdfs(folder) and folder.is_dir():
        for path in folder.iterdir():
            if path.name < oldest and not path.name.startswith("."):  # those are being written
                path.unlink(missing_ok=True)
