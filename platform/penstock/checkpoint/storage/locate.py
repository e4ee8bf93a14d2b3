"""Find the folder that a setting means, and the one that a driver tells its tasks of."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.hdfs import parse_root
from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from penstock.checkpoint.storage.local_folder import LocalFolder

__all__ = ["folder_at", "is_url", "root_of"]

_SCHEMES = ("webhdfs://", "swebhdfs://", "hdfs://")


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
    # For people the last name of the root, and what tells roots apart that end alike.
    name = f"{url.rpartition('/')[2][:40]}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"
    return HdfsFolder(url, str((base / cache if cache is not None else Path(own) / "penstock") / name))


def folder_at(address: str) -> CheckpointFolder:
    """Return the folder that has this `address`."""
    if not is_url(address):
        return LocalFolder(address)
    url, _, rest = address.partition("#")
    cache, _, below = rest.rpartition("#")
    return HdfsFolder(url, cache, below)
