"""What the tasks of a batch took is what has been added since it was last asked, and what its stages have spilled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JError

from penstock.runtime.spark.task_time import TaskTime


def seq(rows: list[Any]) -> Any:
    """Return a Seq of Scala."""
    return SimpleNamespace(size=lambda: len(rows), apply=lambda number: rows[number])


class Store:
    """A context of Spark whose executors have run tasks for so many milliseconds, of which so many in collections.

    `stages` are the number, the status and the spilled bytes of each, in the order in which they began.
    """

    def __init__(self, **executors: tuple[int, int]) -> None:
        self.executors: dict[str, tuple[int, int]] | None = executors
        self.stages: list[tuple[int, str, int]] = []
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: self))
        status = SimpleNamespace(COMPLETE="COMPLETE", FAILED="FAILED")
        values = SimpleNamespace(v1=SimpleNamespace(StageStatus=status))
        spark = SimpleNamespace(status=SimpleNamespace(api=values))
        self._jvm = SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(spark=spark)),
            java=SimpleNamespace(util=SimpleNamespace(ArrayList=JavaList)),
            double=float,
        )
        self._gateway = SimpleNamespace(new_array=lambda _type, _size: "no quantiles")

    def executorList(self, _active: bool) -> Any:  # noqa: FBT001, N802 - as in Spark
        """Return the executors."""
        if self.executors is None:
            raise Py4JError("the context was stopped")
        return seq(
            [
                SimpleNamespace(id=lambda e=e: e, totalDuration=lambda t=t: t[0], totalGCTime=lambda t=t: t[1])
                for e, t in self.executors.items()
            ]
        )

    def stageList(self, statuses: Any, *others: Any) -> Any:  # noqa: N802 - as in Spark
        """Return the stages that have one of these statuses, the newest first."""
        assert others == (False, False, "no quantiles", None)  # Spark fails where None stands for these
        return seq(
            [
                SimpleNamespace(stageId=lambda s=s: s[0], memoryBytesSpilled=lambda s=s: s[2])
                for s in sorted(self.stages, reverse=True)
                if s[1] in statuses
            ]
        )


class JavaList(list[str]):
    """A list of Java."""

    add = list.append


def load(task_ms: int, gc_ms: int, spilled_bytes: int = 0) -> dict[str, int]:
    """Return what a Commit says."""
    return {"task_ms": task_ms, "gc_ms": gc_ms, "spilled_bytes": spilled_bytes}


def test_the_difference_to_the_last_answer_is_returned() -> None:
    """The first has nothing to compare with: what was before is no part of a batch."""
    store = Store(driver=(5_000, 300))
    times = TaskTime(store)  # type: ignore[arg-type] # as much of a context as it needs
    assert times.since_last() is None
    store.executors = {"driver": (5_700, 310)}
    assert times.since_last() == load(700, 10)
    assert times.since_last() == load(0, 0)


def test_executors_that_come_and_go_make_nothing_negative() -> None:
    """One that is gone takes its numbers with it, and one that is new brings all of its own."""
    store = Store(a=(900, 9), b=(500, 5))
    times = TaskTime(store)  # type: ignore[arg-type]
    times.since_last()
    store.executors = {"b": (600, 6), "c": (50, 70)}
    assert times.since_last() == load(150, 71)
    store.executors = {"b": (600, 6), "c": (60, 90)}
    assert times.since_last() == load(10, 10)


def test_a_store_that_does_not_answer_costs_no_batch() -> None:
    """A statistic is missing then, and the next difference is over both batches."""
    store = Store(driver=(100, 0))
    times = TaskTime(store)  # type: ignore[arg-type]
    times.since_last()
    store.executors = None
    assert times.since_last() is None
    store.executors = {"driver": (350, 1)}
    assert times.since_last() == load(250, 1)


def test_each_stage_that_has_ended_counts_once() -> None:
    """Those of before the first question are of no batch, and one that runs counts when it is over."""
    store = Store(driver=(100, 0))
    store.stages = [(0, "COMPLETE", 9_000), (1, "COMPLETE", 70)]
    times = TaskTime(store)  # type: ignore[arg-type]
    assert times.since_last() is None
    store.stages += [(2, "COMPLETE", 500), (3, "FAILED", 40), (3, "COMPLETE", 3), (4, "SKIPPED", 0)]
    assert times.since_last() == load(0, 0, 543)
    assert times.since_last() == load(0, 0)
    store.stages += [(5, "ACTIVE", 8), (6, "COMPLETE", 10)]
    assert times.since_last() == load(0, 0, 10)
    store.stages[-2] = (5, "COMPLETE", 800)  # beside the newer one, and later
    del store.stages[:3]  # Spark forgets old ones
    assert times.since_last() == load(0, 0, 800)
    assert times.since_last() == load(0, 0)
    store.stages += [(7, "COMPLETE", 1)]
    assert times.since_last() == load(0, 0, 1)
