"""Find the version of a Delta table that a RESTORE of another program has put back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from penstock.sinks.delta.log_entry import Actions, actions_of

__all__ = ["version_put_back"]

File = tuple[str, str]
"""Its path, and as JSON the rows that are deleted in it."""


def version_put_back(table: Path, restore: int, actions: Actions) -> int | None:
    """Return the version that the commit of version `restore` has put back, None for a commit that is no RESTORE.

    Where the commit names a time instead, it is the newest version from before that had the same files. None where the
    entries do not reach back to one.
    """
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    if info.get("operation") != "RESTORE":
        return None
    version = (info.get("operationParameters") or {}).get("version")
    return int(str(version)) if str(version).isdecimal() else _newest_alike(table, restore, actions)


def _newest_alike(table: Path, restore: int, actions: Actions) -> int | None:
    """Undo the commits before a RESTORE, and itself, until the files are those that it has left."""
    more: set[File] = set()
    fewer: set[File] = set()
    version, entry = restore, actions
    while True:
        added, removed = _files(entry, "add"), _files(entry, "remove")
        more, fewer = (more - added) | (removed - fewer), (fewer - removed) | (added - more)
        version -= 1
        if not (more or fewer):
            return version
        before = actions_of(table, version)
        if before is None:
            return None
        entry = before


def _files(actions: Actions, kind: str) -> set[File]:
    """Return the files that a commit adds or removes, each with the rows that are deleted in it."""
    files = (action[kind] for action in actions if kind in action)
    return {(unquote(file["path"]), json.dumps(file.get("deletionVector"), sort_keys=True)) for file in files}
