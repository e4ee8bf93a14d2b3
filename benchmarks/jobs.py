"""Write the same work twice: as a Penstock job and as a Structured Streaming query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.folder_source import NumberedFiles
from penstock import Job, agg, seconds
from penstock.sinks import Delta
from penstock.windows import Sliding, Tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

__all__ = ["discard", "query", "sliding_job", "to_delta", "tumbling_job"]

Build = Callable[[NumberedFiles], Job]


def sliding_job(column: str, table: Path) -> Build:
    """Return count and sum of a column by key, over 60 s every 1 s, into a Delta table."""
    return _job("sliding", Sliding(seconds(60), every=seconds(1)).drop_late(), column, table)


def tumbling_job(column: str, table: Path) -> Build:
    """Return count and sum of a column by key, over 10 s, into a Delta table."""
    return _job("tumbling", Tumbling(seconds(10)).drop_late(), column, table)


def _job(name: str, window: Any, column: str, table: Path) -> Build:
    def build(source: NumberedFiles) -> Job:
        job = Job(name, partitions=2)
        rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0))
        totals = rows.key_by("k").window("w", window).aggregate(n=agg.count(), total=agg.sum(column))
        totals.write("out", Delta(table))
        return job

    return build


def query(column: str, size: str, every: str | None = None) -> Callable[[DataFrame], DataFrame]:
    """Return the same as a query, in append mode with a watermark of no delay."""

    def transform(rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        windows = F.window("t", size, every) if every else F.window("t", size)
        grouped = rows.withWatermark("t", "0 seconds").groupBy(windows, "k")
        return grouped.agg(F.count("*").alias("n"), F.sum(column).alias("total"))

    return transform


def to_delta(table: Path) -> Callable[[DataStreamWriter], DataStreamWriter]:
    """Write a query into a Delta table."""
    return lambda writer: writer.format("delta").option("path", str(table.resolve()))


def discard(writer: DataStreamWriter) -> DataStreamWriter:
    """Compute a query's output and throw it away."""
    return writer.format("noop")
