"""Delete what nobody reads in a folder of files: files half written by a process that was killed, and late ones.

A folder is that of several jobs, and of other programs. So a file goes by its name alone: a temporary one that is older
than an hour, and a data file of a batch that a restore has taken back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.sinks.base import Upkeep
from penstock.sinks.files.folders import Entry, OutputFolder
from penstock.sinks.files.manifest import HIDDEN, truncations_by_key

__all__ = ["DATA", "files_in", "sweep"]

_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{32}")
DATA = re.compile(r"(\d{12})-([0-9a-f]{16})(-\d+)?\.[a-z]+")
"""The name of a data file: its batch, the key of its app, and its number in the Commit where a task wrote it."""
_GRACE = 3_600.0
"""Seconds that a file may take to be written: as the retention of checkpoints has it."""


def sweep(folder: OutputFolder, *, now: float) -> Upkeep:
    """Delete them, and return how many; `now` in seconds since 1970."""
    truncations = truncations_by_key(folder)

    def is_left_over(entry: Entry) -> bool:
        if _TEMPORARY.fullmatch(entry.name):
            return entry.modified < now - _GRACE
        named = DATA.fullmatch(entry.name)
        return named is not None and any(known.has(int(named[1])) for known in truncations.get(named[2], ()))

    deleted = size = 0
    for path, entry in files_in(folder, ""):
        if is_left_over(entry):
            folder.delete(path)
            deleted, size = deleted + 1, size + entry.size
    return Upkeep(deleted=deleted, size=size)


def files_in(folder: OutputFolder, path: str) -> Iterator[tuple[str, Entry]]:
    """Yield the paths and facts of the files of a folder, of its partitions, and of the manifest; no other folders."""
    for entry in folder.entries(path):
        below = f"{path}/{entry.name}" if path else entry.name
        if not entry.is_folder:
            yield below, entry
        elif "=" in entry.name or below.split("/")[0] == HIDDEN:
            yield from files_in(folder, below)
