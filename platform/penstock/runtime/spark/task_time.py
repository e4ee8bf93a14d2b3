"""Read from Spark how long the tasks of a job ran, how long Java collected garbage meanwhile, and what they spilled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["TaskTime"]


class TaskTime:
    """Adds up over all executors that are alive, and says what came since it was last asked.

    Spark counts time as tasks end. Its status store shows it up to a tenth of a second later, so a part of what a batch
    took may count for the next one. An executor that is gone takes its numbers with it.

    Bytes that were spilled are those of stages. A stage counts as a whole, once the store shows that it has ended. That
    may be after the job has given its result: then its bytes count for the next batch.

    A question costs three calls into Java, three for each executor, and three for each stage of a batch: about a
    millisecond on one machine.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._before: dict[str, tuple[int, int]] | None = None
        jvm: Any = context._jvm  # noqa: SLF001 - no public way
        status = jvm.org.apache.spark.status.api.v1.StageStatus
        self._ended = jvm.java.util.ArrayList()
        self._ended.add(status.COMPLETE)
        self._ended.add(status.FAILED)
        self._no_quantiles: Any = context._gateway.new_array(jvm.double, 0)  # type: ignore[union-attr] # noqa: SLF001
        self._counted: set[int] | None = None
        """The newest stages that had ended as of the last call."""
        self._horizon = -1
        """The newest stage of the call before that: one that ends later than a newer one is still counted."""

    def since_last(self) -> Mapping[str, int] | None:
        """Return what the tasks took since the last call, as the `load` of a Commit has it.

        `task_ms` are their milliseconds, `gc_ms` those in garbage collection, and `spilled_bytes` how much memory they
        have moved to disk, because it was not enough.

        None for the first call, which has nothing to compare with, and where Spark does not answer.
        """
        try:
            store: Any = self._context._jsc.sc().statusStore()  # noqa: SLF001 - no public way
            now, spilled = self._executors(store), self._spilled(store)
        except Py4JError:  # a store that was replaced: no batch fails for a statistic
            return None
        before, self._before = self._before, now
        if before is None:
            return None
        tasks, collected = (sum(max(0, now[e][k] - before.get(e, (0, 0))[k]) for e in now) for k in (0, 1))
        return {"task_ms": tasks, "gc_ms": min(tasks, collected), "spilled_bytes": spilled}

    def _executors(self, store: Any) -> dict[str, tuple[int, int]]:
        executors = store.executorList(True)  # noqa: FBT003 - Scala's signature
        rows = [executors.apply(number) for number in range(executors.size())]
        return {row.id(): (row.totalDuration(), row.totalGCTime()) for row in rows}

    def _spilled(self, store: Any) -> int:
        """Return the bytes of the stages that have ended since the last call.

        Spark lists the newest first, and forgets old ones.
        """
        stages = store.stageList(self._ended, False, False, self._no_quantiles, None)  # noqa: FBT003 - Scala's signature
        before, ended, spilled = self._counted or set(), set(), 0
        for number in range(stages.size()):
            stage = stages.apply(number)
            if (stage_id := stage.stageId()) <= self._horizon:
                break
            ended.add(stage_id)
            if stage_id not in before:
                spilled += stage.memoryBytesSpilled()
        self._horizon = max(ended if self._counted is None else before, default=self._horizon)
        self._counted = ended
        return spilled
