"""A batch whose tasks have spilled memory to disk says so in its Commit, by what Spark tells (SEMANTICS 8.4).

That growth ends by it: `unit/runtime/driver/test_rate_control.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Job
from penstock.checkpoint.log.entries import Commit
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness

pytestmark = pytest.mark.spark


@pytest.fixture
def little_memory(spark: Any) -> Iterator[None]:
    """Let Spark's window functions keep ten rows in memory, and spill at a hundred."""
    settings = {
        "spark.sql.windowExec.buffer.in.memory.threshold": "10",
        "spark.sql.windowExec.buffer.spill.threshold": "100",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


@pytest.mark.usefixtures("little_memory")
def test_what_the_tasks_of_a_batch_have_spilled_is_in_its_commit(tmp_path: Path) -> None:
    """By stages of Spark itself; the first batch of a run has nothing to compare with."""
    job = Job("spills", partitions=1)
    rows = job.source("rows", MemorySource("n long"))
    rows.transform("summed", lambda df: df.selectExpr("*", "sum(n) over () as s")).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        loads = []
        for count in (1, 5, 5_000, 5):
            output = h.batch({"rows": [{"n": n} for n in range(count)]})
            assert output["out"][0]["s"] == count * (count - 1) // 2
            loads.append(h.commit().load)
    assert "spilled_bytes" not in loads[0]
    few, many, few_again = (load["spilled_bytes"] for load in loads[1:])
    assert few == 0
    assert many + few_again > 1_000_000  # Spark may say so a moment later
    assert all(load["task_ms"] > 0 for load in loads[1:])


def test_the_wait_between_two_batches_is_no_time_of_their_tasks(tmp_path: Path) -> None:
    """Spark's sum over executors is the time for which the driver's own has been there."""
    job = Job("waits", partitions=1)
    job.source("rows", MemorySource("n long")).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        spent_ms = 0.0
        for _ in range(3):
            time.sleep(1.5)
            began = time.monotonic()
            h.batch({"rows": [{"n": 1}]})
            spent_ms += (time.monotonic() - began) * 1_000
        cores = h._running().driver.engine.spark.sparkContext.defaultParallelism
        loads = [entry.load for entry in commits_of(h)]
    assert 0 < sum(load.get("task_ms", 0) for load in loads) < cores * spent_ms


def commits_of(h: Harness) -> list[Commit]:
    """Return the Commits in the log."""
    log = h._running().driver.log
    return [entry for _, entry in log.entries_back(log.find_tail()) if isinstance(entry, Commit)]
