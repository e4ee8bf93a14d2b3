"""What the tasks of a batch took is what the executor has counted, or what stages say, since it was last asked."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from penstock.runtime.spark.task_time import TaskTime, _OwnExecutor, _Stages


def stage(number: int, status: str, run: int = 0, *, unpacked: int = 0, collected: int = 0, spilled: int = 0) -> Any:
    """Return a stage as Spark tells it: milliseconds, and bytes."""
    return SimpleNamespace(
        status=status,
        stageId=lambda: number,
        executorRunTime=lambda: run,
        executorDeserializeTime=lambda: unpacked,
        jvmGcTime=lambda: collected,
        memoryBytesSpilled=lambda: spilled,
    )


class Store:
    """A context of Spark with its stages, in the order in which they began; None for one that was stopped."""

    def __init__(self, *stages: Any) -> None:
        self.stages: list[Any] | None = [*stages]
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: self))
        status = SimpleNamespace(COMPLETE="COMPLETE", FAILED="FAILED")
        values = SimpleNamespace(v1=SimpleNamespace(StageStatus=status))
        nothing = SimpleNamespace(isEmpty=lambda: True)
        environment = SimpleNamespace(metricsSystem=lambda: SimpleNamespace(getSourcesByName=lambda _: nothing))
        spark = SimpleNamespace(status=SimpleNamespace(api=values), SparkEnv=SimpleNamespace(get=lambda: environment))
        self._jvm = SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(spark=spark)),
            java=SimpleNamespace(util=SimpleNamespace(ArrayList=JavaList)),
            double=float,
        )
        self._gateway = SimpleNamespace(new_array=lambda _type, _size: "no quantiles")

    def stageList(self, statuses: Any, *others: Any) -> Any:  # noqa: N802 - as in Spark
        """Return the stages that have one of these statuses, the newest first, as a Seq of Scala."""
        assert others == (False, False, "no quantiles", None)  # Spark fails where None stands for these
        if self.stages is None:
            raise Py4JError("the context was stopped")
        rows = [each for each in reversed(self.stages) if each.status in statuses]
        return SimpleNamespace(size=lambda: len(rows), apply=lambda number: rows[number])


class JavaList(list[str]):
    """A list of Java."""

    add = list.append


def load(task_ms: int, gc_ms: int = 0, spilled_bytes: int = 0) -> dict[str, int]:
    """Return what a Commit says."""
    return {"task_ms": task_ms, "gc_ms": gc_ms, "spilled_bytes": spilled_bytes}


def test_each_stage_that_has_ended_counts_once() -> None:
    """Those of before the first question are of no batch, and one that runs counts when it is over."""
    store = Store(stage(0, "COMPLETE", 9_000), stage(1, "COMPLETE", 70))
    times = TaskTime(store)  # type: ignore[arg-type] # as much of a context as it needs
    assert times.since_last() is None
    assert store.stages is not None
    store.stages += [
        stage(2, "COMPLETE", 500, unpacked=20, collected=30, spilled=7),
        stage(3, "FAILED", 40),
        stage(3, "COMPLETE", 3),
        stage(4, "SKIPPED"),
    ]
    assert times.since_last() == load(563, 30, 7)
    assert times.since_last() == load(0)
    store.stages += [stage(5, "ACTIVE", 8), stage(6, "COMPLETE", 10)]
    assert times.since_last() == load(10)
    store.stages[-2] = stage(5, "COMPLETE", 800)  # beside the newer one, and later
    del store.stages[:3]  # Spark forgets old ones
    assert times.since_last() == load(800)
    assert times.since_last() == load(0)
    store.stages += [stage(7, "COMPLETE", 1)]
    assert times.since_last() == load(1)


@pytest.mark.parametrize("cores", [2, 1])
def test_the_executor_of_the_driver_and_the_stages_say_about_the_same(spark: Any, cores: int) -> None:
    """Of a real Spark, as soon as a job has ended; a wait is no time of tasks."""
    by_counters, by_stages = TaskTime(spark.sparkContext), TaskTime(spark.sparkContext)
    assert isinstance(by_counters._reader, _OwnExecutor)
    by_stages._reader = _Stages(spark.sparkContext)
    assert (by_counters.since_last(), by_stages.since_last()) == (None, None)
    time.sleep(0.5)
    spark.range(0, 3_000_000, 1, cores).selectExpr("id % 1000 as k").groupBy("k").count().collect()
    counted = by_counters.since_last()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    told = by_stages.since_last()
    assert counted is not None
    assert told is not None
    assert counted["task_ms"] > 0
    assert told["task_ms"] == pytest.approx(counted["task_ms"], rel=0.3, abs=100)
    assert (counted["spilled_bytes"], told["spilled_bytes"]) == (0, 0)
    assert by_counters.since_last() == load(0)


def test_no_more_is_collected_than_tasks_took() -> None:
    """Spark measures both apart, in whole milliseconds."""
    store = Store()
    times = TaskTime(store)  # type: ignore[arg-type]
    assert times.since_last() is None
    store.stages = [stage(0, "COMPLETE", 4, collected=9)]
    assert times.since_last() == load(4, 4)


def test_a_store_that_does_not_answer_costs_no_batch() -> None:
    """A statistic is missing then, and the next one is of both batches."""
    store = Store(stage(0, "COMPLETE", 100))
    times = TaskTime(store)  # type: ignore[arg-type]
    times.since_last()
    store.stages = None
    assert times.since_last() is None
    store.stages = [stage(0, "COMPLETE", 100), stage(1, "COMPLETE", 200), stage(2, "COMPLETE", 50)]
    assert times.since_last() == load(250)
