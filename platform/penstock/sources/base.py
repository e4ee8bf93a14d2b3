"""State what every source promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from penstock.graph.policies import OnEnd

__all__ = [
    "ERROR",
    "HIDDEN",
    "PARTITION",
    "POSITION",
    "RAW",
    "ReadLimit",
    "Source",
    "SourceReader",
    "TaskReader",
    "with_hidden",
]

PARTITION = "_penstock_partition"
"""int32: the index of the source partition a row was read from."""
POSITION = "_penstock_position"
"""int64: the row's place in its source partition; with PARTITION it orders the rows of a source totally."""
ERROR = "_penstock_error"
"""string: why a record does not fit the schema; null for a good row."""
RAW = "_penstock_raw"
"""string: the record as it came, for rows that go to quarantine; null for a good row."""
HIDDEN = (PARTITION, POSITION, ERROR, RAW)

Position = Mapping[str, Any]
Span = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """Bound what one batch may read; None means no bound beside the source's own."""

    rows: int | None = None


class TaskReader(Protocol):
    """Read spans inside Spark's tasks. Picklable; holds no connection."""

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of part `split` of `splits` of a span: the schema's columns, then HIDDEN.

        The same span gives the same rows in the same order, today and after a restart elsewhere.
        A table stays as it was yielded: it may be looked at when later ones have been read.
        Raises SourceChanged when it cannot.
        """


class SourceReader(Protocol):
    """Follow one source on the driver."""

    schema: pa.Schema
    splits: int

    def latest(self, after: Position | None, limit: ReadLimit) -> Position:
        """Return the newest position this batch may read to.

        Called once a batch, before anything is durable.
        Never earlier than `after`; equal to it when nothing is new.
        """

    def newest(self, after: Position | None) -> Position:
        """Return the newest position of every partition now, whatever the limits; never earlier than `after`.

        Called once where a run fixes its end (SEMANTICS 1.5), however fast the source grows.
        """

    def clamp(self, position: Position, target: Position) -> Position:
        """Return the earlier of two positions, partition by partition.

        `target` is an answer of `newest` and `position` a later one of `latest`. The result equals `target` where
        `position` has reached or passed it everywhere. A partition that `target` lacks is new since then: left out.
        """

    def backlog(self, position: Position | None) -> Mapping[str, int]:
        """Return how many rows wait behind a position now, for every partition that the source has now.

        The names are those of `partitions`. A partition with a row here was held back: it is not idle. One that was
        read and is missing here is gone: it stops holding the watermark back (SEMANTICS 2.4).
        """

    def span(self, start: Position | None, end: Position) -> Span:
        """Return what to read between two positions, as plain JSON, with the facts that prove it is unchanged."""

    def verify(self, span: Span) -> None:
        """Raise SourceChanged when the span would no longer give the rows it gave."""

    def ended(self, position: Position | None) -> bool:
        """Return whether nothing will ever come after this position."""

    def rows(self, span: Span) -> int | None:
        """Return how many rows a span has, None where only reading tells; the batch must account for each."""

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the names of the source's partitions, in the order of their indexes in PARTITION."""

    def task_reader(self) -> TaskReader:
        """Return the reader that runs inside the tasks."""

    def ack(self, position: Position) -> None:
        """Note that all up to a position is committed and published, for the tools of others; by default nothing."""
        return


class Source(Protocol):
    """Describe where rows come from; opened once by each driver."""

    live: bool = True
    """Rows are of about now. Then event times are bounded ahead of the batch time (SEMANTICS 2.7), by an hour."""
    on_end: OnEnd = OnEnd.KEEP_OPEN
    """Whether the end of the source, if it has one, closes all windows (SEMANTICS 2.1)."""

    def open(self, spark: Any) -> SourceReader:
        """Return the reader; `spark` is the job's SparkSession."""


def with_hidden(
    table: pa.Table,
    partition: pa.Array | int,
    positions: pa.Array,
    error: pa.Array | None = None,
    raw: pa.Array | None = None,
) -> pa.Table:
    """Return the table with the hidden columns appended."""
    n = table.num_rows
    index = partition if isinstance(partition, pa.Array) else pa.repeat(pa.scalar(partition, pa.int32()), n)
    table = table.append_column(PARTITION, index).append_column(POSITION, positions)
    table = table.append_column(ERROR, pa.nulls(n, pa.string()) if error is None else error)
    return table.append_column(RAW, pa.nulls(n, pa.string()) if raw is None else raw)
