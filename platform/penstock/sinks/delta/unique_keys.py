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
from penstock.sinks.delta.merge import as_compared

__all__ = ["is_known_unique", "refuse_repeated_keys", "repeated_key"]

_PLACE = "_penstock_place"
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
    rows = pa.concat_tables(parts)
    placed = as_compared(rows, keys).append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
    counted = placed.group_by(list(keys)).aggregate([([], "count_all"), (_PLACE, "min")])
    several = counted.filter(pc.greater(counted["count_all"], 1))
    return rows.slice(several[f"{_PLACE}_min"][0].as_py(), 1).to_pylist()[0] if several.num_rows else None


def refuse_repeated_keys(path: Path, files: TableFiles, keys: Sequence[str], where: str) -> None:
    """Raise KeysRepeated where a table has several rows of a key, which is named."""
    if is_known_unique(path, files.version, keys):
        return
    key = repeated_key(files, keys)
    if key is not None:
        shown = ", ".join(f"{name}={value!r}" for name, value in key.items())
        raise KeysRepeated(f"the table has several rows with {shown}", where=where)
