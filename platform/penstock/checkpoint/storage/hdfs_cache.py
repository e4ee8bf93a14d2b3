"""Work with a checkpoint on HDFS through a folder of this machine that mirrors it (DESIGN 6).

A root on HDFS stands for the folder `<cache>/<its URL, quoted as one name>`. A path below that folder says by itself
which file of which HDFS it means, so it can be sent to tasks on other machines, where the same file may not be yet.
Only files whose names are used once, because the run's random id is in them, have copies in the folder: such a copy
needs no comparison with HDFS, and may be removed at any time. All else is read from HDFS each time.

`penstock.checkpoint.storage.durable_files` reads and writes through it; others ask here where a path leads.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote, unquote

from penstock.checkpoint.storage.hdfs import PATIENCE, HdfsStore, parse_root
from penstock.checkpoint.storage.local import LocalStore, named_errors
from penstock.errors import (
    AlreadyExists,
    CommitUnknown,
    ConfigError,
    NotFound,
    RootMissing,
    SegmentExists,
    StateMissing,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

if TYPE_CHECKING:
    from penstock.checkpoint.storage.store import CheckpointStore

__all__ = [
    "CachedFile",
    "bytes_of",
    "fetched",
    "hurried",
    "is_on_hdfs",
    "is_url",
    "make_cache_folder",
    "mirrored",
    "open_store",
    "part_of",
    "root_of",
    "shown",
    "state_missing",
    "without_cache",
]

_SCHEMES = ("webhdfs://", "swebhdfs://", "hdfs://")
_ESCAPE = "~"
"""What stands for the percent sign in a quoted URL: Delta's writers take a path for a URL, and decode it."""
_LONGEST_NAME = 255
_DAY, _WEEK = 86_400.0, 604_800.0
_SWEPT, _FRESH = ".swept", ".fresh-"
_PIECE = 2**26
"""Bytes that are brought at a time."""
_OURS = (("_logs",), ("_reports",), ("_versions",))
"""What is in the folder and on HDFS not: what a supervisor keeps of its drivers, and reports."""
_UPLOADS = 4
"""Files that a process writes to HDFS at once: a task's segment and manifest, and those of the task beside it."""


def is_url(root: str) -> bool:
    """Return whether a root is one on HDFS; whether it is a right one, `root_of` tells."""
    return root.startswith(_SCHEMES)


def root_of(root: str | Path, *, project: Path | None = None, cache: str | None = None) -> Path:
    """Return the folder that is meant by a root: a path, or a URL of HDFS, which a folder below `cache` stands for.

    Both are relative to the project. Without a cache it is this user's own. Raises ConfigError for a URL that is none.
    """
    base = Path() if project is None else project
    if isinstance(root, Path) or not is_url(root):
        return base / root
    parse_root(root)
    name = _quoted(root.rstrip("/"))
    if len(name) > _LONGEST_NAME:
        raise ConfigError(f"{root[:80]}... is longer than the name of a folder may be; take a shorter path on HDFS")
    own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (base / cache if cache is not None else Path(own) / "penstock") / name


def is_on_hdfs(path: Path) -> bool:
    """Return whether a path stands for one on HDFS."""
    return _split(os.fspath(path))[0] is not None


def shown(path: Path) -> str:
    """Return how a path is shown to people: one of a mirror as the URL that it stands for."""
    text = os.fspath(path)
    root, below = _split(text)
    return text if root is None else "/".join([_unquoted(root.name), *below])


def state_missing(path: Path) -> StateMissing:
    """Make the error for a file that is not there."""
    return StateMissing("no such state file", where=shown(path), path=shown(path))


def mirrored(path: Path) -> CachedFile | None:
    """Return the file on HDFS that a path stands for, or None for a file of this machine."""
    root, below = _split(os.fspath(path))
    if root is None:
        return None
    return CachedFile(path, _store(os.fspath(root), make=False), "/".join(below))


def open_store(folder: Path, *, make: bool = True) -> CheckpointStore:
    """Return the store whose root is a folder, which is made if need be, or else must be there.

    Raises RootMissing, and what `LocalStore` and `HdfsStore` raise.
    """
    root, below = _split(os.fspath(folder))
    if root is not None:
        return _store(os.fspath(root), *below, make=make)
    if not make and not folder.is_dir():
        raise RootMissing("there is no such folder", where=str(folder))
    return LocalStore(folder)


@contextmanager
def without_cache(folder: Path) -> Iterator[Path]:
    """Let nothing be taken from the mirror inside the block: yields the folder to read from, which begins empty.

    For who wants to know what stands on HDFS. A folder of this machine is yielded as it is.
    """
    root, below = _split(os.fspath(folder))
    if root is None:
        yield folder
        return
    LocalStore(root.parent)
    with tempfile.TemporaryDirectory(prefix=_FRESH, dir=root.parent) as cache:
        yield Path(cache, root.name, *below)


class CachedFile:
    """One file or folder of a checkpoint on HDFS: `path` is its place here, `name` that in `store`.

    Its errors name the URL.
    """

    __slots__ = ("name", "path", "store")

    def __init__(self, path: Path, store: HdfsStore, name: str) -> None:
        self.path = path
        self.store = store
        self.name = name

    def upload(self, data: memoryview) -> None:
        """Begin to write the file to HDFS, which is here already; `wait` tells how it went, and must be called."""
        _pending.setdefault(self.path.parent, []).append(_pool().submit(self._uploaded, data))

    def wait(self) -> None:
        """Wait until all that was begun in this folder is on HDFS, and raise the first error.

        What could not be written there is here no longer.
        """
        failed = [why for upload in _pending.pop(self.path, []) if (why := upload.exception()) is not None]
        if failed:
            raise failed[0]

    def create(self, data: bytes | memoryview) -> None:
        """Write the file to HDFS, and not here; raises `AlreadyExists` where its name is taken."""
        with self._named():
            self.store.create(self.name, data)

    def carry(self, file: Path) -> None:
        """Write the file to HDFS as another one is here."""
        self.create(bytes_of(file))

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Return some bytes of the file on HDFS, or all; raises StateMissing where there is none."""
        global _fetched  # noqa: PLW0603 - a worker of Spark does one task at a time, and tells what it took
        with self._named():
            data = self.store.read_range(self.name, offset, size)
        _fetched += len(data)
        return data

    def size(self) -> int | None:
        """Return the size of the file on HDFS in bytes, None where there is none."""
        with self._named():
            return self.store.size(self.name)

    def fetch(self) -> None:
        """Have the whole file here; raises StateMissing where HDFS has none."""
        size = self.size()
        if size is None:
            raise state_missing(self.path)
        with self._fresh() as file:
            for offset in range(0, size, _PIECE):
                file.write(self.read(offset, min(_PIECE, size - offset)))

    def keep(self, data: bytes) -> None:
        """Have the file here, whose bytes these are."""
        with self._fresh() as file:
            file.write(data)

    def make_room(self, path: Path, size: int) -> None:
        """Have an empty file of that size here, at another path, whose bytes are brought when they are asked for."""
        with self._fresh(path) as file:
            file.truncate(size)

    def remove(self) -> None:
        """Remove the file, there and here."""
        with self._named():
            self.store.delete(self.name)
        for copy in (self.path, part_of(self.path)):
            copy.unlink(missing_ok=True)

    def files_below(self, *, before: float | None = None) -> list[Path]:
        """Return all files below the folder on HDFS, sorted; those of before a time, in seconds since 1970."""
        root = self.path if not self.name else Path(os.fspath(self.path).removesuffix(f"/{self.name}"))
        with self._named():
            return [root / name for name in self.store.list(self.name, before=before)]

    @contextmanager
    def _fresh(self, path: Path | None = None) -> Iterator[IO[bytes]]:
        """Open a file that gets its name here when it is whole, in the place of what has it."""
        place = self.path if path is None else path
        make_cache_folder(place.parent)
        temp = place.with_name(f".tmp-{os.urandom(16).hex()}")
        with named_errors(os.fspath(place)):  # the disk here is full, and not HDFS
            try:
                with temp.open("xb") as file:
                    yield file
                temp.replace(place)  # two that bring the same file bring the same
            finally:
                temp.unlink(missing_ok=True)

    def _uploaded(self, data: memoryview) -> None:
        try:
            with self._named():
                self.store.create(self.name, data)
        except BaseException as error:
            # Whatever has the name on HDFS is not known to be this.
            with suppress(OSError):
                self.path.unlink()
            if isinstance(error, AlreadyExists):
                raise SegmentExists("the name is taken", where=shown(self.path), path=shown(self.path)) from error
            raise

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except NotFound as error:
            raise state_missing(self.path) from error
        except (AlreadyExists, CommitUnknown, StorageDenied, StorageFull, StorageUnavailable) as error:
            where = shown(self.path)
            raise type(error)(error.what, where=where, path=where) from error


def bytes_of(file: Path) -> memoryview:
    """Return the bytes of a file, without a copy, also when it is removed."""
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        return memoryview(mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) if size else b"")


def fetched() -> int:
    """Return the bytes that were not here and were brought from HDFS, since the process began."""
    return _fetched


_fetched = 0
_patience: ContextVar[float] = ContextVar("patience", default=PATIENCE)
_pending: dict[Path, list[Future[None]]] = {}


def part_of(path: Path) -> Path:
    """Return where a copy of a file is that need not be whole."""
    return path.with_name(f"{path.name}.part")


def make_cache_folder(folder: Path) -> None:
    """Make a folder of a mirror, for its user alone."""
    with suppress(FileExistsError):
        try:
            folder.mkdir(mode=0o700)
        except FileNotFoundError:
            make_cache_folder(folder.parent)
            folder.mkdir(mode=0o700)


def _quoted(url: str) -> str:
    return quote(url, safe="").replace("%", _ESCAPE)


def _unquoted(name: str) -> str:
    return unquote(name.replace(_ESCAPE, "%"))


_MARK = _quoted("webhdfs://")


def _split(path: str) -> tuple[Path | None, tuple[str, ...]]:
    """Return the folder that stands for a root on HDFS, and what is below it; None for a path of this machine."""
    if _MARK not in path:
        return None, ()
    parts = Path(path).parts
    at = next((i for i, part in enumerate(parts) if part.removeprefix("s").startswith(_MARK)), None)
    return (None, ()) if at is None else (Path(*parts[: at + 1]), parts[at + 1 :])


@lru_cache(maxsize=64)
def _store(root: str, *below: str, make: bool) -> HdfsStore:
    """Return the store of a root, or of a folder below it; one for a process."""
    folder = Path(root)
    # Whoever else could write in it could put in a state of his own.
    LocalStore(folder.parent)
    make_cache_folder(folder)
    _sweep(folder)
    return HdfsStore("/".join([_unquoted(folder.name), *below]), make=make, patience=_patience.get())


def _sweep(folder: Path) -> None:
    """Remove what nobody has written for long, once a day: killed tasks leave parts, and partitions move on."""
    mark, now = folder / _SWEPT, time.time()
    with suppress(FileNotFoundError):
        if mark.stat().st_mtime > now - _DAY:
            return
    mark.touch(mode=0o600)
    for left in folder.parent.glob(f"{_FRESH}*"):
        if left.stat().st_mtime < now - _DAY:
            shutil.rmtree(left, ignore_errors=True)
    for place, _, names in os.walk(folder):
        if Path(place).relative_to(folder).parts[:1] not in _OURS:
            for path in (Path(place, name) for name in names if name != _SWEPT):
                with suppress(FileNotFoundError):
                    age = now - path.stat().st_mtime
                    if age > (_DAY if path.name.startswith(".") else _WEEK):
                        path.unlink()


@contextmanager
def hurried(seconds: float) -> Iterator[None]:
    """Wait no longer than so many seconds for HDFS inside the block: for who would rather show less than be late."""
    token = _patience.set(seconds)
    _store.cache_clear()
    try:
        yield
    finally:
        _patience.reset(token)
        _store.cache_clear()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_UPLOADS, thread_name_prefix="penstock-upload")


def _forget() -> None:
    _store.cache_clear()
    _pool.cache_clear()
    _pending.clear()


# Connections and threads are no child's to use.
os.register_at_fork(after_in_child=_forget)
