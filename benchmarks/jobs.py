"""Write the same work twice: as a Penstock job and as a Structured Streaming query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.folder_source import NumberedFiles
from penstock import Job, agg, seconds
from penstock.sinks import Delta
from penstock.state import idle
from penstock.windows import Session, Sliding, Tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = [
    "Build",
    "discard",
    "grouped",
    "keyed_job",
    "processed",
    "query",
    "session_job",
    "session_query",
    "sliding_job",
    "to_delta",
    "total",
    "totals",
    "tumbling_job",
]

Build = Callable[[NumberedFiles], Job]


def sliding_job(column: str, table: Path, *, every: int = 1) -> Build:
    """Return count and sum of a column by key, over 60 s every so many seconds, into a Delta table."""
    return _job("sliding", Sliding(seconds(60), every=seconds(every)).drop_late(), column, table)


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


VISITOR = "k * 1000000 + (unix_seconds(t) + k % 30) div 30"
"""A key that is another one every 30 s of event time, not all at once: a third of those of 10 s end."""


def session_job(table: Path) -> Build:
    """Return count and sum of `v` by sessions of 30 s with a gap of 5 s, into a Delta table."""

    def build(source: NumberedFiles) -> Job:
        job = Job("sessions", partitions=2)
        rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0))
        keyed = rows.select(f"{VISITOR} AS k", "v").key_by("k")
        totals = keyed.window("w", Session(seconds(5)).drop_late()).aggregate(n=agg.count(), total=agg.sum("v"))
        totals.write("out", Delta(table))
        return job

    return build


def session_query(rows: DataFrame) -> DataFrame:
    """Return the same as a query, in append mode with a watermark of no delay."""
    from pyspark.sql import functions as F

    visits = rows.withColumn("k", F.expr(VISITOR)).withWatermark("t", "0 seconds")
    grouped = visits.groupBy(F.session_window("t", "5 seconds"), "k")
    return grouped.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def to_delta(table: Path) -> Callable[[DataStreamWriter], DataStreamWriter]:
    """Write a query into a Delta table."""
    return lambda writer: writer.format("delta").option("path", str(table.resolve()))


def discard(writer: DataStreamWriter) -> DataStreamWriter:
    """Compute a query's output and throw it away."""
    return writer.format("noop")


# --- keyed state ----------------------------------------------------------------------------------

TOTALS = "n long, total long"


def totals(rows: pa.Table, state: pa.Table, info: Any) -> tuple[pa.Table, pa.Table]:
    """Count and sum by key, vectorised."""
    keys = info.keys.num_rows
    index = info.key_index.to_numpy()
    counts = state["n"].fill_null(0).to_numpy() + np.bincount(index, minlength=keys)
    sums = state["total"].fill_null(0).to_numpy().copy()
    np.add.at(sums, index, rows["v"].to_numpy())
    kept = pa.table({"n": pa.array(counts, pa.int64()), "total": pa.array(sums, pa.int64())})
    return info.keys.append_column("n", kept["n"]).append_column("total", kept["total"]), kept


def total(_time: Any, key: int, row: dict[str, Any] | None, state: Any) -> dict[str, Any] | None:
    """Count and sum by key, row by row."""
    if row is None:
        return None
    old = state.get_or(None) or {"n": 0, "total": 0}
    new = {"n": old["n"] + 1, "total": old["total"] + row["v"]}
    state.update(new)
    return {"k": key, **new}


def keyed_job(
    table: Path, *, form: str = "arrow", idle_for: int | None = None, held: int | None = None, partitions: int = 2
) -> Build:
    """Return count and sum by key, in state that is kept for ever or forgotten so many seconds after the last row.

    `held` is the number of keys that it begins with.
    """

    def build(source: NumberedFiles) -> Job:
        job = Job("keyed", partitions=partitions)
        keyed = job.source("rows", source).select("k", "v").key_by("k")
        arguments: dict[str, Any] = {"state": TOTALS, "output": f"k long, {TOTALS}"}
        arguments |= {"unbounded": True} if idle_for is None else {"timeout": idle(seconds(idle_for))}
        if held is not None:
            arguments["initial"] = lambda: _every_key(held)
        step = keyed.map_with_state_arrow if form == "arrow" else keyed.map_with_state
        step("totals", totals if form == "arrow" else total, **arguments).write("out", Delta(table))
        return job

    return build


def _every_key(held: int) -> DataFrame:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    assert spark is not None
    return spark.range(held).selectExpr("id AS k", "1L AS n", "id AS total")


def grouped(rows: DataFrame) -> DataFrame:
    """Return count and sum by key as a query: Spark's own aggregation."""
    from pyspark.sql import functions as F

    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def processed(rows: DataFrame) -> DataFrame:
    """Return count and sum by key as a query with a function in Python: transformWithState."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.kept = handle.getValueState("kept", TOTALS)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's names
            n, total = self.kept.get() if self.kept.exists() else (0, 0)
            for row in rows:
                n, total = n + 1, total + row.v
            self.kept.update((n, total))
            yield Row(k=key[0], n=n, total=total)

        def close(self) -> None:
            pass

    return rows.groupBy("k").transformWithState(Totals(), f"k long, {TOTALS}", "update", "None")
