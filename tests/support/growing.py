"""A source of partitions that grow while they are looked at, and that can be taken away, as a topic's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.sources.base import Position, ReadLimit, Source, SourceReader, Span, TaskReader, with_hidden

SCHEMA = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("p", pa.string()), ("n", pa.int64())])
S = 1_000_000


@dataclass
class Topic(Source, SourceReader):
    """Follow partitions, each with so many rows; row n of a partition has event time `times[partition]` + n seconds.

    `held` are the rows of each. Each question for what is there adds `growth` rows to every partition.
    A batch reads at most `a_batch` of each, or what the limit says.
    """

    held: dict[str, int]
    growth: int = 0
    a_batch: int = 1_000_000
    times: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    schema = SCHEMA
    splits = 1

    def open(self, spark: Any) -> Topic:
        """Return itself: it follows as well as describes."""
        return self

    def latest(self, after: Position | None, limit: ReadLimit) -> Position:
        """Return a batch further in each partition."""
        self._grow()
        most = self.a_batch if limit.rows is None else min(self.a_batch, limit.rows)
        return {p: min(self._at(after, p) + most, n) for p, n in self.held.items()}

    def newest(self, after: Position | None) -> Position:
        """Return the end of each partition."""
        self._grow()
        return dict(self.held)

    def clamp(self, position: Position, target: Position) -> Position:
        """Return the lower number of each partition that the target has."""
        return {p: min(position.get(p, n), n) for p, n in target.items()}

    def backlog(self, position: Position | None) -> dict[str, int]:
        """Return the rows of each partition behind a position."""
        return {p: n - self._at(position, p) for p, n in self.held.items()}

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

    def task_reader(self) -> TopicTask:
        """Return the reader."""
        return TopicTask()

    def _grow(self) -> None:
        self.asked += 1
        assert self.asked < 1_000, "there is no end"
        self.held = {p: n + self.growth for p, n in self.held.items()}

    @staticmethod
    def _at(position: Position | None, partition: str) -> int:
        return int(position.get(partition, 0)) if position else 0


@dataclass(frozen=True)
class TopicTask(TaskReader):
    """Make the rows of a span."""

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of each partition in the first split."""
        for index, (partition, (first, last, start)) in enumerate(span.items() if split == 0 else ()):
            numbers = range(first, last)
            columns = [[(start + n) * S for n in numbers], [partition] * len(numbers), list(numbers)]
            table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
            yield with_hidden(table, index, pa.array(numbers, pa.int64()))
