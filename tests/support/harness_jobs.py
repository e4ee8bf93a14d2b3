"""Jobs that the operator tests run in the Harness."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from penstock import Job, agg, seconds
from penstock.graph.durations import Duration
from penstock.graph.windows import EventWindow
from penstock.quality import OnFail
from penstock.sinks import Delta, MemorySink
from penstock.sources import MemorySource
from penstock.windows import Sliding, Tumbling

NO_BOUND = seconds(0)
ORDERS = "user string, t timestamp, v int"
TOTALS = {
    "name": "totals",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": 50, "mostly": 0.9}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}, "severity": "warning"},
    ],
}


def windowed_job(
    spec: EventWindow, *, bound: Duration = NO_BOUND, idle_after: Duration | None = None, partitions: int = 1
) -> Job:
    """Count and sum `v` by user in windows of source `orders`, into sink `out`."""
    job = Job("windowed", partitions=partitions)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=bound, idle_after=idle_after)
    windows = orders.key_by("user").window("w", spec).aggregate(n=agg.count(), total=agg.sum("v"))
    windows.write("out", MemorySink())
    return job


def order(user: str | None, t: float | None, v: int | None = 1) -> dict[str, Any]:
    """Return a row of the source."""
    return {"user": user, "t": t, "v": v}


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows as tuples, with datetimes as seconds since 1970."""
    return [tuple(v.timestamp() if isinstance(v, datetime) else v for v in row.values()) for row in rows]


def copying(source: MemorySource | None = None, sink: Any = None, **columns: str) -> Job:
    """Return a job that copies what is fed."""
    job = Job("copying", partitions=1)
    fed = job.source("fed", source or MemorySource("v int"))
    (fed.with_columns(**columns) if columns else fed).write("out", sink or MemorySink())
    return job


def values(output: dict[str, list[dict[str, Any]]]) -> list[int]:
    """Return the values that sink `out` got."""
    return [row["v"] for row in output["out"]]


def flights_like(tables: Path) -> Job:
    """Build a job with everything the demo has: late rows, a gate with quarantine, Delta, and a chained window."""
    job = Job("everything", partitions=2)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=NO_BOUND)
    windows = (
        orders.filter("v IS NOT NULL")
        .key_by("user")
        .window("w", Sliding(seconds(10), every=seconds(5)).late_to("late"))
        .aggregate(n=agg.count(), total=agg.sum("v"))
    )
    windows.check("gate", suite=TOTALS, on_fail=OnFail.QUARANTINE).write("out", Delta(tables / "out"))
    windows.window("chained", Tumbling(seconds(20)).drop_late()).aggregate(k=agg.count()).write("sums", MemorySink())
    job.late("late").write("late_out", MemorySink())
    job.quarantine("gate").write("bad", MemorySink())
    return job
