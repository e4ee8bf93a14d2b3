"""Find what is new in a folder without asking for all that is old each time.

A look asks for the time of every folder. It lists a folder only when that has changed since a listing that is known to
be whole: the time of a folder changes when a name is added. Of the files in it, it yields those that it has not
yielded with this time and length. For that it keeps eight bytes a file, and where a folder is large eight more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import structlog

from penstock.errors import SourceNotFound
from penstock.sources.file.patterns import Pattern, States, is_hidden
from penstock.sources.file.positions import Entry
from penstock.sources.file.systems import FileSystem, are_in

__all__ = ["Listing"]

_log = structlog.get_logger(__name__)
_TICK = 2.0
"""Seconds after which the clock of any file system has moved on: a later name gives the folder another time."""
_LONG_AGO = 3_600 * 10**9
"""Nanoseconds by which no clock of a file system differs from this machine's."""
_LARGE = 10_000
"""Files of a folder from which on those whose names are known are asked for every `_WHOLE` seconds only."""
_WHOLE = 60.0
_FEW = 16
"""Files that are asked for one by one, instead of listing their folder."""
_NONE = np.zeros(0, np.int64)


@dataclass(slots=True)
class _Folder:
    """What was learnt of a folder by its listings."""

    states: States
    modified: int = -1
    since: float = 0.0
    """When this time was first seen, monotonic seconds."""
    is_whole: bool = False
    """A listing has all names that the folder had when it got its time."""
    folders: list[Entry] = field(default_factory=list)
    yielded: np.ndarray = field(default_factory=lambda: _NONE)
    """Of name, time and length of each file that needs no more attention (int64), sorted."""
    tokens: np.ndarray = field(default_factory=lambda: _NONE)
    asked_all: float = 0.0
    waiting: list[str] = field(default_factory=list)
    """Files that are not yielded yet: they are empty, or too young."""


class Listing:
    """Follow the files of a folder that a pattern means, for one run.

    Args:
        files: The file system of the folder.
        pattern: Which files are meant.
        settle: For how long a file must have had its content and its name, nanoseconds.
        wall: The time in nanoseconds since 1970.
        monotonic: The time in seconds of a clock that never moves backwards.
    """

    def __init__(
        self,
        files: FileSystem,
        pattern: Pattern,
        *,
        settle: int,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files, self.pattern = files, pattern
        self.settle, self._wall, self._monotonic = settle, wall, monotonic
        self._folders: dict[str, _Folder] = {}
        self._latest = 0
        self._ahead: set[str] = set()

    def look(self) -> Iterator[Entry]:
        """Yield files that are new since the last look, or have changed, in no order.

        Raises SourceNotFound where there is no folder, and FolderUnreadable.
        """
        root = self.files.folder("")
        if root is None:
            raise SourceNotFound("there is no folder to read", where=self.files.root)
        # The same for all folders: a file is not yielded before one that is older and no longer changes.
        self._latest = self._wall() - self.settle
        todo: list[tuple[Entry, States]] = [(root, self.pattern.start)]
        met = set()
        while todo:
            entry, states = todo.pop()
            met.add(entry.path)
            yield from self._visit(entry, self._folders.setdefault(entry.path, _Folder(states)))
            for child in self._folders[entry.path].folders:
                inner = self.pattern.below(states, child.path.rpartition("/")[2])
                now = child if self.files.times_of_folders else self.files.folder(child.path)
                if now is not None and self.pattern.may_have_files(inner):
                    todo.append((now, inner))
        for gone in self._folders.keys() - met:
            del self._folders[gone]

    def restart(self) -> None:
        """Know nothing, so that the next look yields all files."""
        self._folders.clear()

    def forget(self, entry: Entry) -> None:
        """Yield a file again when it is there at a later look."""
        folder = self._folders.get(entry.path.rpartition("/")[0])
        if folder is not None:
            folder.is_whole = False
            folder.yielded = folder.yielded[folder.yielded != _number(entry)]
            folder.tokens = _NONE

    def _visit(self, entry: Entry, folder: _Folder) -> Iterator[Entry]:
        now = self._monotonic()
        if entry.modified != folder.modified:
            folder.modified, folder.since, folder.is_whole = entry.modified, now, False
        # Where only a listing has the times of the folders in it, it is needed for them.
        asks_folders = self.files.times_of_folders and bool(folder.folders)
        if folder.is_whole and not asks_folders and len(folder.waiting) <= _FEW:
            if folder.waiting:
                found = self.files.look(folder.waiting)
                folder.is_whole = None not in found  # one is gone, or is open and has no length yet
                yield from self._ready(folder, [entry for entry in found if entry is not None])
            return
        is_quick = len(folder.tokens) >= _LARGE and now - folder.asked_all < _WHOLE
        listed = self.files.listed(entry.path, folder.tokens if is_quick else None)
        if listed is None:
            return
        folder.asked_all = folder.asked_all if is_quick else now
        folder.folders = [child for child in listed.folders if not is_hidden(child.path.rpartition("/")[2])]
        meant = [f for f in listed.files if self._is_meant(folder.states, f.path)]
        if not is_quick:  # of those that are gone nothing is kept
            kept = np.sort(np.fromiter(map(_number, meant), np.int64, len(meant)))
            folder.yielded = folder.yielded[are_in(folder.yielded, kept)]
        yield from self._ready(folder, meant)
        waiting = {*folder.waiting}
        pending = [t for f, t in zip(listed.files, listed.of_files, strict=False) if f.path in waiting]
        folder.tokens = listed.tokens[~are_in(listed.tokens, np.sort(np.array(pending, np.int64)))]
        folder.is_whole = now - folder.since >= _TICK or self._wall() - folder.modified > _LONG_AGO

    def _is_meant(self, states: States, path: str) -> bool:
        name = path.rpartition("/")[2]
        return not is_hidden(name) and self.pattern.is_file(states, name)

    def _ready(self, folder: _Folder, found: Sequence[Entry]) -> list[Entry]:
        """Return the files that can be read and were not yielded; note the others, which have to wait."""
        numbers = np.fromiter(map(_number, found), np.int64, len(found))
        is_new = ~are_in(numbers, folder.yielded)
        ready, yielded, waiting = [], [], []
        for i in np.flatnonzero(is_new).tolist():
            entry = found[i]
            if entry.length and max(entry.modified, entry.arrived) <= self._latest:
                ready.append(entry)
                yielded.append(int(numbers[i]))
            else:
                waiting.append(entry.path)
                self._warn_of_future(entry)
        folder.waiting = waiting
        folder.yielded = np.sort(np.concatenate([folder.yielded, np.array(yielded, np.int64)]))
        return ready

    def _warn_of_future(self, entry: Entry) -> None:
        ahead = entry.modified - self._wall()
        if ahead > 60 * 10**9 and entry.path not in self._ahead:
            self._ahead.add(entry.path)
            where = f"{self.files.root}/{entry.path}"
            _log.warning("source.file_from_future", file=where, seconds_ahead=ahead // 10**9)


def _number(entry: Entry) -> int:
    return hash((entry.path, entry.modified, entry.length))
