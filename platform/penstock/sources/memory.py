"""Feed rows from the test kit: scripted, partitioned, and replayable for as long as the object lives."""

from __future__ import annotations

import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa

from penstock.errors import BadRecordFound, JobError, SourceChanged
from penstock.graph.policies import BadRecord, OnEnd
from penstock.graph.source_location import user_site
from penstock.sources.base import (
    HIDDEN,
    WATERMARK,
    Ends,
    Position,
    Source,
    Span,
    SplitReader,
    TaskReader,
    Waiting,
    with_hidden,
)
from penstock.sources.json_texts import rows_by_type
from penstock.sources.records import arrow_schema, rows_to_table

__all__ = ["MemorySource"]

Rows = Sequence[Mapping[str, Any]]

_TAKEN = "taken"
"""The member of a position with what a limit has let through of chunks that are not read whole, rows by partition."""


class _Fed:
    """The fed rows, and the folder of spooled spans, which goes with the last source that holds this."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.chunks: list[list[Rows]] = []
        self.watermark: int | None = None
        self.ended = False
        folder = tempfile.mkdtemp(prefix="penstock-memory-")
        self.folder = Path(folder)
        self._finalizer = weakref.finalize(self, rmtree, folder, ignore_errors=True)


class MemorySource(Source):
    """Rows that a test feeds, as chunks numbered from 0.

    A position names the chunks that were read, so a restart or a restore reads the later ones again.
    `on_end` says whether all windows close at the end, where `end` makes one (SEMANTICS 2.1).
    """

    live = False
    in_files = False

    def __init__(
        self, schema: str, *, on_bad_record: BadRecord = BadRecord.QUARANTINE, on_end: OnEnd = OnEnd.KEEP_OPEN
    ) -> None:
        self.schema = schema
        self.on_end = on_end
        self.on_bad_record = on_bad_record
        self._fed = _Fed()

    @property
    def id(self) -> str:
        """Return what positions name this source by."""
        return self._fed.id

    @property
    def chunks(self) -> list[list[Rows]]:
        """Return the chunks, each a list of partitions."""
        return self._fed.chunks

    @property
    def watermark(self) -> int | None:
        """Return the watermark that the source reports, in microseconds since 1970; None for none of its own."""
        return self._fed.watermark

    @watermark.setter
    def watermark(self, at: int | None) -> None:
        self._fed.watermark = at

    @property
    def folder(self) -> Path:
        """Return the folder of spooled spans."""
        return self._fed.folder

    def feed(self, rows: Sequence[Any]) -> None:
        """Add one chunk: a list of rows, or a list of such lists, one for each partition.

        Raises JobError after `end`.
        """
        if self._fed.ended:
            raise JobError("a MemorySource that has ended takes no more rows", where=str(user_site()))
        listed = list(rows)
        partitioned = bool(listed) and all(isinstance(part, list | tuple) for part in listed)
        self.chunks.append([list(part) for part in listed] if partitioned else [listed])

    @property
    def ended(self) -> bool:
        """Return whether no rows come any more."""
        return self._fed.ended

    def end(self) -> None:
        """End the source after the rows that were fed: it is bounded from now on."""
        self._fed.ended = True

    def continue_from(self, other: MemorySource) -> None:
        """Become the source that `other` was, though the schema may be another.

        Rows fed to this source follow those fed to `other`. From now on, feeding either feeds both.
        """
        mine, theirs = self._fed, other._fed
        if mine is theirs:
            return
        theirs.chunks.extend(mine.chunks)
        if mine.watermark is not None:
            theirs.watermark = mine.watermark
        theirs.ended = theirs.ended or mine.ended
        self._fed = theirs

    def open(self, spark: Any) -> MemoryReader:
        """Return the reader; the schema is Spark DDL."""
        return MemoryReader(self, arrow_schema(self.schema))


class MemoryReader(SplitReader):
    """Follow a MemorySource; each span is spooled to a file of its own, which the tasks map."""

    def __init__(self, source: MemorySource, schema: pa.Schema) -> None:
        self.source = source
        self.schema = schema

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the rows that were fed and follow a position."""
        known, taken = (dict(after["rows"]), self._taken(after)) if after else ({}, {})
        fed: dict[str, int] = {}
        for chunk in self.source.chunks[self._chunks_done(after) :]:
            for i, part in enumerate(chunk):
                fed[str(i)] = fed.get(str(i), 0) + len(part)
        waiting = {}
        for name in {**known, **fed}:
            first = int(known.get(name, 0))
            waiting[name] = Waiting.of_rows(first, first + fed.get(name, 0) - taken.get(name, 0))
        return waiting

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the chunks that are read whole up to these rows, and what is read of the next ones."""
        done, known = self._chunks_done(after), dict(after["rows"]) if after else {}
        left = self._taken(after)
        for name, end in ends.items():
            left[name] = left.get(name, 0) + end - int(known.get(name, 0))
        for chunk in self.source.chunks[done:]:
            if any(left.get(str(i), 0) < len(part) for i, part in enumerate(chunk)):
                break
            done += 1
            for i, part in enumerate(chunk):
                left[str(i)] = left.get(str(i), 0) - len(part)
        watermark = self.source.watermark if self.source.watermark is not None else (after or {}).get(WATERMARK)
        taken = {name: n for name, n in left.items() if n}
        position = {"object": self.source.id, "chunks": done, "rows": {**known, **ends}, WATERMARK: watermark}
        return {**position, **({_TAKEN: taken} if taken else {})}

    def span(self, start: Position | None, end: Position) -> Span:
        """Spool the rows between two positions to a file and name it."""
        counts = {name: int(n) for name, n in (start["rows"] if start else {}).items()}
        read = sum(end["rows"].values()) - sum(counts.values())
        span: dict[str, Any] = {
            "partitions": sorted(end["rows"], key=int),
            "file": str(self.source.folder / f"{uuid.uuid4().hex}.arrow") if read else None,
            "rows": read,
            "chunks": [self._chunks_done(start), len(self.source.chunks)],
            "before": counts,
            "after": dict(end["rows"]),
            _TAKEN: self._taken(start),
        }
        if read:
            self._spool(span)
        return span

    def verify(self, span: Span) -> None:
        """Raise SourceChanged when the spooled file is gone with the process that fed it.

        One that was spooled by a job with another schema is spooled again: the rows are the same.
        """
        if span["file"] is None:
            return
        path = Path(span["file"])
        if not path.exists():
            raise SourceChanged("the rows fed to a MemorySource went with the process that fed them")
        with pa.memory_map(str(path)) as file:
            spooled = [f for f in pa.ipc.open_file(file).schema if f.name not in HIDDEN]
        if pa.schema(spooled) != self.schema:
            if path.parent != self.source.folder:
                raise SourceChanged("the rows were fed to another MemorySource, and with another schema")
            self._spool(span)

    def _spool(self, span: Span) -> None:
        """Write the rows of a span to its file."""
        counts, skipped = dict(span["before"]), dict(span[_TAKEN])
        tables = []
        first, last = span["chunks"]
        for chunk in self.source.chunks[first:last]:
            for i, part in enumerate(chunk):
                name = str(i)
                skip = min(skipped.get(name, 0), len(part))
                skipped[name] = skipped.get(name, 0) - skip
                known = counts.get(name, 0)
                rows = part[skip : skip + span["after"].get(name, known) - known]
                table, errors, raw = rows_to_table(rows, self.schema)
                if self.source.on_bad_record is BadRecord.FAIL and errors.null_count < len(errors):
                    row = next(j for j, e in enumerate(errors) if e.is_valid)
                    raise BadRecordFound(f"row {known + row} of partition {i} does not fit: {errors[row]}")
                positions = pa.array(range(known, known + len(rows)), pa.int64())
                tables.append(with_hidden(table, i, positions, errors, raw))
                counts[name] = known + len(rows)
        merged = pa.concat_tables(tables)
        path = Path(span["file"])
        whole = path.with_suffix(".tmp")
        with pa.OSFile(str(whole), "wb") as file, pa.ipc.new_file(file, merged.schema) as writer:
            writer.write_table(merged)
        whole.replace(path)

    def ended(self, position: Position | None) -> bool:
        """Return whether the test has ended the source, and all that was fed is read."""
        return self.source.ended and self._chunks_done(position) == len(self.source.chunks)

    def rows(self, span: Span) -> int | None:
        """Return the number of rows fed in the span."""
        return int(span["rows"])

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the partition numbers as text."""
        return tuple(span["partitions"])

    def task_reader(self) -> MemoryTaskReader:
        """Return the reader of spooled files."""
        return MemoryTaskReader(self.schema)

    def _taken(self, position: Position | None) -> dict[str, int]:
        """Return what is read, by partition, of the chunks behind those that are read whole."""
        if position is None or position["object"] != self.source.id:
            return {}
        return {name: int(n) for name, n in position.get(_TAKEN, {}).items()}

    def _chunks_done(self, position: Position | None) -> int:
        if position is None or position["object"] != self.source.id:
            return 0
        return int(position["chunks"])


@dataclass(frozen=True)
class MemoryTaskReader(TaskReader):
    """Map a spooled file inside a task."""

    schema: pa.Schema

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the whole span in the first split."""
        if split == 0 and span["file"] is not None:
            with pa.memory_map(span["file"]) as file:
                yield pa.ipc.open_file(file).read_all()

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]]:
        """Return rows that were fed, of which each text is JSON."""
        return rows_by_type(texts, schema)
