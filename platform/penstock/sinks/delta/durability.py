"""Make durable what delta-rs and delta-spark have written into a table: neither calls fsync (F73).

After a later Commit the driver never repeats a publication or a truncation. So it must be durable before that Commit:
a power cut must not undo it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from penstock.checkpoint.storage.local import make_durable
from penstock.sinks.delta.log_entry import entry_name

__all__ = ["find_commit", "make_entries_durable", "make_table_durable"]

_LOG = "_delta_log"
_BACK = 1_000
"""Versions that are looked at for a commit, the newest first."""


def make_table_durable(path: Path) -> None:
    """Have a table that was just made be there after a power cut, with the folders above it that may be new as well."""
    log = path / _LOG
    for made in (log / entry_name(0), log, path, *path.parents[:2]):
        make_durable(made)


def make_entries_durable(path: Path, versions: Iterable[int]) -> None:
    """Sync the entries of versions, the files that they add, and the folders that have their names."""
    folders = {path / _LOG, path}
    for version in versions:
        entry = path / _LOG / entry_name(version)
        for name in _added(entry):
            _sync_with_sums(path / name)
            folders.update(folder for folder in (path / name).parents if folder.is_relative_to(path))
        for made in (entry, path / _LOG / f"{version:020}.crc", path / _LOG / f"{version:020}.checkpoint.parquet"):
            _sync_with_sums(made)
    _sync_with_sums(path / _LOG / "_last_checkpoint")
    for folder in sorted(folders, reverse=True):
        make_durable(folder)


def _sync_with_sums(file: Path) -> None:
    """Sync a file, and the one beside it that Hadoop compares it with: torn, it makes the file unreadable for Spark."""
    make_durable(file)
    make_durable(file.with_name(f".{file.name}.crc"))


def find_commit(path: Path, newest: int, app: str, batch: int) -> int | None:
    """Return the version that has a batch of an app, None where its entry is not among the newest any more."""
    for version in range(newest, max(-1, newest - _BACK), -1):
        for action in _actions(path / _LOG / entry_name(version)):
            txn = action.get("txn")
            if txn is not None and txn["appId"] == app and txn["version"] == batch:
                return version
    return None


def _added(entry: Path) -> list[str]:
    return [unquote(action["add"]["path"]) for action in _actions(entry) if "add" in action]


def _actions(entry: Path) -> list[dict[str, Any]]:
    try:
        lines = entry.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:  # cleaned away: then a checkpoint of the log has what it said
        return []
    return [json.loads(line) for line in lines if line]
