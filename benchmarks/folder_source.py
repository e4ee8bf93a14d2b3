"""Read the numbered files of an `Input`, one number a batch, with pyarrow inside the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import Input
from penstock.errors import SourceChanged
from penstock.sources.base import Ends, Position, Source, Span, SplitReader, TaskReader, Waiting, with_hidden

__all__ = ["NumberedFiles"]


class NumberedFiles(Source, SplitReader):
    """Follow numbered files; `offered` says how many batches of them may be read by now."""

    live = False

    def __init__(self, given: Input, columns: tuple[str, ...] | None = None) -> None:
        self.given = given
        self.columns = columns  # those that are read; None for all
        self.splits = given.files_a_batch
        self.offered = 0
        schema = pq.read_schema(given.files(0)[0])
        self.schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])

    def open(self, spark: Any) -> NumberedFiles:
        """Return itself: it follows as well as describes."""
        return self

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the numbers that are offered and not read, of which a batch takes one."""
        done = after["next"] if after else 0
        latest = max(done, self.offered)
        rows = (latest - done) * self.given.rows
        return {"0": Waiting(next=done, latest=latest, rows=rows, batch_end=min(done + 1, latest))}

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the next number."""
        return {"next": ends["0"]}

    def span(self, start: Position | None, end: Position) -> Span:
        """Name the files of a number, with what tells whether they were changed; before the first there are none."""
        number = end["next"] - 1
        paths = self.given.files(number) if number >= 0 else []
        return {"number": number, "files": [str(path.resolve()) for path in paths], "facts": _facts(paths)}

    def verify(self, span: Span) -> None:
        """Raise SourceChanged when a file is another."""
        if _facts([Path(name) for name in span["files"]]) != span["facts"]:
            raise SourceChanged(f"the files of number {span['number']} were changed")

    def ended(self, position: Position | None) -> bool:
        """Return False: more may be offered."""
        return False

    def rows(self, span: Span) -> int | None:
        """Return the rows of a batch."""
        return self.given.rows if span["files"] else 0

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the one partition."""
        return ("0",)

    def task_reader(self) -> NumberedFilesInTask:
        """Return the reader of one file a task."""
        return NumberedFilesInTask(self.given.rows, self.columns)


@dataclass(frozen=True)
class NumberedFilesInTask(TaskReader):
    """Read one file in each task."""

    rows: int
    columns: tuple[str, ...] | None

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of one file."""
        if not span["files"]:
            return
        # In one piece, so that nobody joins it.
        table = pq.ParquetFile(span["files"][split]).read(self.columns, use_threads=False)
        first = span["number"] * self.rows + self.rows * split // splits
        yield with_hidden(table, 0, pa.array(np.arange(first, first + table.num_rows)))


def _facts(paths: list[Path]) -> list[list[int]]:
    return [[stat.st_size, stat.st_mtime_ns] for stat in (path.stat() for path in paths)]
