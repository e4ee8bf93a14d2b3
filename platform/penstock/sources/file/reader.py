"""Plan what a batch reads of a folder, and move or delete what is done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import structlog

from penstock.errors import ColumnsForgotten, ConfigError, FileVanished, PenstockError
from penstock.graph.argument_types import refuse_other_types
from penstock.graph.policies import Afterwards
from penstock.sources.base import Ends, Position, Span, SplitReader, Waiting, WaitingFile
from penstock.sources.file.listings import Listing
from penstock.sources.file.parts import Unreadable
from penstock.sources.file.positions import Entry, FilePosition, Standing
from penstock.sources.file.systems import FileSystem
from penstock.sources.file.tasks import METADATA, FilesTaskReader, files_of, refuse_other

__all__ = ["AtMost", "FilesReader", "bytes_", "files"]

_log = structlog.get_logger(__name__)
_ONLY = "0"
"""The name of the one partition."""
_BYTES_A_ROW = 100.0
"""Where no file tells."""
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_AMOUNT = re.compile(rf"([0-9][0-9_]*) (files?|{'|'.join(_UNITS)})")
_NAMED = 20
"""Files that a look names in warnings; of the others it says how many."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """Bound what one batch reads, whatever its rows are; None is no bound. One file is read at least."""

    files: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        refuse_other_types(self)
        if self.files is not None and self.files < 1:
            raise ConfigError(f"a batch of at most {self.files} files reads nothing")
        if self.bytes is not None and self.bytes < 1:
            raise ConfigError(f"a batch of at most {self.bytes} bytes reads nothing")

    @classmethod
    def parse(cls, text: str) -> AtMost:
        """Read "100 files" or "64 MiB", as a job's file has it; raises ValueError."""
        match = _AMOUNT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no number of files or bytes, such as '100 files' or '64 MiB'")
        count, unit = int(match[1].replace("_", "")), match[2]
        return cls(files=count) if unit in {"file", "files"} else cls(bytes=count * _UNITS[unit])


def files(count: int) -> AtMost:
    """Let a batch read so many files."""
    return AtMost(files=count)


def bytes_(count: int) -> AtMost:
    """Let a batch read files of so many bytes together, as they are stored."""
    return AtMost(bytes=count)


class FilesReader(SplitReader):
    """Follow a folder on the driver.

    It keeps the files that wait in the order in which they are read: those of a look by their keys, after those of the
    looks before. So the number of a file that waits stays what it is however the folder grows (SEMANTICS 1.5).
    """

    def __init__(
        self,
        listing: Listing,
        task: FilesTaskReader,
        *,
        at_most: AtMost,
        grace: int,
        afterwards: Afterwards = Afterwards.LEAVE,
        done: FileSystem | None = None,
        splits: int = 1,
        derived: bool = False,
    ) -> None:
        self.listing, self.task, self.files = listing, task, task.files
        self.schema = pa.schema([*task.schema, *((name, METADATA[name]) for name in task.metadata)])
        self.splits = splits
        self._at_most, self._grace, self._afterwards, self._done = at_most, grace, afterwards, done
        self._facts = _facts(task.schema, listing.pattern.text, derived=derived)
        self._bytes_a_row: float | None = None
        self._acked: Position | None = None
        self._ahead: tuple[Position | None, Position, int] | None = None
        self._begin(None)

    def _begin(self, at: Position | None) -> None:
        """Forget what was listed, and stand at a position."""
        self._at = at
        self._known = FilePosition.of(at)
        self._queue: dict[str, Entry] = {}
        self._rows = self._bytes = 0
        self._stragglers: dict[str, Entry] = {}
        self._highest = self._known.highest
        self._late: set[str] = set()
        self._rewritten: dict[str, Entry] = {}
        self._has_looked = False
        self.listing.restart()

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the files that wait, of which a batch reads `at_most`; raises SourceNotFound and ColumnsForgotten."""
        self._stand_at(after)
        self._look()
        if not self._is_checked():
            self._look()  # what has changed may be ready as it is now
            while not self._is_checked():
                pass
        first, latest = self._known.files, self._known.files + len(self._queue)
        head = [WaitingFile(place, entry.length) for place, entry in enumerate(self._head(), first + 1)]
        end = first + len(head)
        return {
            _ONLY: Waiting(next=first, latest=latest, rows=self._rows, batch_end=end, bytes=self._bytes, files=head)
        }

    def _stand_at(self, after: Position | None) -> None:
        if after == self._at:
            return
        if self._ahead is not None and self._ahead[:2] == (self._at, after):
            self._at, self._known = after, FilePosition.of(after)
            for entry in list(islice(self._queue.values(), self._ahead[2])):
                self._drop(entry)
            self._late.clear()
            self._rewritten.clear()
        else:
            self._begin(after)
            self._compare_facts()

    def _compare_facts(self) -> None:
        """Refuse other columns than the job has begun with, and warn of another pattern."""
        before = self._known.facts
        if before.get("columns", self._facts.get("columns")) != self._facts.get("columns") and "columns" in self._facts:
            told = ", ".join(f"{name} {kind}" for name, kind in before["columns"].items())
            raise ColumnsForgotten(f"the job has read the columns {told!r}", where=self.files.root)
        if before.get("pattern", self._facts["pattern"]) != self._facts["pattern"]:
            _log.warning("source.pattern_changed", folder=self.files.root, before=before["pattern"])

    def _look(self) -> None:
        """Put what has appeared into the queue."""
        fresh, late = [], []
        for entry in self.listing.look():
            standing = self._known.standing(entry)
            if standing is Standing.NEW:
                fresh.append(entry)
            elif standing is Standing.REWRITTEN and not entry.is_same(self._rewritten.get(entry.path)):
                self._note_rewritten(entry)
                _log.warning("source.file_rewritten", file=self._full(entry), modified=entry.modified)
            # The first look of a run meets all that was read: late is what has got its name since.
            elif standing is Standing.OLD and (self._has_looked or entry.arrived > self._known.arrived):
                late.append(entry)
        self._has_looked = True
        self._late.update(entry.path for entry in late)
        for entry in late[:_NAMED]:
            _log.warning("source.file_late", file=self._full(entry), modified=entry.modified)
        if len(late) > _NAMED:
            _log.warning("source.files_late", folder=self.files.root, more=len(late) - _NAMED)
        for entry in sorted(fresh, key=lambda entry: entry.key):
            if self._highest is not None and entry.key < self._highest:
                self._stragglers[entry.path] = entry
            self._highest = max(entry.key, self._highest or entry.key)
            if entry.path in self._queue:
                self._drop(self._queue[entry.path])
                self._ahead = None
            self._queue[entry.path] = entry
            self._rows += self._guess(entry)
            self._bytes += entry.length

    def _note_rewritten(self, entry: Entry) -> None:
        """Remember a file as it is now; files that wait and are older have become stragglers."""
        self._rewritten[entry.path] = entry
        self._stragglers.update({path: waiting for path, waiting in self._queue.items() if waiting.key < entry.key})
        self._highest = max(entry.key, self._highest or entry.key)

    def _is_checked(self) -> bool:
        """Return whether all files of the next batch are still as they were listed; those that are not leave it."""
        head = self._head()
        now = self.files.look([entry.path for entry in head])
        other = {entry.path for entry, found in zip(head, now, strict=True) if not entry.is_same(found)}
        for entry in [entry for entry in head if entry.path in other]:
            self.listing.forget(entry)
            self._drop(entry)
            self._ahead = None
        return not other

    def _head(self) -> list[Entry]:
        head: list[Entry] = []
        size = 0
        for entry in islice(self._queue.values(), self._at_most.files):
            size += entry.length
            if head and self._at_most.bytes is not None and size > self._at_most.bytes:
                break
            head.append(entry)
        return head

    def _drop(self, entry: Entry) -> None:
        del self._queue[entry.path]
        self._rows -= self._guess(entry)
        self._bytes -= entry.length
        self._stragglers.pop(entry.path, None)

    def _guess(self, entry: Entry) -> int:
        """Return how many rows a file may have, one at least, by those of the first file of the run."""
        if self._bytes_a_row is None:
            try:
                with self.files.open(entry.path) as file:
                    self._bytes_a_row = self.task.form.bytes_a_row(file, entry.path, entry.length)
            except (Unreadable, FileVanished):
                self._bytes_a_row = _BYTES_A_ROW
        return max(1, round(entry.length / self._bytes_a_row))

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the position behind so many files."""
        known, batch = FilePosition.of(after), self._next(after, ends[_ONLY])
        if after is not None and not batch:
            return after
        taken = {entry.path for entry in batch}
        waiting = [entry for path, entry in self._stragglers.items() if path not in taken]
        reached = known.after(
            batch, waiting, grace=self._grace, late=len(self._late), rewritten=list(self._rewritten.values())
        )
        todo: list[Entry] = []
        if self._afterwards is not Afterwards.LEAVE:
            left = [] if after == self._acked else known.todo
            todo = [*(entry for entry in left if entry.path not in taken), *batch]
        return replace(reached, todo=todo, facts=self._facts).as_json()

    def _next(self, after: Position | None, end: int) -> list[Entry]:
        """Return the files between a position and a place."""
        if after != self._at:
            self.backlog(after)
        return list(islice(self._queue.values(), max(0, end - self._known.files)))

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the files to read with their times and lengths, in order (F39); `first` is the place of the first."""
        before, reached = FilePosition.of(start), FilePosition.of(end)
        count = reached.files - before.files
        if start == self._at:
            batch = list(islice(self._queue.values(), count))
            self._ahead = (start, end, count)
        else:  # not the batch that is planned now: its files are those that only one of the positions knows
            self.listing.restart()
            batch = reached.has_passed(before, list(self.listing.look()))
            self._begin(self._at)
        if len(batch) != count:
            raise FileVanished(f"{count:,} files were planned, and there are {len(batch):,}", where=self.files.root)
        return {"first": before.files, "files": [entry.print for entry in batch]}

    def verify(self, span: Span) -> None:
        """Raise FileVanished or FileChanged where a file of the span is not as it was."""
        refuse_other(self.files, files_of(span))

    def ended(self, position: Position | None) -> bool:
        """Return False: more may always come."""
        return False

    def rows(self, span: Span) -> int | None:
        """Return None: only reading tells, but for no files."""
        return None if span["files"] else 0

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the one partition."""
        return (_ONLY,)

    def task_reader(self) -> FilesTaskReader:
        """Return what reads files in tasks."""
        return self.task

    def ack(self, position: Position) -> None:
        """Move or delete the files of a batch, and of batches before it for which a crash left that out."""
        if position == self._acked or self._afterwards is Afterwards.LEAVE:
            return
        todo = FilePosition.of(position).todo
        for entry, now in zip(todo, self.files.look([entry.path for entry in todo]), strict=True):
            if now is None:
                continue  # done, by this driver or by one before it
            if not entry.is_same(now):
                _log.warning("source.file_left", file=self._full(entry), why="it has changed since it was read")
                continue
            try:
                self._finish(entry)
            except PenstockError as why:  # nothing depends on it, and the rows are where they belong
                _log.warning("source.file_left", file=self._full(entry), why=why.what)
        self._acked = position

    def _finish(self, entry: Entry) -> None:
        if self._done is None:
            self.files.delete(entry.path)
            return
        name = entry.path
        while not self.files.move(entry.path, self._done, name):
            name = f"{name}-{entry.modified}"  # another file had the name before

    def _full(self, entry: Entry) -> str:
        return f"{self.files.root}/{entry.path}"


def _facts(schema: pa.Schema, pattern: str, *, derived: bool) -> Mapping[str, Any]:
    """Return what a position keeps: the pattern, and columns that no code names, as Spark writes them."""
    if not derived:
        return {"pattern": pattern}
    from pyspark.sql.pandas.types import from_arrow_type

    columns = {field.name: str(from_arrow_type(field.type).simpleString()) for field in schema}
    return {"pattern": pattern, "columns": columns}
