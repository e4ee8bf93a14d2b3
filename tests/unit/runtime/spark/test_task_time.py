"""The time of tasks is what has been added since it was last asked, over the executors that are alive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JError

from penstock.runtime.spark.task_time import TaskTime


class Store:
    """A context of Spark whose executors have run tasks for so many milliseconds, of which so many in collections."""

    def __init__(self, **executors: tuple[int, int]) -> None:
        self.executors: dict[str, tuple[int, int]] | None = executors
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: self))

    def executorList(self, _active: bool) -> Any:  # noqa: FBT001, N802 - as in Spark
        """Return the executors as a Seq of Scala."""
        if self.executors is None:
            raise Py4JError("the context was stopped")
        rows = [
            SimpleNamespace(id=lambda e=e: e, totalDuration=lambda t=t: t[0], totalGCTime=lambda t=t: t[1])
            for e, t in self.executors.items()
        ]
        return SimpleNamespace(size=lambda: len(rows), apply=lambda number: rows[number])


def test_the_difference_to_the_last_answer_is_returned() -> None:
    """The first has nothing to compare with: what was before is no part of a batch."""
    store = Store(driver=(5_000, 300))
    times = TaskTime(store)  # type: ignore[arg-type] # as much of a context as it needs
    assert times.since_last() is None
    store.executors = {"driver": (5_700, 310)}
    assert times.since_last() == (700, 10)
    assert times.since_last() == (0, 0)


def test_executors_that_come_and_go_make_nothing_negative() -> None:
    """One that is gone takes its numbers with it, and one that is new brings all of its own."""
    store = Store(a=(900, 9), b=(500, 5))
    times = TaskTime(store)  # type: ignore[arg-type]
    times.since_last()
    store.executors = {"b": (600, 6), "c": (50, 70)}
    assert times.since_last() == (150, 71)
    store.executors = {"b": (600, 6), "c": (60, 90)}
    assert times.since_last() == (10, 10)


def test_a_store_that_does_not_answer_costs_no_batch() -> None:
    """A statistic is missing then, and the next difference is over both batches."""
    store = Store(driver=(100, 0))
    times = TaskTime(store)  # type: ignore[arg-type]
    times.since_last()
    store.executors = None
    assert times.since_last() is None
    store.executors = {"driver": (350, 1)}
    assert times.since_last() == (250, 1)
