"""Read from Spark how long the tasks of a job ran, how long Java collected garbage meanwhile, and what they spilled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["TaskTime"]

_COUNTERS = {
    "task_ms": ("METRIC_RUN_TIME", "METRIC_DESERIALIZE_TIME"),
    "gc_ms": ("METRIC_JVM_GC_TIME",),
    "spilled_bytes": ("METRIC_MEMORY_BYTES_SPILLED",),
}
"""Counters of an executor, by what a Commit says in `load`."""


class TaskTime:
    """Says what the tasks took since it was last asked.

    The executor in the driver's own Java, which is the only one with `local[…]`, counts each task as it ends. Of
    executors elsewhere Spark's status store has the stages.
    """

    def __init__(self, context: SparkContext) -> None:
        jvm: Any = context._jvm  # noqa: SLF001 - no public way
        own = jvm.org.apache.spark.SparkEnv.get().metricsSystem().getSourcesByName("executor")
        self._reader = _Stages(context) if own.isEmpty() else _OwnExecutor(own.apply(0))
        self._is_first = True

    def since_last(self) -> Mapping[str, int] | None:
        """Return what the tasks took since the last call, as the `load` of a Commit has it.

        `task_ms` are their milliseconds, `gc_ms` those in garbage collection, and `spilled_bytes` how much memory they
        have moved to disk, because it was not enough.

        None for the first call, which has nothing to compare with, and where Spark does not answer.
        """
        try:
            load = self._reader.more()
        except Py4JError:  # a store that was replaced: no batch fails for a statistic
            return None
        is_first, self._is_first = self._is_first, False
        return None if is_first else {**load, "gc_ms": min(load["task_ms"], load["gc_ms"])}


class _OwnExecutor:
    """The counters of the executor in this Java: four calls, a third of a millisecond."""

    def __init__(self, source: Any) -> None:
        self._counters = {name: [getattr(source, each)() for each in of] for name, of in _COUNTERS.items()}
        self._before: Counter[str] = Counter()

    def more(self) -> Mapping[str, int]:
        """Return what was counted since the last call."""
        now = Counter({name: sum(each.getCount() for each in of) for name, of in self._counters.items()})
        before, self._before = self._before, now
        return {name: now[name] - before[name] for name in now}


class _Stages:
    """The stages that have ended: two calls, and up to eight for each stage of a batch.

    A stage counts as a whole, once Spark's status store shows that it has ended. That may be after the job has given
    its result: then it counts for the next batch.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
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

    def more(self) -> Mapping[str, int]:
        """Return the sums over the stages that have ended since the last call; Spark lists the newest first."""
        store: Any = self._context._jsc.sc().statusStore()  # noqa: SLF001 - no public way
        stages = store.stageList(self._ended, False, False, self._no_quantiles, None)  # noqa: FBT003 - Scala's signature
        load = dict.fromkeys(_COUNTERS, 0)
        before, ended = self._counted or set(), set()
        for number in range(stages.size()):
            stage = stages.apply(number)
            if (stage_id := stage.stageId()) <= self._horizon:
                break
            ended.add(stage_id)
            if stage_id not in before and self._counted is not None:
                load["task_ms"] += stage.executorRunTime() + stage.executorDeserializeTime()
                load["gc_ms"] += stage.jvmGcTime()
                load["spilled_bytes"] += stage.memoryBytesSpilled()
        self._horizon = max(ended if self._counted is None else before, default=self._horizon)
        self._counted = ended
        return load
