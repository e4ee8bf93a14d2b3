"""Lists that windows collect, and their greatest values, through the whole engine (SEMANTICS 1.6, 3.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Job, agg, seconds
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.slow


def job_of(partitions: int) -> Job:
    """Return a job that collects the values of ten seconds, and the two with the greatest rank."""
    job = Job("collected", partitions=partitions)
    rows = job.source(
        "rows", MemorySource("k string, t timestamp, v int, rank double"), event_time="t", max_out_of_order=seconds(0)
    )
    totals = rows.key_by("k").window("w", Tumbling(seconds(10)).drop_late())
    kept = totals.aggregate(all=agg.collect("v", limit=10), top=agg.top_k("v", 2, by="rank"))
    kept.write("out", MemorySink())
    return job


def row(key: str, time: float, value: int | None, rank: float | None) -> dict[str, Any]:
    """Return a row."""
    return {"k": key, "t": time, "v": value, "rank": rank}


@pytest.mark.sample(1)
@pytest.mark.parametrize("partitions", [1, 3])
def test_values_are_kept_in_order_of_arrival_over_batches_and_a_restart(tmp_path: Path, partitions: int) -> None:
    """1.6: event times do not order them; of equal ranks the earlier arrival is the greater one."""
    with Harness(job_of(partitions), tmp_path / "root") as h:
        h.batch({"rows": [row("a", 5, 1, 2.0), row("b", 6, 10, None), row("a", 6, 2, 7.0)]})
        h.restart()
        h.batch({"rows": [row("a", 9, 3, 2.0)]})
        rows = h.batch(watermark=20)["out"]
    assert {r["k"]: (r["all"], r["top"]) for r in rows} == {"a": ([1, 2, 3], [2, 1]), "b": ([10], [])}
