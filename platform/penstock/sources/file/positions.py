"""Remember which files of a folder were read, in a position that stays small for ever: pure functions.

Files are ordered by the time of their last change, then by path. A position has the highest such key of which nothing
is remembered, its floor, and the files above it that were read. The floor rises with what is read, so a position does
not grow with the folder:

    {"files": 1712, "floor": [1795566000000000000, ""], "read": "eNq…", "unread": "eNq…", "arrived": 17955…, …}

A file above the floor that is not among those `read` is new, however late it appears. One below the floor is new only
where it is among the few `unread`, which had to wait. Any other was read, or appeared too late (decision 109).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self

__all__ = ["MOST", "Entry", "FilePosition", "Standing"]

MOST = 2_000
"""Files above the floor that a position remembers; with more, the floor rises sooner than `grace` says."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder as a file system shows it.

    Attributes:
        path: The path below the folder that is read, with "/".
        modified: When its content was changed last, nanoseconds since 1970.
        length: Bytes.
        arrived: When it got this name, as far as the file system keeps that; nanoseconds since 1970, 0 where unknown.
    """

    path: str
    modified: int
    length: int
    arrived: int = 0

    @property
    def key(self) -> tuple[int, str]:
        """What files are ordered by."""
        return self.modified, self.path

    @property
    def print(self) -> list[Any]:
        """What tells this file from another, as positions and spans have it: plain JSON."""
        return [self.path, self.modified, self.length]

    def is_same(self, other: Entry | None) -> bool:
        """Return whether another look has found the same file unchanged."""
        return other is not None and (other.modified, other.length) == (self.modified, self.length)


class Standing(Enum):
    """What a position says of a file."""

    NEW = "new"
    READ = "read"
    REWRITTEN = "rewritten"
    """It was read, and has another content since."""
    OLD = "old"
    """It is below the floor: it was read, or is late."""


@dataclass(frozen=True, slots=True)
class FilePosition:
    """Which files of a folder were read.

    Attributes:
        files: How many files were read. This is the place of the source.
        floor: The key up to which files are not remembered one by one; None while all are.
        read: The files above the floor that were read, by path; [modified, length].
        unread: The files up to the floor that were not read, by path.
        arrived: The highest `Entry.arrived` of all that were read.
        late: How many files appeared below the floor, and so were not read.
        rewritten: How many files were written again after they had been read, and were not read again.
        todo: Files of the newest batch, and of those before that were not acknowledged.
        facts: What the source keeps beside, such as its columns.
    """

    files: int = 0
    floor: tuple[int, str] | None = None
    read: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unread: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    arrived: int = 0
    late: int = 0
    rewritten: int = 0
    todo: Sequence[Entry] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, position: Mapping[str, Any] | None) -> Self:
        """Return what a position of the log says; None is the position before the first batch."""
        if position is None:
            return cls()
        floor = position["floor"]
        return cls(
            files=position["files"],
            floor=None if floor is None else (floor[0], floor[1]),
            read=_unpacked(position["read"]),
            unread=_unpacked(position["unread"]),
            arrived=position["arrived"],
            late=position["late"],
            rewritten=position["rewritten"],
            todo=[Entry(*each) for each in position.get("todo", ())],
            facts=position.get("facts", {}),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the position as the log has it."""
        return {
            "files": self.files,
            "floor": None if self.floor is None else list(self.floor),
            "read": _packed(self.read),
            "unread": _packed(self.unread),
            "arrived": self.arrived,
            "late": self.late,
            "rewritten": self.rewritten,
            **({"todo": [entry.print for entry in self.todo]} if self.todo else {}),
            **({"facts": dict(self.facts)} if self.facts else {}),
        }

    def standing(self, entry: Entry) -> Standing:
        """Return what the position says of a file."""
        if entry.path in self.read:
            is_same = self.read[entry.path] == (entry.modified, entry.length)
            return Standing.READ if is_same else Standing.REWRITTEN
        if self.floor is not None and entry.key <= self.floor and entry.path not in self.unread:
            return Standing.OLD
        return Standing.NEW

    @property
    def highest(self) -> tuple[int, str] | None:
        """The highest key that was read, None before the first file."""
        return max(((modified, path) for path, (modified, _) in self.read.items()), default=self.floor)

    def after(
        self,
        batch: Sequence[Entry],
        waiting: Iterable[Entry],
        *,
        grace: int,
        late: int = 0,
        rewritten: Collection[Entry] = (),
    ) -> FilePosition:
        """Return the position when a batch was read too.

        Args:
            batch: The files of the batch, all new.
            waiting: All files that are new and not in the batch, at least those with a key up to that of the highest
                file that was read.
            grace: Files older than the highest one by more than this are not remembered; nanoseconds.
            late: How many files were late since the last position.
            rewritten: The files that were written again since then, as they are now.
        """
        read = {**self.read, **{entry.path: (entry.modified, entry.length) for entry in (*rewritten, *batch)}}
        keys = sorted((modified, path) for path, (modified, _) in read.items())
        floor = self.floor
        if keys:
            risen = [(keys[-1][0] - grace, "")]
            risen += [keys[-MOST - 1]] if len(keys) > MOST else []
            floor = max([*risen, *([] if floor is None else [floor])])
        above = {path: read[path] for modified, path in keys if floor is None or (modified, path) > floor}
        below = {e.path: (e.modified, e.length) for e in waiting if floor is not None and e.key <= floor}
        return replace(
            self,
            files=self.files + len(batch),
            floor=floor,
            read=above,
            unread=below,
            arrived=max([self.arrived, *(entry.arrived for entry in batch)]),
            late=self.late + late,
            rewritten=self.rewritten + len(rewritten),
        )

    def has_passed(self, start: FilePosition, entries: Collection[Entry]) -> list[Entry]:
        """Return which of the files that are there were read between another position and this one, in order."""
        passed = (entry for entry in entries if start.standing(entry) is Standing.NEW)
        return sorted((e for e in passed if self.standing(e) in {Standing.READ, Standing.OLD}), key=lambda e: e.key)


def _packed(files: Mapping[str, tuple[int, int]]) -> str:
    """Write files small: a thousand take 30 KB or less."""
    if not files:
        return ""
    lines = [[modified, length, path] for path, (modified, length) in sorted(files.items())]
    return base64.b64encode(zlib.compress(json.dumps(lines, separators=(",", ":")).encode(), 9)).decode()


def _unpacked(text: str) -> dict[str, tuple[int, int]]:
    if not text:
        return {}
    lines = json.loads(zlib.decompress(base64.b64decode(text)))
    return {path: (modified, length) for modified, length, path in lines}
