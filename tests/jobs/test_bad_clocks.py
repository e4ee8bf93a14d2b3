"""One clock that is wrong does not poison a stream in silence (SEMANTICS 2.7, F44)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from growing import Topic
from harness_jobs import order, windowed_job
from structlog.testing import capture_logs

from penstock import Job, agg, days, seconds
from penstock.checkpoint.log.batch_report import Totals
from penstock.graph.durations import Duration
from penstock.sinks import MemorySink
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = [pytest.mark.spark, pytest.mark.fault("F44")]

YEAR_2062 = 2_900_000_000


def clocks(topic: Topic, max_future: Duration | None = None) -> Job:
    """Return a job that counts the rows of a topic, and keeps those in quarantine."""
    job = Job("clocks", partitions=1)
    rows = job.source("topic", topic, event_time="t", max_out_of_order=seconds(0), max_future=max_future)
    rows.filter("n <> 3").window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count()).write(
        "out", MemorySink()
    )
    job.quarantine("topic").write("bad", MemorySink())
    return job


def warned(events: list[Any]) -> list[tuple[Any, ...]]:
    """Return the warnings that name a batch."""
    return [
        (e["event"], e["batch"], e.get("late", e.get("too_far_ahead")))
        for e in events
        if e["event"].startswith("batch.mostly")
    ]


def test_a_live_source_takes_no_row_from_more_than_an_hour_ahead(tmp_path: Path) -> None:
    """SEMANTICS 2.7: by default; the rows are in quarantine, counted in all, and move no watermark."""
    topic = Topic({"good": 5, "bad": 6}, times={"bad": YEAR_2062})
    with capture_logs() as events, Harness(clocks(topic), tmp_path) as h:
        output = h.batch()
        assert {row["_reason"] for row in output["bad"]} == {"too far in the future"}
        assert h.commit().accounting["source:topic"] == {"read": 11, "quarantined": 6, "passed": 5}
        topic.held["good"] = 20
        h.batch(follow=False)
        assert h.commit().accounting["window:w"]["late"] == 0
        total = Totals(read=26, quarantined=6, ahead=6, filtered=1, late=0, mostly_late=0, mostly_ahead=1)
        assert Totals.of(h.commit()) == total
        assert total.warnings == ("most rows were too far in the future in 1 batch",)
    assert warned(events) == [("batch.mostly_too_far_ahead", 0, 6)]


def test_the_bound_can_be_lifted(tmp_path: Path) -> None:
    """SEMANTICS 2.7: it is a setting."""
    topic = Topic({"good": 5}, times={"good": YEAR_2062})
    with Harness(clocks(topic, max_future=days(36_500)), tmp_path) as h:
        assert h.batch()["bad"] == []


def test_batches_of_which_most_rows_are_late_are_told_and_counted(tmp_path: Path) -> None:
    """F44: a row of 2062 in a source without a bound; totals go on over restarts, and back with a restore."""
    with capture_logs() as events, Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1), order("a", YEAR_2062)]})
        poisoned = h.commit().batch
        h.batch({"orders": [order("a", 2), order("a", 3), order("a", YEAR_2062)]})
        h.batch({"orders": [order("a", 2), order("a", YEAR_2062), order("a", YEAR_2062)]})
        h.restart()
        h.batch({"orders": [order("a", 4)]})
        totals = Totals.of(h.commit())
        assert totals is not None
        assert (totals.read, totals.late, totals.mostly_late) == (9, 4, 2)
        assert totals.warnings == ("most rows were late in 2 batches",)
        h.restore(batch=poisoned)
        h.batch({"orders": [order("a", 4)]})
        assert Totals.of(h.commit()).late == 5, "the rows after the batch come again"  # type: ignore[union-attr]
    assert [what for what, _, _ in warned(events)] == ["batch.mostly_late"] * 3
    assert [late for _, _, late in warned(events)] == [2, 1, 5]
