"""State what every source promises (SEMANTICS 1.1, 1.5, 2.4, 9.1).

A source of your own is one module with three classes. A job names the first, the driver follows the second, tasks read
the third:

    class Numbers(Source):
        def open(self, spark): return NumbersReader()

    class NumbersReader(SplitReader):
        schema = pa.schema([("k", pa.int64())])

        def backlog(self, after): ...           # per partition: the next place, the latest, the rows between
        def position(self, after, ends): ...    # what the log keeps: plain JSON
        def span(self, start, end): ...         # what the tasks read, and what proves that it is unchanged
        def verify(self, span): ...             # raise SourceChanged where it is not
        def ended(self, position): return False
        def rows(self, span): ...
        def partitions(self, span): return ("0",)
        def task_reader(self): return NumbersInTask()

    class NumbersInTask(TaskReader):
        def read(self, span, split, splits): ...  # yield tables: the schema's columns, then HIDDEN

`SplitReader` may be `FrameReader`, whose rows Spark fetches, or `CheckpointedReader`, whose rows the checkpoint keeps.
Beside the module there is its name in `sources/__init__.py`, and a test module. `penstock.testing.source_contract` has
this contract as tests, which the test module subclasses.

A partition is what a source reads in order: a partition of a topic, a folder, a table, a receiver. It has a name for as
long as the source lives. New ones may appear, and old ones go.
A place is a whole number in a partition: an offset, the number of a row, a file, a version, a block. The unit is the
source's own. Places rise, and a place says the same for ever. What lies between two places is read whole or not at all.
A position is the places up to which all partitions were read, and what the source needs to find them again.

The order of a batch:

1. Driver: `backlog(after)`, and `weighed` under a limit in bytes. The engine divides the limits among the partitions,
   and clamps to the end of a bounded run.
2. Driver: `position(after, ends)`. Equal to `after`, nothing is new, and the source is left alone.
3. Driver: `span(after, position)`. Position and span go to the log: from here the batch is fixed.
4. Tasks: `TaskReader.read`, or `FrameReader.frame` for sources that Spark reads.
5. Driver: `partitions`, `rows`, `ended` for the Commit, then `ack` when the sinks have the batch.

After a crash between 3 and 5, another driver begins at `verify(span)`, then 4.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.graph.policies import OnEnd
from penstock.sources.backlog import Ends, ReadLimit, Waiting, WaitingFile
from penstock.time.arrival import PARTITION, POSITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.checkpoint.storage.folder import CheckpointFolder

__all__ = [
    "ERROR",
    "HIDDEN",
    "PARTIAL",
    "PARTITION",
    "POSITION",
    "RAW",
    "WATERMARK",
    "CheckpointedReader",
    "Ends",
    "FrameReader",
    "PartitionNames",
    "ReadLimit",
    "Source",
    "SourceReader",
    "SplitReader",
    "TaskReader",
    "Waiting",
    "WaitingFile",
    "with_hidden",
]

ERROR = "_penstock_error"
"""string: why a record does not fit the schema, null for a good row."""
RAW = "_penstock_raw"
"""string: the record as it came, for rows that go to quarantine, null for a good row."""
PARTIAL = " (the text is not the whole record)"
"""The end of an ERROR whose RAW is not the record as it came: a requeue makes no row of that text."""
HIDDEN = (PARTITION, POSITION, ERROR, RAW)
WATERMARK = "watermark"
"""The member of a position with the watermark that the source itself reports, microseconds since 1970.

Null, or left out, where it reports none; then event times make the watermark (SEMANTICS 2.1).
"""

Position = Mapping[str, Any]
Span = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PartitionNames:
    """How rows in quarantine name their partition, where its number in a span says too little.

    Attributes:
        column: The column of the quarantine with the name.
        of: A function that tasks import by its name: it returns the names of a span's partitions, as
            `SourceReader.partitions` does.
    """

    column: str
    of: Callable[[Span], Sequence[str]]


class TaskReader(Protocol):
    """Read spans inside Spark's tasks.

    It is pickled once a run and sent to every task, so it holds settings and no connection. What is costly to open it
    may keep in the process, by module, for the next batch.
    """

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of part `split` of `splits` of a span: the schema's columns, then HIDDEN.

        A task calls it once for each split, in any order, on any executor, and again when Spark retries the task or
        another driver runs the batch. The same span gives the same rows in the same order each time. Each row is in
        exactly one split, and `splits` decides no more than which. POSITION rises in each partition from span to span.
        A record that cannot be decoded is a row with ERROR and RAW, and null in all other columns. Where RAW is not all
        of the record, ERROR ends with PARTIAL.
        It yields tables that fit into memory, and never one that it changes later. It writes nothing.

        Raises SourceChanged when the rows are not those of the span any more; any other error of the source by name.
        """

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]] | None:
        """Return the rows of texts that were in RAW once, and for each what is wrong with it; None without a way to.

        Tasks call it for records that are sent through again from quarantine (decision 134), with the columns of the
        reader's schema. It fails no record but by such an error, as `read` does. Where the reason in quarantine ends
        with that error, also with an empty one, the reason stays, which may name the file and the line.
        By default there is no way.
        """
        return None


class SourceReader(Protocol):
    """Follow one source on the driver, from `Source.open` to the end of the run.

    One thread calls it. It may keep connections and answers between batches, and nothing that the log does not tell:
    the next driver has positions and spans only. Subclass `SplitReader` or `FrameReader`.
    """

    schema: pa.Schema
    """The columns of its rows, fixed for the run."""
    partition_names: PartitionNames | None = None
    """How rows in quarantine name their partition beside its number; None where the number is its name."""

    def known_as(self, job: str, source: str) -> None:
        """Learn the names of the job and of the source in it, for what others than the job see of it.

        Called once, right after `Source.open`. A contract test of the reader alone does not call it. By default it does
        nothing.
        """
        return

    def backlog(self, after: Position | None) -> Mapping[str, Waiting]:
        """Return what waits after a position, for every partition that the source has now, by name.

        The driver calls it once a batch, before anything is durable, and once where a run fixes its end (SEMANTICS
        1.5). `penstock diff` and the progress on a terminal call it as well. `after` is None before the first batch:
        `next` is then where the source begins. Otherwise `next` is the place in `after`, and for a partition that
        `after` does not have, the earliest place. A partition that is read to its end is in the answer as well. One
        that is missing is gone, and stops holding the watermark back (SEMANTICS 2.4).
        It does not block: where nothing is new it says so, and is asked again.

        Raises SourceChanged where the source is not the one that was read up to `after`.
        """

    def weighed(self, backlog: Mapping[str, Waiting]) -> Mapping[str, Waiting]:
        """Return a backlog with the bytes that wait in each partition, where `backlog` cannot tell them at no cost.

        Called once a batch, right after `backlog`, and only while a limit in bytes is set. An estimate will do; a
        partition whose bytes stay None is not bounded by that limit. By default the backlog stays as it is.
        """
        return backlog

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the position at which the partitions of `ends` are read up to these places, as plain JSON.

        Called once a batch, right after the `backlog` of the same `after`, whose listing may be kept for it. `ends`
        lie between `next` and `latest` of that answer. A partition that it had and `ends` lacks is not begun: the end
        of the run was fixed before it was there.
        Equal to `after` where nothing is new, also where the source has grown meanwhile.
        """

    def span(self, start: Position | None, end: Position) -> Span:
        """Return what to read between two positions, as plain JSON, with the facts that prove it is unchanged.

        Called once a batch, when `end` is not `start`. It goes to the log and into every task, so it is small: names
        and numbers, no rows.
        """

    def verify(self, span: Span) -> None:
        """Raise SourceChanged when a span would no longer give the rows it gave.

        Called by a driver that finds a batch fixed and not committed, and by `penstock diff`.
        """

    def ended(self, position: Position | None) -> bool:
        """Return whether nothing will ever come after this position.

        Called some times a batch; it answers from what `backlog` has learnt. What has ended is not read any more, also
        not after a restart.
        """

    def rows(self, span: Span) -> int | None:
        """Return how many rows a span has, None where only reading tells.

        Called once a batch, after the tasks: the batch must account for each (SEMANTICS 2.10).
        """

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the names of the source's partitions, in the order of their indexes in PARTITION."""

    def passed_over(self, start: Position | None, end: Position, span: Span) -> Mapping[str, Sequence[Sequence[int]]]:
        """Return the rows that a job which has read a span between two positions will never read, by partition.

        As ranges of POSITION whose ends are exclusive: those before the place at which a partition begins, and those
        that are gone and skipped. A requeue sends them, where batches that a restore has undone had them in
        quarantine; it leaves all others to the source (decision 194). A partition that lies in no range is left out.
        Called once a batch, after the tasks, and the same for every run of the batch. By default there are none.
        """
        return {}

    def ack(self, position: Position) -> None:
        """Note outside that all up to a position is committed and published, for the tools of others.

        Called once a batch, after the sinks, in the order of batches, and by a start for the last Commit, whose driver
        may have died before. So a position may come twice. A start that fails leaves calls out, and a restore makes
        them obsolete: nothing may depend on them, and no position is ever read from there. By default it does nothing.
        """
        return


class SplitReader(SourceReader):
    """A reader whose rows the tasks fetch themselves: one plan serves all batches."""

    splits: int | None = 1
    """How many tasks read a span. With None it is one where a batch has few rows, and one a core where it has many."""

    def about_rows(self, span: Span) -> int:
        """Return about how many rows a span has, by which the engine chooses where `splits` is None.

        Called before the tasks, and says the same of a span each time. By default it is what `rows` says.
        """
        return self.rows(span) or 0

    @abstractmethod
    def task_reader(self) -> TaskReader:
        """Return the reader that runs inside the tasks; called when the job is planned, once for each use."""


class CheckpointedReader(SplitReader):
    """A reader whose rows are in the checkpoint of the job, because nobody else keeps them."""

    @abstractmethod
    def keep_in(self, folder: CheckpointFolder, name: str) -> None:
        """Learn the folder of the job's checkpoint, and the name of the source in the job.

        Called once, right after `Source.open`; the folder may not be there yet, and nothing is written here.
        """

    @abstractmethod
    def sweep(self, positions: Sequence[Position]) -> int:
        """Delete what none of these positions reads on from, and return how many files went.

        Called every so often after a batch. The positions are those of all Commits that are kept or saved, and that
        have one of this source. What cannot be deleted is tried again by the next call.
        """


class FrameReader(SourceReader):
    """A reader whose rows Spark fetches: a frame for each batch, and so a plan for each batch (FACTS 5)."""

    @abstractmethod
    def frame(self, span: Span, spark: Any) -> DataFrame:
        """Return the rows of a span: the schema's columns, then HIDDEN, as `TaskReader.read` yields them.

        Called once a batch, before the tasks; the frame is read as often as the job has uses of the source, and gives
        the same rows each time. It is lazy: nothing runs here.
        """


class Source(Protocol):
    """Describe where rows come from, in the code of a job. Subclass it; it holds settings and no connection."""

    live: bool = True
    """Rows are of about now. Then event times are bounded ahead of the batch time (SEMANTICS 2.7), by an hour."""
    on_end: OnEnd = OnEnd.KEEP_OPEN
    """Whether the end of the source, if it has one, closes all windows (SEMANTICS 2.1)."""

    acknowledged: str | None = None
    """Of which rows the guarantee speaks, for sources that senders push to; None where each can be read again."""

    in_files: bool = True
    """A job's file may describe it, as `[sources.NAME]`, by the arguments of its constructor."""

    def open(self, spark: Any) -> SourceReader:
        """Return the reader.

        Called once by each driver and by `penstock diff` and `explain --analyze`, before the log is owned: two drivers
        may have a source open at a time. `spark` is the job's SparkSession.

        Raises SourceNotFound, ConfigError or another error by name for what can be known before the first batch.
        """

    def describe(self) -> str:
        """Return what is read, as one line for `penstock explain`, without secrets. By default it is the type."""
        return type(self).__name__


def with_hidden(
    table: pa.Table,
    partition: pa.Array | int,
    positions: pa.Array,
    error: pa.Array | None = None,
    raw: pa.Array | None = None,
) -> pa.Table:
    """Append the hidden columns to rows that a source has read.

    Args:
        table: The visible columns.
        partition: The source partition of each row (int32), or one for all.
        positions: The place of each row in its partition (int64).
        error: What is wrong with a bad record (string), null for others; None where there is none.
        raw: The text of a bad record (string), null for others; None where there is none.

    Returns:
        The table with PARTITION, POSITION, ERROR and RAW appended.
    """
    n = table.num_rows
    # Arrow's own `repeat` takes 20 times as long.
    index = partition if isinstance(partition, pa.Array) else pa.array(np.full(n, partition, np.int32))
    table = table.append_column(PARTITION, index).append_column(POSITION, positions)
    absent = pa.nulls(n if error is None or raw is None else 0, pa.string())
    table = table.append_column(ERROR, absent if error is None else error)
    return table.append_column(RAW, absent if raw is None else raw)
