"""The physical plan of one batch serves the next, which computes its own rows (DESIGN 4, FACTS 5)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from harness_jobs import ORDERS, flights_like, order
from pushing import until
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError

from penstock import Job, seconds
from penstock.errors import AccountingBroken, ComputeFailed
from penstock.runtime.spark.physical_plans import PhysicalPlans
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = {"max_out_of_order": seconds(0)}


def test_a_plan_without_a_shuffle_is_made_once(spark: SparkSession, tmp_path: Path) -> None:
    """DESIGN 4, FACTS 5: it computes the rows of each batch, on both ways into Python, from two sources, and of none."""
    job = Job("copies", partitions=2)
    orders, others = (job.source(name, MemorySource(ORDERS), event_time="t", **NOW) for name in ("orders", "others"))
    orders.union(others).write("plain", MemorySink())
    orders.filter("length(user) = 1").write("out", MemorySink())
    with Harness(job, tmp_path / "checkpoints") as h:
        engine, kept = h._running().engine, set()
        for n in range(5):
            several = [("a", n), ("bb", n)][: n % 3]
            shown = h.batch({"orders": [order(user, n, v) for user, v in several], "others": [order("c", n, n)]})
            assert sorted((row["user"], row["v"]) for row in shown["plain"]) == [*several, ("c", n)]
            assert [(row["user"], row["v"]) for row in shown["out"]] == several[:1]
            kept.add(engine._plans._kept)
        assert len(kept) == 1
        assert None not in kept


def test_a_plan_with_shuffles_is_made_once_and_its_shuffles_are_emptied(spark: SparkSession, tmp_path: Path) -> None:
    """Decision 208, FACTS 5: each batch computes its own rows, and the shuffles of those before are gone."""
    tracker = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().mapOutputTracker()  # type: ignore[union-attr]
    with Harness(flights_like(tmp_path / "tables"), tmp_path / "checkpoints") as h:
        engine = h._running().engine
        h.batch({"orders": [order("a", 1, 1)]})
        kept = engine._plans._kept
        before = tracker.shuffleStatuses().size()
        for n in range(2, 7):
            h.batch({"orders": [order("a", n * 10, n), order("b", n * 10, n)]})
        assert engine._plans._kept is kept
        assert tracker.shuffleStatuses().size() <= before  # fewer where Spark has cleaned up after another test
        h.end()
        h.drain()
        shown = {(row["user"], row["window_end"].second, row["total"]) for row in h.output()["out"]}
    assert shown >= {("a", 30, 2), ("b", 30, 2), ("a", 40, 3), ("b", 10, 6)}


def test_rows_of_the_batch_before_are_never_taken_for_new_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 208: should Spark ever keep the files of a shuffle, the batch stops, and commits nothing."""
    monkeypatch.setattr(PhysicalPlans, "_emptied", lambda self, kept: True)
    with Harness(flights_like(tmp_path / "tables"), tmp_path / "checkpoints") as h:
        h.batch({"orders": [order("a", 1, 1)]})
        with pytest.raises(AccountingBroken, match="of run"):
            h.batch({"orders": [order("a", 2, 1)]})
        assert h.commit().batch == 0


def test_rows_that_several_forks_take_are_those_of_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 208: a source that is read once for several forks sends its rows through a shuffle of its own."""
    job = Job("forks", partitions=2)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", **NOW)
    orders.map_batches("same", lambda rows, info: rows, output=ORDERS).write("mapped", MemorySink())
    orders.filter("length(user) = 1").write("out", MemorySink())
    with Harness(job, tmp_path / "checkpoints") as h:
        for n in range(4):
            shown = h.batch({"orders": [order("a", n, n)]})
            assert [[row["v"] for row in shown[sink]] for sink in ("mapped", "out")] == [[n], [n]]
        monkeypatch.setattr(PhysicalPlans, "_emptied", lambda self, kept: True)
        with pytest.raises(ComputeFailed, match="another attempt"):
            h.batch({"orders": [order("a", 9, 9)]})


def test_the_time_of_spark_does_not_stand_still(spark: SparkSession, tmp_path: Path) -> None:
    """Decision 178: an optimised plan has current_timestamp() as a literal, so its job plans each batch.

    An expression with one is refused (decision 189), and a transform may do as it likes.
    """
    for name, now in (("function", "current_timestamp()"), ("text", "to_timestamp('Now')")):
        job = Job("stamped", partitions=2)
        rows = job.source("orders", MemorySource(ORDERS), event_time="t", **NOW)
        more = [f"v AS c{number}" for number in range(30)]  # of which Spark's text of a plan shows 25
        stamped = (*more, f"{now} AS read_at")
        rows.transform("stamp", lambda read, made=stamped: read.selectExpr("*", *made)).write("out", MemorySink())
        with Harness(job, tmp_path / name) as h:
            first, second = (h.batch({"orders": [order("a", n, n)]})["out"][0]["read_at"] for n in range(2))
        assert first < second


def _fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        raise ValueError("no such fruit")


def test_what_ends_the_job_of_a_kept_plan_is_what_collect_raises(spark: SparkSession) -> None:
    """F48: a future of Java wraps what ended a job; the error that names the user's line is made of what is inside."""
    rows = spark.range(2).selectExpr("'p' AS _port", "CAST(id AS STRING) AS word")
    python = rows.selectExpr("_port", "CAST(word AS BINARY) AS _payload").mapInArrow(
        _fails, "_port string, _payload binary"
    )
    value = rows.selectExpr("_port", "CAST(CAST(1 / (length(word) - 1) AS STRING) AS BINARY) AS _payload")
    for frame, inside in ((python, "no such fruit"), (value, "DIVIDE_BY_ZERO")):
        plans = PhysicalPlans(spark, each=False)
        with pytest.raises(Exception, match=inside) as of_plan:
            plans.collect(frame)
        assert plans._kept is not None
        with pytest.raises(Exception, match=inside) as of_collect:
            frame.collect()
        assert of_plan.type is of_collect.type


@pytest.mark.parametrize("shuffled", [False, True], ids=["in one stage", "before a shuffle"])
def test_tasks_of_a_kept_plan_know_the_settings_of_sql(spark: SparkSession, *, shuffled: bool) -> None:
    """Decision 217: what a task reads of a job's `conf` is what it reads under `DataFrame.collect`."""
    times = "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss')"
    word = f"CAST(from_json('{{\"t\": \"2020-1-1 1:2:' || id || '\"}}', 't timestamp', {times}).t AS STRING)"
    policy = "spark.sql.legacy.timeParserPolicy"
    with ThreadPoolExecutor(1) as pool:  # a thread in which nobody has set anything
        spark.conf.set(policy, "LEGACY")
        try:
            rows = spark.range(2).selectExpr("id", f"coalesce({word}, 'none') AS word")
            rows = rows.repartition(2, "id") if shuffled else rows
            frame = rows.selectExpr("'p' AS _port", "CAST(word AS BINARY) AS _payload")
            plans = PhysicalPlans(spark, each=False)
            for _ in range(2):
                shown = pool.submit(plans.collect, frame).result()
                assert sorted(shown) == [("p", b"2020-01-01 01:02:00"), ("p", b"2020-01-01 01:02:01")]
            assert plans._kept is not None
        finally:
            spark.conf.unset(policy)


def test_a_job_that_cannot_begin_says_why(spark: SparkSession) -> None:
    """F05: where Spark has stopped, there is no job whose future could wrap the error."""
    frame = spark.range(1).selectExpr("'p' AS _port", "CAST('' AS BINARY) AS _payload")
    plans = PhysicalPlans(spark, each=False)
    plans.collect(frame)
    assert plans._kept is not None
    stopped = spark.sparkContext._jvm.java.lang.IllegalStateException("Cannot call methods on a stopped SparkContext")  # type: ignore[union-attr]
    error = Py4JJavaError("An error occurred while calling o1.collectAsync.\n", stopped)
    plans._kept._pickled = MagicMock(**{"collectAsync.side_effect": error})
    with pytest.raises(Py4JJavaError, match="stopped SparkContext"):
        plans.collect(frame)


def test_a_cancelled_job_of_a_kept_plan_ends_with_sparks_words(spark: SparkSession) -> None:
    """DESIGN 4: what cancels a batch reaches the job, and the driver hears of it."""
    context = spark.sparkContext
    frame = spark.range(1).selectExpr("'p' AS _port", "CAST('' AS BINARY) AS _payload")
    sleeps = frame.mapInArrow(_sleeps, "_port string, _payload binary")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(PhysicalPlans(spark, each=False).collect, sleeps)
        until(lambda: bool(context.statusTracker().getActiveJobsIds()))
        context.cancelAllJobs()
        with pytest.raises(Exception, match="cancelled"):
            running.result()


def _sleeps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(60)
    return batches


def test_shuffles_of_another_manager_are_not_used_again() -> None:
    """Decision 208: a remote shuffle service may refuse a shuffle that was removed, so each batch has its own."""
    spark, frame = MagicMock(), MagicMock()
    spark.sparkContext.getConf().get.return_value = "org.example.RemoteShuffleManager"
    plans = PhysicalPlans(spark, each=False)
    for _ in range(2):
        plans.collect(frame)
    assert frame.select.call_count == 2


CANNOT_ROLL_BACK = (
    "Job aborted due to stage failure: A shuffle map stage with indeterminate output was failed and retried. However, "
    "Spark cannot rollback the ResultStage 5 to re-process the input data, and has to fail this job."
)


@pytest.mark.fault("F03")
def test_a_batch_is_re_run_whole_where_spark_cannot_roll_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 224: with the rows of this batch, three times at most; after that nothing of the batch is committed."""
    ran, failing = PhysicalPlans._ran, [3]

    def lost(self: PhysicalPlans, frame: Any) -> Any:
        rows = ran(self, frame)
        failing[0] -= 1
        if failing[0] >= 0:
            raise PySparkRuntimeError(CANNOT_ROLL_BACK)
        return rows

    with Harness(flights_like(tmp_path / "tables"), tmp_path / "checkpoints") as h:
        h.batch({"orders": [order("a", 1, 1)]})
        monkeypatch.setattr(PhysicalPlans, "_ran", lost)
        h.batch({"orders": [order("a", 2, 2)]})
        assert h.commit().totals["source:orders"]["read"] == 2
        failing[0] = 4
        with pytest.raises(ComputeFailed, match="cannot rollback"):
            h.batch({"orders": [order("a", 3, 3)]})
        assert h.commit().batch == 1


def test_a_task_that_fails_is_not_re_run_for_the_words_of_its_error() -> None:
    """Decision 224: Spark has tried it four times."""
    said = "Job aborted due to stage failure: Task 0 failed 4 times, most recent failure: the rate is indeterminate"
    plans = PhysicalPlans(MagicMock(), each=True)
    frame = MagicMock()
    frame.select.return_value.collect.side_effect = RuntimeError(said)
    with pytest.raises(RuntimeError, match="4 times"):
        plans.collect(frame)
    assert frame.select.call_count == 1
