"""Time, ends and watermarks in the test kit are those that the job has in production (docs/testing.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness_jobs import ORDERS, order, plain, windowed_job

from penstock import Job, agg, seconds
from penstock.errors import JobError, UnknownName
from penstock.graph.durations import Duration
from penstock.graph.policies import OnEnd
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.time.triggers import AsFastAsPossible
from penstock.windows import Tumbling

pytestmark = pytest.mark.spark
TEN = Tumbling(seconds(10)).drop_late()


def counting(interval: Duration | None = None) -> Job:
    """Return a job that counts the batches that each key has seen."""
    job = Job("counting", interval=interval, partitions=1)
    words = job.source("words", MemorySource("k string, v int"))
    words.key_by("k").update_state_by_key("seen", called, value="v", state="n int").write("out", MemorySink())
    return job


def called(_values: list[Any], old: int | None) -> int:
    """Count the calls."""
    return (old or 0) + 1


def joined() -> Job:
    """Return a job that counts the rows of two sources in one window step."""
    job = Job("joined", partitions=1)
    first = job.source("one", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    two = job.source("two", MemorySource(ORDERS, on_end=OnEnd.CLOSE), event_time="t", max_out_of_order=seconds(0))
    first.union(two).window("w", TEN).aggregate(n=agg.count()).write("out", MemorySink())
    return job


@pytest.mark.parametrize("interval", [None, seconds(1)], ids=["as fast as possible", "at ticks"])
def test_a_run_ends_although_every_batch_would_call_for_every_key(tmp_path: Path, interval: Duration | None) -> None:
    """API, test kit; SEMANTICS 7.5, 1.4: what only time makes due is left for `batch`."""
    job = counting(interval)
    with Harness(job, tmp_path) as h:
        h.batch({"words": [{"k": "a", "v": 1}]})
        assert h.run() == {"out": []}
        assert [row["n"] for row in h.state("seen")] == [1]
        assert [row["n"] for row in h.batch()["out"]] == [2]


def test_a_job_without_an_interval_has_none_in_the_harness(tmp_path: Path) -> None:
    """SEMANTICS 1.4: it runs as fast as possible, as it will; the clock alone is the harness's."""
    with Harness(counting(), tmp_path / "free", interval=seconds(2), zero=10) as h:
        assert isinstance(h._driver().trigger, AsFastAsPossible)
        h.batch({"words": [{"k": "a", "v": 1}]})
        assert h.commit().time == 12_000_000
        h.batch(at=20)
        h.batch()
        assert h.commit().time == 22_000_000
        assert h._driver().offsets is not None
        settings = h._driver().offsets.settings  # type: ignore[union-attr]
        assert (settings["interval"], settings["merged_ticks"]) == (None, 0)
    with Harness(counting(seconds(1)), tmp_path / "ticks") as h:
        h.batch({"words": [{"k": "a", "v": 1}]}, at=5)
        settings = h._driver().offsets.settings  # type: ignore[union-attr]
        assert (settings["interval"], settings["merged_ticks"]) == (1_000_000, 4)


def test_one_source_reports_a_watermark_of_its_own(tmp_path: Path) -> None:
    """API, test kit: `watermark` may map sources to theirs; the step has the earliest (SEMANTICS 2.1)."""
    with Harness(joined(), tmp_path) as h:
        assert h.batch({"one": [order("a", 1)], "two": [order("a", 2)]}, watermark={"one": 50})["out"] == []
        assert h.commit().watermarks_out == {"w": 2_000_000}
        assert plain(h.batch(watermark={"two": 40})["out"]) == [(0.0, 10.0, 2)]
        assert h.commit().watermarks_out == {"w": 40_000_000}
        with pytest.raises(UnknownName, match="three"):
            h.batch(watermark={"three": 1})


def test_a_memory_source_ends(tmp_path: Path) -> None:
    """SEMANTICS 2.1: it stops counting, its windows close where on_end says so, and it takes no more rows."""
    with Harness(joined(), tmp_path) as h:
        h.batch({"one": [order("a", 1)], "two": [order("a", 2)]})
        h.end("two")
        h.batch({"one": [order("a", 25)]})
        assert h.commit().sources["two"].ended
        assert plain(h.output()["out"]) == [(0.0, 10.0, 2)]
        with pytest.raises(JobError, match="'two' has ended"):
            h.batch({"two": [order("a", 3)]})
        h.restart()
        h.end("one")
        assert plain(h.run()["out"]) == [(20.0, 30.0, 1)]
        assert h._driver().owned is None, "nothing is left to do"
        with pytest.raises(UnknownName):
            h.end("three")


def test_a_source_that_ends_closes_nothing_by_itself(tmp_path: Path) -> None:
    """SEMANTICS 2.1: a MemorySource keeps its windows open at its end, unless on_end says otherwise."""
    with Harness(windowed_job(TEN), tmp_path) as h:
        h.batch({"orders": [order("a", 1)]})
        h.end("orders")
        assert h.run() == {"out": []}
        assert h.commit().sources["orders"].ended


def test_a_drain_reads_what_is_there_and_closes_all_windows(tmp_path: Path) -> None:
    """SEMANTICS 10.6, 1.5: then the driver has ended; a crash in it is finished by a restart, which does not drain."""
    with Harness(windowed_job(TEN), tmp_path) as h:
        h.batch({"orders": [order("a", 1)]})
        h.crash_before("CommitBatch")
        with pytest.raises(Crashed):
            h.drain()
        assert plain(h.restart()["out"]) == [("a", 0.0, 10.0, 1, 1)]
        assert h.batch() == {"out": []}
    with Harness(windowed_job(TEN), tmp_path / "whole") as h:
        h.batch({"orders": [order("a", 1), order("a", 15)]})
        assert plain(h.drain()["out"]) == [("a", 10.0, 20.0, 1, 1)]
        assert h.commit().due == {"w": None}
        with pytest.raises(JobError, match="nothing is left to do"):
            h.batch({"orders": [order("a", 20)]})


def test_a_row_with_a_column_that_its_source_lacks_is_refused(tmp_path: Path) -> None:
    """A misspelt column would go to quarantine, which nobody reads; where the job reads it, the row is a bad one."""
    job = Job("misspelt")
    job.source("rows", MemorySource("n long")).write("out", MemorySink())
    with Harness(job, tmp_path / "one") as h:
        for rows in ([{"n": 1}, {"m": 2}], [[{"n": 1}], [{"n": 2, "m": 2}]]):
            with pytest.raises(JobError, match=r"column 'm', and the source has n: without job.quarantine\(…\)"):
                h.batch({"rows": rows})
        assert h.batch({"rows": [{"n": 1}]})["out"] == [{"n": 1}]
    job.quarantine("rows").write("bad", MemorySink())
    with Harness(job, tmp_path / "two") as h:
        (bad,) = h.batch({"rows": [{"m": 2}]})["bad"]
        assert bad["_reason"] == "unknown column 'm'"
