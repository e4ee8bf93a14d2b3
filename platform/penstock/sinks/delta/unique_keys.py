"""Tell whether a Delta table has one row of each key.

To read the keys of a large table takes seconds. So an entry of a merge says of which keys the table had one row each.
A start that finds it as the newest entry with rows reads none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import KeysRepeated
from penstock.sinks.delta.data_files import TableFiles
from penstock.sinks.delta.log_entry import actions_of, merged_by

__all__ = ["is_known_unique", "refuse_repeated_keys", "repeated_key"]

_BACK = 100
"""Entries that are read for the newest with rows."""


def is_known_unique(path: Path, version: int, keys: Sequence[str]) -> bool:
    """Return whether the log says that a version of a table has one row of each key."""
    for number in range(version, max(-1, version - _BACK), -1):
        actions = actions_of(path, number)
        if actions is None:
            return False
        if merged_by(actions):
            return set(merged_by(actions)) == set(keys)
        if any(action["add"].get("dataChange", True) for action in actions if "add" in action):
            return False
        if number == 0:
            return True
    return False


def repeated_key(files: TableFiles, keys: Sequence[str]) -> dict[str, object] | None:
    """Return a key of which a table has several rows, None where there is none."""
    parts = [part for _, fragment in files.where() for part in files.batches(fragment, keys)]
    if not parts:
        return None
    counted = pa.concat_tables(parts).group_by(list(keys)).aggregate([([], "count_all")])
    several = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 1).select(list(keys)).to_pylist()
    return several[0] if several else None


def refuse_repeated_keys(path: Path, files: TableFiles, keys: Sequence[str], where: str) -> None:
    """Raise KeysRepeated where a table has several rows of a key, which is named."""
    if is_known_unique(path, files.version, keys):
        return
    key = repeated_key(files, keys)
    if key is not None:
        shown = ", ".join(f"{name}={value!r}" for name, value in key.items())
        raise KeysRepeated(f"the table has several rows with {shown}", where=where)
