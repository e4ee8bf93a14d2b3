"""Find the folder that a setting means, and the one that a driver tells its tasks of."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.hdfs import HdfsStore, parse_root
from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.store import CheckpointStore

__all__ = ["folder_at", "is_url", "root_of", "store_at"]

_SCHEMES = ("webhdfs://", "swebhdfs://", "hdfs://")
_LONGEST_NAME = 255
"""Bytes that a file system gives to one name."""


def is_url(root: str) -> bool:
    """Return whether a root is one on HDFS; whether it is a right one, `root_of` tells."""
    return root.startswith(_SCHEMES)


def root_of(
    root: str | Path | CheckpointFolder, *, project: Path | None = None, cache: str | None = None
) -> CheckpointFolder:
    """Return the folder that is meant by a root: a path, or a URL of HDFS, whose files have copies below `cache`.

    Both are relative to the project. Without a cache it is this user's own. Raises ConfigError for a URL that is none.
    """
    base = Path() if project is None else project
    if not isinstance(root, str | Path):
        return root
    if isinstance(root, Path) or not is_url(root):
        return LocalFolder(base / root)
    parse_root(root)
    url = root.rstrip("/")
    own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = _cache_name(url)
    return HdfsFolder(url, str((base / cache if cache is not None else Path(own) / "penstock") / name))


def folder_at(address: str) -> CheckpointFolder:
    """Return the folder that has this `address`."""
    if not is_url(address):
        return LocalFolder(address)
    url, _, rest = address.partition("#")
    cache, _, below = rest.rpartition("#")
    return HdfsFolder(url, cache, below)


def store_at(address: str, *, replication: int | None) -> CheckpointStore:
    """Return the store of the folder that has this `address`, with so many copies of new files where it is on HDFS.

    A disk keeps one copy of a file, whatever is said. Raises RootMissing.
    """
    store = folder_at(address).store(make=False)
    return store.replicated(replication) if replication is not None and isinstance(store, HdfsStore) else store


def _cache_name(url: str) -> str:
    """Return the name of the cache of a root: its URL, as every version has named it, or shorter with a checksum."""
    # With "~" for the percent sign: Delta's writers take a path for a URL, and decode it.
    quoted = quote(url, safe="").replace("%", "~")
    if len(quoted) <= _LONGEST_NAME:
        return quoted
    return f"{url.rpartition('/')[2][:40]}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"
