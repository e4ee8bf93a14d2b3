"""A small project on disk: one job that sums orders by minute, for the tests of the command."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2024, 1, 1, tzinfo=UTC)
USERS = 7
JARS = Path(__file__).resolve().parents[2] / ".jars"

JOB = """
from penstock import Job, agg, minutes, seconds
from penstock.sinks import Delta
from penstock.windows import Tumbling


def build(conf):
    job = Job("orders", partitions=2)
    orders = job.source("orders", conf.source("orders"), event_time="t", max_out_of_order=seconds(5))
    totals = (
        orders.key_by("user")
        .window("minutely", Tumbling(minutes(1)).drop_late())
        .aggregate(n=agg.count(), total=agg.sum("v"))
    )
    totals.write("totals", Delta(conf.table("totals")))
    return job
"""

PROJECT_TOML = """
[checkpoint]
root = "checkpoints"

[spark]
master = "local[2]"
"""


def job_toml(*, rows_per_batch: int = 100, more: str = "") -> str:
    """Return the job's configuration."""
    return f"""[sources.orders]
kind = "file_replay"
path = "orders.parquet"
order_by = "t"
rows_per_batch = {rows_per_batch}

[tables]
totals = "tables/totals"
{more}"""


def make_project(folder: Path, *, rows: int = 1_000, rows_per_batch: int = 100, job: str = JOB, more: str = "") -> Path:
    """Write the project, with so many orders a second apart, and return its root."""
    (folder / "conf" / "jobs").mkdir(parents=True, exist_ok=True)
    (folder / "jobs").mkdir(exist_ok=True)
    (folder / "conf" / "penstock.toml").write_text(PROJECT_TOML)
    (folder / "conf" / "jobs" / "orders.toml").write_text(job_toml(rows_per_batch=rows_per_batch, more=more))
    (folder / "jobs" / "orders.py").write_text(job)
    # Drivers start a third sooner with the archive of Spark's classes that lies there.
    if not (folder / ".jars").is_symlink():
        (folder / ".jars").symlink_to(JARS)
    times = pa.array([START + timedelta(seconds=i) for i in range(rows)], pa.timestamp("us", tz="UTC"))
    users = [f"u{i % USERS}" for i in range(rows)]
    table = pa.table({"user": users, "t": times, "v": pa.array(range(rows), pa.int64())})
    pq.write_table(table, folder / "orders.parquet")
    return folder


def expected_totals(rows: int = 1_000) -> list[tuple[str, datetime, int, int]]:
    """Return user, window start, count and sum for each minute, sorted: what the whole file gives."""
    totals: dict[tuple[str, datetime], tuple[int, int]] = {}
    for i in range(rows):
        key = (f"u{i % USERS}", START + timedelta(minutes=i // 60))
        n, total = totals.get(key, (0, 0))
        totals[key] = (n + 1, total + i)
    return sorted((user, start, n, total) for (user, start), (n, total) in totals.items())
