"""Work with a checkpoint on HDFS through a folder of this machine that mirrors it (DESIGN 6).

A root on HDFS stands for the folder `<cache>/<its URL, quoted as one name>`. A path below that folder says by itself
which file of which HDFS it means, so it can be sent to tasks on other machines, where the same file may not be yet.
Files of a checkpoint never change and no name is used twice: what is in the folder needs no comparison with HDFS, and
may be removed at any time.

`penstock.checkpoint.files` reads and writes through it; others ask here where a path leads.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from penstock.checkpoint.local import LocalStore
from penstock.errors import ConfigError, NotFound, RootMissing, StateMissing

if TYPE_CHECKING:
    from penstock.checkpoint.hdfs import HdfsStore
    from penstock.checkpoint.store import CheckpointStore

__all__ = [
    "Mirrored",
    "fetched",
    "is_on_hdfs",
    "is_url",
    "make_cache_folder",
    "mirrored",
    "open_store",
    "root_of",
    "shown",
    "without_cache",
]

_SCHEMES = ("webhdfs://", "swebhdfs://", "hdfs://")
_ESCAPE = "~"
"""What stands for the percent sign in a quoted URL: Delta's writers take a path for a URL, and decode it."""
_LONGEST_NAME = 255
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
    from penstock.checkpoint.hdfs import parse_root

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


def mirrored(path: Path) -> Mirrored | None:
    """Return the file on HDFS that a path stands for, or None for a file of this machine."""
    root, below = _split(os.fspath(path))
    if root is None:
        return None
    return Mirrored(path, _store(_unquoted(root.name), make=False), "/".join(below))


def open_store(folder: Path, *, make: bool = True) -> CheckpointStore:
    """Return the store whose root is a folder, which is made if need be, or else must be there.

    Raises RootMissing, and what `LocalStore` and `HdfsStore` raise.
    """
    if _split(os.fspath(folder))[0] is not None:
        return _store(shown(folder), make=make)
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
    with tempfile.TemporaryDirectory(prefix="penstock-mirror-") as cache:
        yield Path(cache, root.name, *below)


class Mirrored:
    """One file or folder of a checkpoint on HDFS: `path` is its place here, `name` that in `store`."""

    __slots__ = ("name", "path", "store")

    def __init__(self, path: Path, store: HdfsStore, name: str) -> None:
        self.path = path
        self.store = store
        self.name = name

    def upload(self) -> None:
        """Begin to write the file to HDFS, as it is here; `wait` tells how it went, and must be called."""
        _pending.setdefault(self.path.parent, []).append(_pool().submit(self._create))

    def wait(self) -> None:
        """Wait until all that was begun in this folder is on HDFS, and raise the first error; what failed goes here."""
        failed = [why for upload in _pending.pop(self.path, []) if (why := upload.exception()) is not None]
        if failed:
            raise failed[0]

    def size(self) -> int | None:
        """Return the size of the file on HDFS in bytes, None where there is none."""
        return self.store.size(self.name)

    def fetch(self) -> None:
        """Have the whole file here; raises StateMissing where HDFS has none."""
        data = self._read(0, None)
        make_cache_folder(self.path.parent)
        temp = self.path.with_name(f".tmp-{os.urandom(16).hex()}")
        temp.write_bytes(data)
        temp.replace(self.path)  # two that fetch the same bring the same

    def make_room(self, size: int) -> None:
        """Have an empty file of that size here, whose bytes are brought when they are asked for."""
        make_cache_folder(self.path.parent)
        temp = self.path.with_name(f".tmp-{os.urandom(16).hex()}")
        with temp.open("xb") as file:
            file.truncate(size)
        temp.replace(self.path)

    def read(self, offset: int, size: int) -> bytes:
        """Return some bytes of the file on HDFS; raises StateMissing where there is none."""
        return self._read(offset, size)

    def remove(self) -> None:
        """Remove the file, there and here."""
        self.store.delete(self.name)
        self.path.unlink(missing_ok=True)

    def files_below(self) -> list[Path]:
        """Return all files below the folder on HDFS, sorted."""
        root = self.path if not self.name else Path(os.fspath(self.path).removesuffix(f"/{self.name}"))
        return [root / name for name in self.store.list(self.name)]

    def _read(self, offset: int, size: int | None) -> bytes:
        try:
            data = self.store.read_range(self.name, offset, size)
        except NotFound as error:
            where = shown(self.path)
            raise StateMissing("no such state file", where=where, path=where) from error
        global _fetched  # noqa: PLW0603 - a worker of Spark does one task at a time, and tells what it took
        _fetched += len(data)
        return data

    def _create(self) -> None:
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                whole = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
                self.store.create(self.name, memoryview(whole))
        except BaseException:
            # Whatever has the name on HDFS is not known to be this.
            with suppress(OSError):
                self.path.unlink()
            raise


def fetched() -> int:
    """Return the bytes that were not here and were brought from HDFS, since the process began."""
    return _fetched


_fetched = 0
_pending: dict[Path, list[Future[None]]] = {}


def make_cache_folder(folder: Path) -> None:
    """Make a folder of a mirror, for its user alone. Raises RootUnsafe where the cache is not this user's own."""
    if not folder.is_dir():
        root, _ = _split(os.fspath(folder))
        assert root is not None
        LocalStore(root.parent)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


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
def _store(url: str, *, make: bool) -> HdfsStore:
    """Return the store of a root; one for a process."""
    from penstock.checkpoint.hdfs import HdfsStore

    return HdfsStore(url, make=make)


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_UPLOADS, thread_name_prefix="penstock-upload")


def _forget() -> None:
    _store.cache_clear()
    _pool.cache_clear()
    _pending.clear()


# Connections and threads are no child's to use.
os.register_at_fork(after_in_child=_forget)
