"""Notice that the log of a Delta table is not the one that was read: replaced, emptied, or cleaned."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checkpoint.storage.local import create_beside
from penstock.sinks.delta.log_entry import LOG, entry_name
from penstock.sinks.delta.table import load

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["File", "LogEnd", "create_entry", "load_with_end"]

_ENTRY = re.compile(r"\d{20}\.json")
_HINT = "_last_checkpoint"

File = tuple[int, int] | None
"""A file of a log by inode and time of change; None where there is none."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The files at the end of a log, as they were when a version of its table was the newest."""

    path: Path
    """The table."""
    version: int
    entry: File
    """Which file the version's entry in the log is; None where there is none any more."""
    folded: File
    """Which file says where the log was folded: cleaning it may take entries away that came later than `version`."""

    def after(self) -> LogEnd:
        """Return the end after a commit directly after the version."""
        version = self.version + 1
        return replace(self, version=version, entry=_file(self.path / LOG / entry_name(version)))

    def is_newest(self) -> bool:
        """Return whether nobody has committed since, as far as the log shows."""
        is_there = self.entry is not None and self.stands()
        is_last = _file(self.path / LOG / entry_name(self.version + 1)) is None
        return is_there and is_last and not self._may_lack_later()

    def _may_lack_later(self) -> bool:
        """Return whether entries after the version may have been cleaned away.

        Nobody cleans those that the newest checkpoint of the log does not contain. So one of this version or before,
        which is ours as a rule, is no reason to load the table again.
        """
        if _folded_in(self.path) == self.folded:
            return False
        try:
            newest = json.loads((self.path / LOG / _HINT).read_bytes())["version"]
        except (OSError, ValueError, KeyError, TypeError):
            return True
        return not isinstance(newest, int) or newest > self.version

    def stands(self) -> bool:
        """Return whether the log is the same one, so that an entry may follow the version."""
        entry = _file(self.path / LOG / entry_name(self.version))
        return entry == self.entry and (entry is not None or _folded_in(self.path) == self.folded)


def create_entry(end: LogEnd, version: int, entry: bytes) -> bool:
    """Create the entry of a version after the end of a log; False where another commit came first.

    Also False where the log is another one since: an entry without those before it would make that table unreadable.
    """
    return create_beside(end.path / LOG, entry_name(version), entry, still=end.stands)


def load_with_end(path: Path) -> tuple[DeltaTable, LogEnd] | None:
    """Return a table with the end of the log that it was read from, None where there is none; errors are those of load.

    A log that another one replaces meanwhile is read again: what was read belongs to no end of the new one.
    """
    while True:
        folded, newest = _folded_in(path), _newest(path)
        found = None if newest is None else _file(newest)
        table = load(path)
        if table is None:
            return None
        version = table.version()
        end = LogEnd(path, version, _file(path / LOG / entry_name(version)), folded)
        stands = _newest(path) is None if newest is None else _file(newest) == found
        if stands:
            return table, end


def _newest(path: Path) -> Path | None:
    """Return the newest entry of a log, None where it has none."""
    with suppress(FileNotFoundError):
        return max((file for file in (path / LOG).iterdir() if _ENTRY.fullmatch(file.name)), default=None)
    return None


def _folded_in(path: Path) -> File:
    """Return which file says where the log of a table was folded."""
    return _file(path / LOG / _HINT)


def _file(path: Path) -> File:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
