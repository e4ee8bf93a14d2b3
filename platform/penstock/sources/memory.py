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
from penstock.sources.base import HIDDEN, Position, ReadLimit, Source, SourceReader, Span, TaskReader, with_hidden
from penstock.sources.records import arrow_schema, rows_to_table

__all__ = ["MemorySource"]

Rows = Sequence[Mapping[str, Any]]


class _Fed:
    """Hold what was fed, and the folder of spooled spans, which goes with the last source that holds this."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.chunks: list[list[Rows]] = []
        self.watermark: int | None = None
        self.ended = False
        folder = tempfile.mkdtemp(prefix="penstock-memory-")
        self.folder = Path(folder)
        self._finalizer = weakref.finalize(self, rmtree, folder, ignore_errors=True)


class MemorySource(Source):
    """Hold rows that a test feeds, as chunks numbered from 0.

    A position names the last chunk that was read, so a restart or a restore reads the later ones again.
    `on_end` says whether all windows close at the end, where `end` makes one (SEMANTICS 2.1).
    """

    live = False

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
        """Say that no rows come after those that were fed: the source is bounded from now on."""
        self._fed.ended = True

    def continue_from(self, other: MemorySource) -> None:
        """Become the source that `other` was, though the schema may be another.

        What was fed to this one comes behind what was fed to `other`; from now on, feeding either feeds both.
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


class MemoryReader(SourceReader):
    """Follow a MemorySource; each span is spooled to a file of its own, which the tasks map."""

    splits = 1

    def __init__(self, source: MemorySource, schema: pa.Schema) -> None:
        self.source = source
        self.schema = schema

    def latest(self, after: Position | None, limit: ReadLimit) -> Position:
        """Return the position behind the newest chunk."""
        done = self._chunks_done(after)
        rows = dict(after["rows"]) if after else {}
        for chunk in self.source.chunks[done:]:
            for i, part in enumerate(chunk):
                rows[str(i)] = rows.get(str(i), 0) + len(part)
        said = self.source.watermark if self.source.watermark is not None else (after or {}).get("watermark")
        return {"object": self.source.id, "chunks": len(self.source.chunks), "rows": rows, "watermark": said}

    def newest(self, after: Position | None) -> Position:
        """Return the position behind the newest chunk."""
        return self.latest(after, ReadLimit())

    def clamp(self, position: Position, target: Position) -> Position:
        """Return the earlier of two positions; of the same chunks `target`, with the watermark of then."""
        return position if position["chunks"] < target["chunks"] else target

    def backlog(self, position: Position | None) -> dict[str, int]:
        """Return the rows behind a position, by partition."""
        done = position["rows"] if position else {}
        return {name: n - int(done.get(name, 0)) for name, n in self.newest(position)["rows"].items()}

    def span(self, start: Position | None, end: Position) -> Span:
        """Spool the chunks between two positions to a file and name it."""
        counts = {name: int(n) for name, n in (start["rows"] if start else {}).items()}
        read = sum(end["rows"].values()) - sum(counts.values())
        chunks = [self._chunks_done(start), int(end["chunks"])]
        span: dict[str, Any] = {
            "partitions": sorted(end["rows"], key=int),
            "file": str(self.source.folder / f"{uuid.uuid4().hex}.arrow") if read else None,
            "rows": read,
            "chunks": chunks,
            "before": counts,
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
        counts = dict(span["before"])
        tables = []
        first, last = span["chunks"]
        for chunk in self.source.chunks[first:last]:
            for i, part in enumerate(chunk):
                table, errors, raw = rows_to_table(part, self.schema)
                known = counts.get(str(i), 0)
                if self.source.on_bad_record is BadRecord.FAIL and errors.null_count < len(errors):
                    row = next(j for j, e in enumerate(errors) if e.is_valid)
                    raise BadRecordFound(f"row {known + row} of partition {i} does not fit: {errors[row]}")
                positions = pa.array(range(known, known + len(part)), pa.int64())
                tables.append(with_hidden(table, i, positions, errors, raw))
                counts[str(i)] = known + len(part)
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
