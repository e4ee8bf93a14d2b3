"""Find the version of a Delta table that a RESTORE of another program has put back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from penstock.sinks.delta.log_entry import Actions, actions_of

__all__ = ["version_put_back"]


def version_put_back(table: Path, restore: int, actions: Actions) -> int | None:
    """Return the version that the commit of version `restore` has put back, None for a commit that is no RESTORE.

    Where the commit names a time instead, it is the newest version from before all whose files it has undone.
    """
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    if info.get("operation") != "RESTORE":
        return None
    version = (info.get("operationParameters") or {}).get("version")
    return int(str(version)) if str(version).isdecimal() else _below_what_is_undone(table, restore, actions)


def _below_what_is_undone(table: Path, restore: int, actions: Actions) -> int:
    lacks, has = _files(actions, "remove"), _files(actions, "add")
    undone = restore
    for version in range(restore - 1, -1, -1):
        entry = actions_of(table, version)
        if entry is None:
            break
        removed, added = _files(entry, "remove"), _files(entry, "add")
        if added & lacks or removed & has:
            undone = version
            lacks |= removed - has  # a file that was replaced later is not there either
        elif added or removed:
            break
    return undone - 1


def _files(actions: Actions, kind: str) -> set[tuple[str, str]]:
    """Return the files that a commit adds or removes, each with the rows that are deleted in it."""
    files = (action[kind] for action in actions if kind in action)
    return {(unquote(file["path"]), json.dumps(file.get("deletionVector"), sort_keys=True)) for file in files}
