"""Read from Spark how long the tasks of a job ran, and how long Java collected garbage meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["TaskTime"]


class TaskTime:
    """Adds up the time of tasks over all executors that are alive, and says what came since it was last asked.

    Spark counts both numbers as tasks end. Its status store shows them up to a tenth of a second later, so a part of
    what a batch took may count for the next one. An executor that is gone takes its numbers with it. A question costs
    two calls into Java and three for each executor, about a millisecond on one machine.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._before: dict[str, tuple[int, int]] | None = None

    def since_last(self) -> tuple[int, int] | None:
        """Return the milliseconds of tasks since the last call, and of those in garbage collection.

        None for the first call, which has nothing to compare with, and where Spark does not answer.
        """
        try:
            now = self._read()
        except Py4JError:  # a store that was replaced: no batch fails for a statistic
            return None
        before, self._before = self._before, now
        if before is None:
            return None
        tasks, collected = (sum(max(0, now[e][k] - before.get(e, (0, 0))[k]) for e in now) for k in (0, 1))
        return tasks, min(tasks, collected)

    def _read(self) -> dict[str, tuple[int, int]]:
        executors: Any = self._context._jsc.sc().statusStore().executorList(True)  # noqa: FBT003, SLF001 - no public way
        rows = [executors.apply(number) for number in range(executors.size())]
        return {row.id(): (row.totalDuration(), row.totalGCTime()) for row in rows}
