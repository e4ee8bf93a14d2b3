"""Jobs over a source of partitions that grows while it is read: where a run ends, and what is idle (SEMANTICS 1.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from growing import Topic
from harness_jobs import plain
from structlog.testing import capture_logs

from penstock import Job, agg, seconds
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import MemorySink
from penstock.sources.backlog import Waiting
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = [pytest.mark.spark, pytest.mark.sample(2, of="growing sources")]


def counting(topic: Topic, *, idle_after: int | None = None) -> Job:
    """Return a job that copies a topic and counts its rows by partition in windows of ten seconds."""
    job = Job("counting", partitions=1)
    idle = None if idle_after is None else seconds(idle_after)
    rows = job.source("topic", topic, event_time="t", max_out_of_order=seconds(0), idle_after=idle)
    rows.select("p", "n").write("copy", MemorySink())
    windows = rows.key_by("p").window("w", Tumbling(seconds(10)).late_to("late"))
    windows.aggregate(n=agg.count()).write("counts", MemorySink())
    job.late("late").write("late", MemorySink())
    return job


def counts(rows: list[dict[str, Any]]) -> list[tuple[str, float, int]]:
    """Return partition, start and count of windows, in order."""
    return sorted((p, start, n) for p, start, _, n in plain(rows))


@pytest.mark.parametrize("how", ["available now", "drain"])
def test_a_run_over_a_source_that_grows_ends_at_what_was_there(tmp_path: Path, how: str) -> None:
    """SEMANTICS 1.5: exactly the rows of when it began, in as many batches as the limit asks; a drain closes windows."""
    topic = Topic({"a": 11, "b": 4}, growth=3)
    bounded = DriverSettings(stop_at_end=how == "available now", drain=how == "drain", limits=lambda: Limits(rows=4))
    with Harness(counting(topic), tmp_path, settings=bounded) as h:
        output = h.run()
        assert h.commit().sources["topic"].position == {"a": 14, "b": 7}
    assert sorted(plain(output["copy"])) == [("a", n) for n in range(14)] + [("b", n) for n in range(7)]
    closed = [("a", 0.0, 10), ("a", 10.0, 4), ("b", 0.0, 7)] if how == "drain" else []
    assert counts(output["counts"]) == closed


def test_an_outage_makes_no_partition_idle(tmp_path: Path) -> None:
    """SEMANTICS 2.4: what a partition brings a second after the first batch behind an outage is not late."""
    topic = Topic({"a": 1, "b": 1})
    with Harness(counting(topic, idle_after=30), tmp_path) as h:
        h.batch()
        h.restart()
        topic.held["a"] = 3_600
        h.batch(at=3_600)
        topic.held["b"] = 5
        assert h.batch(at=3_601)["late"] == []
        topic.held["a"] = 3_601
        output = h.batch(at=3_635)
        assert h.commit().sources["topic"].partitions["b"].idle, "with a driver that reads, thirty seconds are enough"
        assert ("b", 0.0, 5) in counts(output["counts"])


def test_a_partition_that_a_limit_holds_back_is_not_idle(tmp_path: Path) -> None:
    """SEMANTICS 2.4: its rows wait, and none of them is late when they are read."""
    topic = OneAtATime({"a": 40, "b": 40}, times={"a": 1_000})
    with Harness(counting(topic, idle_after=2), tmp_path) as h:
        for _ in range(12):
            h.batch(follow=False)
        assert h.commit().sources["topic"].position == {"a": 40, "b": 8}
        assert h.late("late") == []
        assert not h.commit().sources["topic"].partitions["b"].idle


class OneAtATime(Topic):
    """A topic of which a batch reads four rows, of the first partition that has any: the others are held back."""

    def backlog(self, after: Any) -> dict[str, Waiting]:
        """Return four rows to read in one partition, and none in the others."""
        waiting_rows = super().backlog(after)
        turn = next((p for p, waiting in waiting_rows.items() if waiting.rows), None)
        return {p: Waiting.of_rows(w.next, w.latest, at_most=4 if p == turn else 0) for p, w in waiting_rows.items()}


def test_a_partition_that_is_deleted_stops_holding_windows_open(tmp_path: Path) -> None:
    """SEMANTICS 2.4: without idle_after, at once, and the Commit says that it is gone."""
    topic = Topic({"a": 30, "b": 3})
    with Harness(counting(topic), tmp_path) as h:
        assert counts(h.batch()["counts"]) == []
        del topic.held["b"]
        with capture_logs() as events:
            assert counts(h.batch()["counts"]) == [("a", 0.0, 10), ("a", 10.0, 10), ("b", 0.0, 3)]
            h.batch()
        gone = [e for e in events if e["event"] == "source.partition_gone"]
        assert [(e["source"], e["partition"], e["log_level"]) for e in gone] == [("topic", "b", "warning")]
        assert {n: p.gone for n, p in h.commit().sources["topic"].partitions.items()} == {"a": False, "b": True}
