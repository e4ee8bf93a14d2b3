"""A source that Spark reads, a frame a batch, is to a job what one is that the tasks read (sources/base.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from growing import FramedTopic, Topic
from harness_jobs import plain

from penstock import Job, agg, seconds
from penstock.sinks import MemorySink
from penstock.sources.base import Source
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.spark


def counting(topic: Source) -> Job:
    """Return a job that copies a topic's rows and counts them in windows: two uses of the source."""
    job = Job("counting", partitions=2)
    rows = job.source("topic", topic, event_time="t", max_out_of_order=seconds(0))
    rows.filter("n % 5 > 0").select("p", "n").write("copy", MemorySink())
    windows = rows.key_by("p").window("w", Tumbling(seconds(10)).drop_late())
    windows.aggregate(n=agg.count()).write("counts", MemorySink())
    return job


def followed(topic: Topic | FramedTopic, root: Path) -> list[Any]:
    """Return what a job shows and accounts for, batch by batch, one without rows and a restart among them."""
    seen: list[Any] = []
    with Harness(counting(topic), root) as h:
        for turn in range(6):
            if turn == 3:
                h.restart()
            if turn != 2:
                topic.held = {name: n + 7 for name, n in topic.held.items()}
            output = h.batch()
            rows = {name: sorted(plain(shown)) for name, shown in output.items()}
            commit = h.commit()
            seen.append((rows, commit.accounting, commit.sources["topic"].position, commit.watermarks_out))
    return seen


def test_a_frame_a_batch_gives_what_the_tasks_give(tmp_path: Path) -> None:
    """SEMANTICS 1.1, 2.10: rows, accounting, positions and watermarks; in batches without rows, and after a restart."""
    held = {"a": 5, "b": 3}
    by_tasks = followed(Topic(dict(held), a_batch=6), tmp_path / "tasks")
    by_spark = followed(FramedTopic(dict(held), a_batch=6), tmp_path / "spark")
    assert by_spark == by_tasks
    assert any(rows["counts"] for rows, *_ in by_spark)
