"""Number the rows of a Delta table's files as places of a stream, and keep the files that wait: no disk and no Spark.

The place of a row is its number among all rows of the stream. So limits bound batches exactly, and a large file, or a
large version, is read by several. A position says how many rows were read, and which row is the next:

    {"place": 1712, "version": 7, "index": 0, "row": 12, "snapshot": true}

That is row 12 of file 0 of version 7. A version without rows has no place: a position passes it once all before it is
read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any

from penstock.sources.backlog import WaitingFile
from penstock.sources.delta.actions import DataFile
from penstock.sources.delta.tasks import Piece

__all__ = ["Queue", "Spot"]


@dataclass(frozen=True, slots=True)
class Spot:
    """What a stream reads next.

    Attributes:
        place: How many rows of the stream are before it.
        version: The version that is read next.
        index: The number of the file of that version that is read next.
        row: How many rows of that file were read.
        snapshot: Whether all rows of the table as of this version are meant, and not those that it has added.
    """

    place: int
    version: int
    index: int = 0
    row: int = 0
    snapshot: bool = False

    @classmethod
    def of(cls, position: Mapping[str, Any]) -> Spot:
        """Return what a position of the log says."""
        return cls(
            place=int(position["place"]),
            version=int(position["version"]),
            index=int(position["index"]),
            row=int(position["row"]),
            snapshot=bool(position.get("snapshot")),
        )

    @property
    def as_json(self) -> dict[str, Any]:
        """The spot as a position has it."""
        facts = {"place": self.place, "version": self.version, "index": self.index, "row": self.row}
        return {**facts, "snapshot": True} if self.snapshot else facts


@dataclass
class _Waiting:
    """A file of which some rows wait."""

    file: DataFile
    read: int
    is_lost: bool = False

    @property
    def rows(self) -> int:
        return (self.file.rows or 0) - self.read

    @property
    def bytes(self) -> int:
        """The bytes of its rows that wait, as if they lay evenly."""
        return self.file.size * self.rows // self.file.rows if self.file.rows else 0


@dataclass
class Queue:
    """The files that wait after a spot.

    `next` is the version that is looked for next: all before it are in the queue, or were read.
    """

    spot: Spot
    next: int = field(init=False)
    rows: int = 0
    bytes: int = 0
    _files: deque[_Waiting] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.next = self.spot.version

    def append(self, version: int, files: Iterable[DataFile]) -> None:
        """Add a version, whose files have their numbers of rows; what the spot has passed of it is left out."""
        for file in files:
            if version == self.spot.version and file.index < self.spot.index:
                continue
            is_next = version == self.spot.version and file.index == self.spot.index
            waiting = _Waiting(file, self.spot.row if is_next else 0)
            if waiting.rows > 0:
                self._files.append(waiting)
                self.rows += waiting.rows
                self.bytes += waiting.bytes
        self.next = version + 1

    def head(self, files: int | None, size: int | None) -> list[DataFile]:
        """Return the files that one batch may read, by number and bytes: one at least."""
        return [waiting.file for waiting in self._head(files, size)]

    def head_ends(self, files: int | None, size: int | None) -> list[WaitingFile]:
        """Return where these end, and how many bytes they have that wait."""
        waiting = self._head(files, size)
        ends = accumulate((file.rows for file in waiting), initial=self.spot.place)
        return [WaitingFile(end, file.bytes) for end, file in zip(islice(ends, 1, None), waiting, strict=True)]

    def _head(self, files: int | None, size: int | None) -> list[_Waiting]:
        taken, total = list[_Waiting](), 0
        for waiting in self._files:
            total += waiting.bytes
            if taken and (len(taken) == files or (size is not None and total > size)):
                break
            taken.append(waiting)
        return taken

    def lose(self, lost: DataFile) -> None:
        """Note that the rows of a file are not there any more; they keep their places."""
        for waiting in self._files:
            if waiting.file is lost:
                waiting.is_lost = True

    def pieces(self, rows: int) -> tuple[list[Piece], list[Piece]]:
        """Return the next rows, so many, as pieces of files: those that are there, and those that are lost."""
        there, lost, place, end = list[Piece](), list[Piece](), self.spot.place, self.spot.place + rows
        for waiting in self._files:
            if place >= end:
                break
            count = min(waiting.rows, end - place)
            piece = Piece.of(waiting.file, waiting.read, waiting.read + count, place=place)
            (lost if waiting.is_lost else there).append(piece)
            place += count
        return there, lost

    def after(self, rows: int) -> Spot:
        """Return what is read next after so many rows of those that wait."""
        left, place = rows, self.spot.place + rows
        for waiting in self._files:
            if left < waiting.rows:
                file = waiting.file
                is_snapshot = self.spot.snapshot and file.version == self.spot.version
                return Spot(place, file.version, file.index, waiting.read + left, is_snapshot)
            left -= waiting.rows
        return Spot(place, self.next)

    def advance(self, spot: Spot) -> None:
        """Drop what is before a spot that `after` has given."""
        left = spot.place - self.spot.place
        while left:
            first = self._files.popleft()
            taken = min(left, first.rows)
            left -= taken
            self.rows -= taken
            self.bytes -= first.bytes
            if taken < first.rows:
                first.read += taken
                self.bytes += first.bytes
                self._files.appendleft(first)
        self.spot = spot
