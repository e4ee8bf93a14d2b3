"""A source of partitions that grow while they are looked at, and that can be taken away, as a topic's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.sources.base import (
    Ends,
    FrameReader,
    Position,
    Source,
    SourceReader,
    Span,
    SplitReader,
    TaskReader,
    Waiting,
    with_hidden,
)

SCHEMA = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("p", pa.string()), ("n", pa.int64())])
S = 1_000_000


@dataclass
class _Growing(Source, SourceReader):
    """Follow partitions, each with so many rows; row n of a partition has event time `times[partition]` + n seconds.

    `held` are the rows of each. Each question for what is there adds `growth` rows to every partition.
    A batch reads at most `a_batch` of each.
    """

    held: dict[str, int]
    growth: int = 0
    a_batch: int = 1_000_000
    times: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    schema = SCHEMA

    def open(self, spark: Any) -> SourceReader:
        """Return itself: it follows as well as describes."""
        return self

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the rows of each partition behind a position, after they have grown."""
        self._grow()
        return {p: Waiting.of_rows(self._at(after, p), n, at_most=self.a_batch) for p, n in self.held.items()}

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the number of each partition."""
        return dict(ends)

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the numbers to read of each partition."""
        return {p: [self._at(start, p), n, self.times.get(p, 0)] for p, n in sorted(end.items())}

    def verify(self, span: Span) -> None:
        """Find the rows as they were."""

    def ended(self, position: Position | None) -> bool:
        """Return False: there is always more."""
        return False

    def rows(self, span: Span) -> int:
        """Return how many rows a span has."""
        return sum(last - first for first, last, _ in span.values())

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the names."""
        return tuple(span)

    def _grow(self) -> None:
        self.asked += 1
        assert self.asked < 1_000, "there is no end"
        self.held = {p: n + self.growth for p, n in self.held.items()}

    @staticmethod
    def _at(position: Position | None, partition: str) -> int:
        return int(position.get(partition, 0)) if position else 0


class Topic(_Growing, SplitReader):
    """Partitions that the tasks read."""

    def task_reader(self) -> TaskReader:
        """Return the reader."""
        return TopicTask()


class FramedTopic(_Growing, FrameReader):
    """Partitions that Spark reads, a frame a batch."""

    def frame(self, span: Span, spark: Any) -> Any:
        """Return the rows in two parts, whatever partition they are of."""
        rows = pa.concat_tables([with_hidden(SCHEMA.empty_table(), 0, pa.array([], pa.int64())), *rows_of(span)])
        # One chunk: of a table that begins with empty chunks Spark loses rows.
        return spark.createDataFrame(rows.combine_chunks()).repartition(2)


@dataclass(frozen=True)
class TopicTask(TaskReader):
    """Make the rows of a span."""

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of each partition in the first split."""
        if split == 0:
            yield from rows_of(span)


def rows_of(span: Span) -> Iterator[pa.Table]:
    """Yield the rows of a span, a table for each partition."""
    for index, (partition, (first, last, start)) in enumerate(span.items()):
        numbers = range(first, last)
        columns = [[(start + n) * S for n in numbers], [partition] * len(numbers), list(numbers)]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
        yield with_hidden(table, index, pa.array(numbers, pa.int64()))
