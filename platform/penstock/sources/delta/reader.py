"""Plan what a batch reads of a Delta table: the snapshot that a stream begins with, then what each version adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import structlog

from penstock.errors import (
    ColumnsForgotten,
    ConfigError,
    FileVanished,
    FixedRangeGone,
    PenstockError,
    ReadOtherwise,
    RowsRewritten,
    SourceGap,
    TableReplaced,
    TableUnreadable,
)
from penstock.graph.policies import OnGap, OnRewrite
from penstock.sources.base import Ends, Position, Span, SplitReader, Waiting
from penstock.sources.delta.actions import DataFile, Table, commit_of
from penstock.sources.delta.columns import column_types, columns_of_table
from penstock.sources.delta.log import DeltaLog
from penstock.sources.delta.queue import Queue, Spot
from penstock.sources.delta.tasks import DeltaTaskReader, opened, pieces_of
from penstock.sources.file.positions import Entry
from penstock.sources.file.reader import AtMost
from penstock.sources.starts import Version

__all__ = ["DeltaReader"]

_log = structlog.get_logger(__name__)
_ONLY = "0"
"""The name of the one partition."""
_ROWS_A_VERSION = 31
"""Bits of a place that are below the number of a version, where the stream begins after the newest one."""
_AT_ONCE = 8
"""Files whose numbers of rows are read at once, where the log does not have them."""


class DeltaReader(SplitReader):
    """Follow a table on the driver.

    `start` is the version whose commit is read first, None for a snapshot of the newest. `table` is the table as
    of the version at which it was opened, `as_of`. With `derived` the stream has all of its columns, and names none.
    """

    def __init__(
        self,
        log: DeltaLog,
        table: Table,
        task: DeltaTaskReader,
        *,
        as_of: int,
        start: Version | None,
        at_most: AtMost,
        on_gap: OnGap,
        on_rewrite: OnRewrite,
        splits: int | None,
        derived: bool,
    ) -> None:
        self.log, self.table, self.task = log, table, task
        self.schema, self.splits = task.schema, splits
        self._as_of, self._start, self._at_most, self._derived = as_of, start, at_most, derived
        self._on_gap, self._on_rewrite = on_gap, on_rewrite
        self._columns = column_types(task.of_table)
        self._at: Position | None = None
        self._queue: Queue | None = None
        self._refusal: PenstockError | None = None
        self._ahead: tuple[Position | None, Position] | None = None
        self._last: Entry | None = None  # of the version before the one that is looked for

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the rows that wait, of which a batch reads `at_most`.

        Raises TableReplaced, ColumnsForgotten, RowsRewritten, TableUnreadable and SourceGap once all rows before are
        read.
        """
        queue = self._stand_at(after)
        self._look(queue)
        if self._refusal is not None and not queue.rows:
            raise self._refusal
        self._check_head(queue)
        first, latest = queue.spot.place, queue.spot.place + queue.rows
        head = queue.head_ends(self._at_most.files, self._at_most.bytes)
        end = head[-1].end if head else first
        return {
            _ONLY: Waiting(next=first, latest=latest, rows=queue.rows, batch_end=end, bytes=queue.bytes, files=head)
        }

    def _stand_at(self, after: Position | None) -> Queue:
        """Return the queue that begins after a position."""
        if self._queue is not None and after == self._at:
            return self._queue
        if self._queue is not None and after is not None and self._ahead == (self._at, after):
            self._queue.advance(Spot.of(after))
        else:
            self._queue = self._begun(after)
        self._at, self._ahead = after, None
        return self._queue

    def _begun(self, after: Position | None) -> Queue:
        """Return a queue with nothing in it but the rest of a snapshot."""
        self._refusal = None
        self._skipped: list[list[int]] = []
        self._checked: set[tuple[int, int]] = set()
        self._seen = -1
        spot = self._first() if after is None else Spot.of(after)
        if after is not None:
            self._compare(after)
        queue = Queue(spot)
        if spot.snapshot:
            try:
                queue.append(spot.version, self._counted(self.log.snapshot(spot.version)))
            except SourceGap as why:
                if self._on_gap is OnGap.FAIL:
                    raise
                self._note_gap(spot.version, spot.version + 1, why.what)
                queue.next = spot.version + 1
        self._last = self.log.look(queue.next - 1)[0]
        return queue

    def _first(self) -> Spot:
        """Return where a job without a position begins."""
        versions = self.log.versions()
        if self._start is None:
            return Spot(0, versions.newest, snapshot=True)
        if self._start.number > versions.newest + 1:
            raise ConfigError(
                f"start is version {self._start.number}, and the newest is {versions.newest}", where=self.log.where
            )
        # Above all rows that there were, whatever line of batches has counted them: a commit has fewer than 2**31.
        place = self._start.number << _ROWS_A_VERSION if self._start.number > self._as_of else 0
        return Spot(place, self._start.number)

    def _compare(self, after: Position) -> None:
        """Refuse another table, another kind of reading, and other columns than the job has read."""
        if after["table"] != self.table.id:
            raise TableReplaced(
                f"the job has read the table {after['table']}, and this is {self.table.id}", where=self.log.where
            )
        if after["changes"] is not self.task.changes:
            raise ReadOtherwise(f"changes was {after['changes']} up to the job's position", where=self.log.where)
        before: Mapping[str, str] = after["columns"]
        other = [name for name, kind in before.items() if self._columns.get(name, kind) != kind]
        if other or (self._derived and before != self._columns):
            raise self._other_columns(before, self._columns)

    def _other_columns(self, before: Mapping[str, str], now: Mapping[str, str]) -> PenstockError:
        shown, there = (", ".join(f"{name} {kind}" for name, kind in each.items()) for each in (before, now))
        return ColumnsForgotten(
            f"the job has read the columns {shown!r}, and there are {there!r}", where=self.log.where
        )

    def _look(self, queue: Queue) -> None:
        """Put the versions into the queue that have been committed, up to one that is refused."""
        while self._refusal is None:
            entry = self.log.look(queue.next)[0]
            if entry is None:
                if not self._passes_gap(queue):
                    return
                continue
            actions = self.log.actions(queue.next) if self._is_same_table(queue.next - 1) else None
            if actions is None:
                return
            commit = commit_of(queue.next, actions, changes=self.task.changes)
            self._refusal = self._refusal_of(queue.next, commit.metadata, commit.protocol)
            if self._refusal is None and commit.rewrites is not None and self._on_rewrite is OnRewrite.FAIL:
                self._refusal = RowsRewritten(f"version {queue.next} {commit.rewrites}", where=self.log.where)
            if self._refusal is None and commit.problem is not None:
                self._refusal = TableUnreadable(f"version {queue.next}: {commit.problem}", where=self.log.where)
            if self._refusal is None:
                if commit.rewrites is not None:
                    self._note_skipped(queue.next, commit.rewrites)
                queue.append(queue.next, self._counted(commit.files))
                self._last = entry

    def _is_same_table(self, read: int) -> bool:
        """Return whether the log is still the one of which versions up to `read` were read.

        Its entries may be cleaned up. But a table that was deleted and created again has others by the same numbers,
        and so has an older copy of the folder. Where it is not, `_refusal` is why.
        """
        last = self.log.look(read)[0]
        if self._last is None or self._last.is_same(last):
            return True
        newest = self.log.versions().newest
        table = self.log.table(newest)
        if table is None:
            why = "the log has no description of the table that can be read"
            self._refusal = TableUnreadable(why, where=self.log.where)
        elif table.id != self.table.id:
            self._refusal = TableReplaced(f"the table was created again, as {table.id}", where=self.log.where)
        elif newest < read:
            self._refusal = TableReplaced(
                f"version {read} was read, and the log ends with {newest}", where=self.log.where
            )
        else:
            self._last = last
        return self._refusal is None

    def _refusal_of(
        self, version: int, metadata: Mapping[str, Any] | None, protocol: Mapping[str, Any] | None
    ) -> PenstockError | None:
        """Return why a version ends the reading by what it says of the table, None where it does not.

        The columns before the version as of which the table was opened are older ones of the same table.
        """
        table = Table(metadata or self.table.metadata, protocol or self.table.protocol)
        where = self.log.where
        if table.id != self.table.id:
            return TableReplaced(f"version {version} makes another table of it, {table.id}", where=where)
        try:
            self.log.refuse_unreadable(table, changes=self.task.changes)
            if metadata is not None and version > self._as_of:
                there, mine = column_types(columns_of_table(table, where)), self._columns
                if (there != mine) if self._derived else any(there.get(name) != mine[name] for name in mine):
                    return self._other_columns(mine, there)
        except TableUnreadable as why:
            return why
        return None

    def _passes_gap(self, queue: Queue) -> bool:
        """Return whether the next version is gone, and a later one is read instead; raises SourceGap by policy."""
        changed = self.log.changed()
        if changed == self._seen:
            return False
        if not self._is_same_table(queue.next - 1):
            return False
        self._seen = changed
        entries = [version for version in self.log.versions().entries if version >= queue.next]
        # A listing may lack the first of two entries that were made meanwhile, and have the second.
        if not entries or entries[0] == queue.next or self.log.look(queue.next)[0] is not None:
            return bool(entries)
        wanted, earliest = queue.next, entries[0]
        problem = f"version {wanted} is wanted, and the log has {earliest} to {entries[-1]}"
        if self._on_gap is OnGap.FAIL:
            self._refusal = SourceGap(problem, where=self.log.where, wanted=wanted, earliest=earliest)
            return False
        self._note_gap(wanted, earliest, problem)
        queue.next, self._last = earliest, None
        return True

    def _note_skipped(self, version: int, why: str) -> None:
        _log.warning("source.version_skipped", table=self.log.where, version=version, why=why)

    def _note_gap(self, wanted: int, earliest: int, problem: str) -> None:
        self._skipped.append([wanted, earliest])
        _log.warning("source.gap", table=self.log.where, why=problem, wanted=wanted, earliest=earliest)

    def _counted(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return files with their numbers of rows, read from those of which the log has none."""
        unknown = [file for file in files if file.rows is None]
        if not unknown:
            return list(files)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            rows = dict(zip(((f.version, f.index) for f in unknown), pool.map(self._rows_of, unknown), strict=True))
        return [replace(file, rows=rows.get((file.version, file.index), file.rows)) for file in files]

    def _rows_of(self, file: DataFile) -> int:
        where = f"{self.log.where}/{file.path}"
        try:
            with self.log.files.open(file.path) as there:
                return int(opened(there).metadata.num_rows)
        except FileVanished as why:
            if self._on_gap is OnGap.FAIL:
                raise SourceGap(f"a file of version {file.version} is gone", where=where) from why
            _log.warning("source.gap", table=self.log.where, why="a file is gone", file=where)
            return 0
        except (pa.ArrowException, OSError) as why:
            raise TableUnreadable(f"a file of the table cannot be read: {why}", where=where) from why

    def _check_head(self, queue: Queue) -> None:
        """Look once for each file of the next batch whether it is there; raises SourceGap by policy."""
        whole = queue.head(self._at_most.files, self._at_most.bytes)
        head = [file for file in whole if _key(file) not in self._checked]
        for file, now in zip(head, self.log.files.look([file.path for file in head]), strict=True):
            if now is None:
                problem = f"a file with {file.rows:,} rows of version {file.version} is gone"
                where = f"{self.log.where}/{file.path}"
                if self._on_gap is OnGap.FAIL:
                    raise SourceGap(problem, where=where)
                _log.warning("source.gap", table=self.log.where, why=problem, file=where)
                queue.lose(file)
        self._checked = {_key(file) for file in whole}

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the position after so many rows; where no row waits, after all versions without rows as well."""
        queue = self._stand_at(after)
        rows = ends[_ONLY] - queue.spot.place
        spot = queue.after(rows) if rows or not queue.rows else queue.spot
        if after is not None and spot == queue.spot:
            return after
        return {**spot.as_json, "table": self.table.id, "changes": self.task.changes, "columns": self._columns}

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the pieces of files to read, with `skipped` versions and rows that are `lost`, where there are any."""
        queue = self._queue
        if queue is None or start != self._at:
            other = DeltaReader(
                self.log,
                self.table,
                self.task,
                as_of=self._as_of,
                start=self._start,
                at_most=self._at_most,
                on_gap=self._on_gap,
                on_rewrite=self._on_rewrite,
                splits=self.splits,
                derived=self._derived,
            )
            other.backlog(start)
            return other.span(start, end)
        self._ahead = (start, end)
        there, lost = queue.pieces(end["place"] - queue.spot.place)
        span: dict[str, Any] = {"table": self.table.id, "pieces": [piece.as_json for piece in there]}
        skipped = [gap for gap in self._skipped if queue.spot.version <= gap[0] < end["version"]]
        return {
            **span,
            **({"skipped": skipped} if skipped else {}),
            **({"lost": [piece.as_json for piece in lost]} if lost else {}),
        }

    def verify(self, span: Span) -> None:
        """Raise TableReplaced or FixedRangeGone where the rows of the span are not there any more."""
        if span["table"] != self.table.id:
            raise TableReplaced(f"the batch has rows of the table {span['table']}", where=self.log.where)
        pieces = pieces_of(span)
        for piece, now in zip(pieces, self.log.files.look([piece.path for piece in pieces]), strict=True):
            if now is None:
                where = f"{self.log.where}/{piece.path}"
                raise FixedRangeGone("a file of the table is gone since its batch was planned", where=where)

    def ended(self, position: Position | None) -> bool:
        """Return False: more may always come."""
        return False

    def rows(self, span: Span) -> int | None:
        """Return how many rows the pieces have."""
        return sum(piece.last - piece.first for piece in pieces_of(span))

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the one partition."""
        return (_ONLY,)

    def passed_over(self, start: Position | None, end: Position, span: Span) -> dict[str, list[list[int]]]:
        """Return the places of all rows before a beginning after the newest version."""
        if start is not None:
            return {}
        read = [*span["pieces"], *span.get("lost", ())]
        begun = end["place"] - sum(piece.last - piece.first for piece in pieces_of({"pieces": read}))
        return {_ONLY: [[0, begun]]} if begun else {}

    def task_reader(self) -> DeltaTaskReader:
        """Return what reads rows in tasks."""
        return self.task


def _key(file: DataFile) -> tuple[int, int]:
    return file.version, file.index
