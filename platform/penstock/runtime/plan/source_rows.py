"""Read the rows of sources, each source once in a batch (decision 73)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.graph.nodes import SourceNode
from penstock.runtime.plan.branch_frame import BranchFrame, source_frame
from penstock.runtime.plan.projection import map_in_arrow
from penstock.runtime.tasks.columns import FUTURE
from penstock.runtime.tasks.functions import TaskFunction, frame_task, no_rows, read_task, send_task, take_task
from penstock.runtime.tasks.transport import ENVELOPE
from penstock.sources.base import ERROR, PARTITION, POSITION, RAW, PartitionNames, SplitReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BatchFrame", "BatchReader", "SourceRows"]


@dataclass(frozen=True)
class BatchFrame:
    """The frame of a `FrameReader` for one batch; None where the batch reads nothing of it, and in analysis."""

    schema: pa.Schema
    frame: DataFrame | None = None
    partition_names: PartitionNames | None = None


BatchReader = SplitReader | BatchFrame
"""What a frame of the job takes the rows of a source from."""


class SourceRows:
    """Give the forks of sources their rows.

    A source that is `shared` has several forks: its rows go through a shuffle, of which Spark reads one output as often
    as anybody wants it. `tasks` is how many read a source that leaves their number to the engine.
    """

    def __init__(
        self, spark: SparkSession, readers: Mapping[str, BatchReader], shared: Iterable[str], *, tasks: int
    ) -> None:
        self._spark = spark
        self._readers = readers
        self._shared = frozenset(shared)
        self._tasks = tasks
        self._sent: dict[str, DataFrame] = {}
        self._frames: dict[str, BranchFrame] = {}

    def frame(self, node: SourceNode) -> BranchFrame:
        """Return a source's rows with event time and fate, analysed once."""
        if node.name not in self._frames:
            visible = self._readers[node.name].schema
            schema = self._as_read(node, visible)
            frame, task = self.read(node, visible)
            self._frames[node.name] = source_frame(
                map_in_arrow(frame, task, schema),
                tuple(visible.names),
                event_time=node.event_time,
                bounded_ahead=node.max_future is not None,
                site=node.site,
            )
        return self._frames[node.name]

    def read(self, node: SourceNode, columns: pa.Schema) -> tuple[DataFrame, TaskFunction]:
        """Return a frame, and the function that makes rows with these columns, and hidden ones, of its batches."""
        schema, reader = self._as_read(node, columns), self._readers[node.name]
        if isinstance(reader, BatchFrame):
            if reader.frame is None:
                return self._spark.range(0, 1, 1, 1), no_rows
            # Each fork reads the frame again: what is sent once is sent by splits, and a frame has none.
            return reader.frame, frame_task(node.max_future, schema)
        splits = self._tasks if reader.splits is None else reader.splits
        parts = self._spark.range(0, splits, 1, splits)
        read = read_task(node.name, reader.task_reader(), splits, node.max_future, schema)
        if node.name not in self._shared:
            return parts, read
        if node.name not in self._sent:
            sent = map_in_arrow(parts, send_task(read, splits), ENVELOPE)
            self._sent[node.name] = sent.repartitionById(splits, "_pid")
        return self._sent[node.name], take_task(schema)

    def _as_read(self, node: SourceNode, columns: pa.Schema) -> pa.Schema:
        """Return the columns of what is read of a source, hidden ones as well."""
        hidden = [(PARTITION, pa.int32()), (POSITION, pa.int64()), (ERROR, pa.string()), (RAW, pa.string())]
        if node.max_future is not None:
            hidden.append((FUTURE, pa.int64()))
        # A bad record has no values, whatever its schema promises.
        plain = [f.with_nullable(nullable=True) for f in columns]
        return pa.schema([*plain, *(pa.field(n, t) for n, t in hidden)])
