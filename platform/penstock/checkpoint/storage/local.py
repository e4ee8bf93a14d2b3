"""Keep a checkpoint on a local file system: temporary file, fsync, link, fsync of the folder.

`link` is used and not `rename`, because it alone refuses a name that is taken.
Folders are walked by descriptor and symbolic links are never followed (F65).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

from penstock.checkpoint.storage.store import READ_CAP, corrupt, elements, folder_elements
from penstock.errors import (
    AlreadyExists,
    CommitUnknown,
    NotExclusive,
    NotFound,
    PathEscapes,
    PenstockError,
    RootUnsafe,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How a file of a checkpoint is opened: through no link, and without waiting for a pipe."""
_TEMP = re.compile(r"\.tmp-[0-9a-f]{32}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_LINKED = {errno.ELOOP, errno.ENOTDIR}
_NO_LINKS = {errno.EOPNOTSUPP, errno.ENOSYS}


class LocalStore:
    """A `CheckpointStore` below a folder of this machine.

    The folder is made with mode 0700. One that is a symbolic link, belongs to another user, or can be written by
    group or others is refused with `RootUnsafe`.
    A shared root needs a file system with the promises of a disk: link(2) makes a name for all machines or for none,
    and synced data is there. The driver and the executors of a cluster prove the sharing to each other. No machine
    alone can prove that link(2) is exclusive between two.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self._durable: set[tuple[str, ...]] = set()
        with named_errors(self.root):
            self._make_root()
            self._check_root()

    def create(self, path: str, data: bytes) -> None:
        """Write a new file whole and durably, or raise `AlreadyExists`; no failure leaves a part under the name."""
        *parents, name = elements(path)
        try:
            with named_errors(path), self._folder(tuple(parents), path, make=True) as folder:
                created = _publish(folder, name, data)
                # Also when the name was taken: a caller that acts on another's entry must not lose it to a power cut.
                _make_durable(folder, path)
        except FileNotFoundError as error:
            raise StorageUnavailable("folder or temporary file was taken away", where=path, path=path) from error
        if not created:
            raise AlreadyExists("the name is taken", where=path, path=path)

    def read(self, path: str) -> bytes:
        """Return the file's bytes; raises `NotFound`, or `CheckpointCorrupt` for anything but a plain file."""
        *parents, name = elements(path)
        try:
            with named_errors(path), self._folder(tuple(parents), path) as folder:
                return _read(os.open(name, OLD, dir_fd=folder), path)
        except FileNotFoundError as error:
            raise NotFound("no such file", where=path, path=path) from error

    def exists(self, path: str) -> bool:
        """Return whether the name is taken; a symbolic link raises `RootUnsafe`.

        By a folder or a pipe too, which `read` calls damage: nobody can create a file of that name.
        """
        *parents, name = elements(path)
        try:
            with named_errors(path), self._folder(tuple(parents), path) as folder:
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(mode):
            raise RootUnsafe("a symbolic link is in the checkpoint", where=path, path=path)
        return True

    def list(self, prefix: str) -> list[str]:
        """List the files below a folder, sorted; names that no store writes are passed over."""
        start = folder_elements(prefix)
        listed = []
        with named_errors(prefix):
            for folder, names in self._walk(start):
                for name in names:
                    with suppress(PathEscapes):
                        elements(name)
                        listed.append("/".join((*folder, name)))
        return sorted(listed)

    def delete(self, path: str) -> None:
        """Remove the file if it is there."""
        *parents, name = elements(path)
        with suppress(FileNotFoundError), named_errors(path), self._folder(tuple(parents), path) as folder:
            try:
                os.unlink(name, dir_fd=folder)
            except IsADirectoryError as error:
                raise PathEscapes("a folder, not a file", where=path, path=path) from error

    def janitor(self, grace_seconds: float, now: float) -> int:
        """Remove temporary files older than the grace, and return how many (F15).

        `now` is the wall clock in seconds since 1970. The grace must be longer than any single write can take;
        a writer whose temporary file is taken away fails and has written nothing.
        """
        removed = 0
        with named_errors(self.root):
            for parts, names in self._walk(()):
                left = [name for name in names if _TEMP.fullmatch(name)]
                with suppress(FileNotFoundError), self._folder(parts, self.root) as folder:
                    for name in left:
                        with suppress(FileNotFoundError):
                            if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < now - grace_seconds:
                                os.unlink(name, dir_fd=folder)
                                removed += 1
        return removed

    def _make_root(self) -> None:
        parent = os.path.dirname(self.root)
        make_folders(parent)
        try:
            os.mkdir(self.root, 0o700)
        except FileExistsError:
            return
        make_durable(parent)

    def _check_root(self) -> None:
        status = os.lstat(self.root)
        if not stat.S_ISDIR(status.st_mode):
            reason = "the checkpoint root is not a folder of its own"
        elif status.st_uid != os.geteuid():
            reason = f"the checkpoint root belongs to user {status.st_uid}, not to {os.geteuid()}"
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            reason = "the checkpoint root can be written by group or others"
        else:
            return
        raise RootUnsafe(reason, where=self.root, path=self.root)

    @contextmanager
    def _folder(self, parts: tuple[str, ...], path: str, *, make: bool = False) -> Iterator[int]:
        """Open a folder of the checkpoint, without following links; `FileNotFoundError` when it is not there."""
        try:
            descriptor = os.open(self.root, _FOLDER)
        except FileNotFoundError as error:
            # Not the same as an empty checkpoint: an unmounted root must not look like a new job.
            raise StorageUnavailable("the checkpoint root is gone", where=self.root, path=path) from error
        try:
            for depth, part in enumerate(parts, start=1):
                below = _enter(descriptor, part, make=make)
                os.close(descriptor)
                descriptor = below
                # Once a folder and store, also when another process made it: it may have died before its own fsync.
                if make and parts[:depth] not in self._durable:
                    os.fsync(descriptor)
                    sync("..", folder=descriptor)
                    self._durable.add(parts[:depth])
            yield descriptor
        finally:
            os.close(descriptor)

    def _walk(self, start: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Sequence[str]]]:
        """Yield each folder from `start` down, with the names of the plain files in it."""
        todo = [start]
        while todo:
            parts = todo.pop()
            with suppress(FileNotFoundError), self._folder(parts, "/".join(parts)) as folder:
                with os.scandir(folder) as entries:
                    entries_here = tuple(entries)
                yield parts, [entry.name for entry in entries_here if entry.is_file(follow_symlinks=False)]
                todo.extend((*parts, entry.name) for entry in entries_here if entry.is_dir(follow_symlinks=False))


def _enter(folder: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)


def create_beside(
    folder: str | os.PathLike[str], name: str, data: bytes | memoryview, *, still: Callable[[], bool] = lambda: True
) -> bool:
    """Write a new file whole and durably into a folder that others read as well; False when the name is taken.

    For folders that are no checkpoint's: whose they are, and who may read the file, is as for any file of the process.
    `still` is asked when the folder is open: where it says no, nothing is written, and the answer is False. A folder
    that is replaced by another one after that gets nothing.
    Raises OSError; whether the name is there is then not known.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not still():
            return False
        created = _publish(descriptor, name, data, mode=0o666)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return created


def make_folders(folder: str | os.PathLike[str]) -> None:
    """Make a folder, and those above it that are missing, durably, for any user; raises OSError."""
    missing, path = [], os.path.abspath(os.fspath(folder))
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for made in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(made)
        make_durable(os.path.dirname(made))


def make_durable(path: str | os.PathLike[str]) -> None:
    """Have a file or the names in a folder be there after a power cut; one that is gone has nothing to keep."""
    with suppress(FileNotFoundError):
        sync(path)


def sync(path: str | os.PathLike[str], *, folder: int | None = None) -> None:
    """Have a file or the names in a folder be there after a power cut; a relative path is one below `folder`.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(folder: int, name: str, data: bytes | memoryview, mode: int) -> None:
    descriptor = os.open(name, NEW, mode, dir_fd=folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int, path: str) -> bytes:
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise corrupt(path, "not a plain file")
        if status.st_size > READ_CAP:
            raise corrupt(path, f"{status.st_size} bytes, more than any file of a checkpoint has")
        return b"".join(iter(partial(os.read, descriptor, 2**20), b""))
    finally:
        os.close(descriptor)


def _publish(folder: int, name: str, data: bytes | memoryview, *, mode: int = 0o600) -> bool:
    """Write a temporary file and link it to its name; False when the name is taken."""
    temp = f".tmp-{secrets.token_hex(16)}"
    try:
        _write(folder, temp, data, mode)
        os.link(temp, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise NotExclusive("the file system cannot link files", where=name) from error
        raise
    finally:
        with suppress(OSError):  # a left-over is the janitor's (F15)
            os.unlink(temp, dir_fd=folder)
    return True


def _make_durable(folder: int, path: str) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        # The name may be there or not after a power cut: it must not be called a failure (F58's kind of doubt).
        raise CommitUnknown("the folder could not be synced after a write", where=path, path=path) from error


def storage_errors(path: str) -> AbstractContextManager[None]:
    """Turn what the operating system says into the errors of a store, also that something was taken away."""
    problem = "a folder or a file was taken away"
    return named_errors(path, lambda error: StorageUnavailable(f"{problem}: {error.strerror}", where=path))


@contextmanager
def named_errors(path: str, missing: Callable[[OSError], PenstockError] | None = None) -> Iterator[None]:
    """Turn what the operating system says into the errors of a store.

    `missing` makes that of a file that is not there; without it, `FileNotFoundError` is left to the caller.
    """
    try:
        yield
    except PenstockError:
        raise
    except FileNotFoundError as error:
        if missing is None:
            raise
        raise missing(error) from error
    except OSError as error:
        reason = f"{error.strerror or error}"
        if error.errno in _FULL:
            raise StorageFull(f"no room for {path}: {reason}", where=path, path=path) from error
        if error.errno in _DENIED:
            raise StorageDenied(f"not permitted: {reason}", where=path, path=path) from error
        if error.errno == errno.EISDIR:
            raise corrupt(path, "not a plain file") from error
        if error.errno in _LINKED:
            raise RootUnsafe("a link or a file is where a folder should be", where=path, path=path) from error
        raise StorageUnavailable(f"the store failed: {reason}", where=path, path=path) from error
