"""Read from Spark how long the tasks of a job ran, how long Java collected garbage meanwhile, and what they spilled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["TaskTime"]


class TaskTime:
    """Adds up the stages that have ended, and says what came since it was last asked.

    A stage counts as a whole, once Spark's status store shows that it has ended. That may be after the job has given
    its result: then it counts for the next batch. The store also has sums over executors. Of the one
    that runs in the driver they say how long it has been there (decision 245).

    A question costs two calls into Java, and five for each stage of a batch: about a millisecond on one machine.
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

    def since_last(self) -> Mapping[str, int] | None:
        """Return what the tasks took since the last call, as the `load` of a Commit has it.

        `task_ms` are their milliseconds, `gc_ms` those in garbage collection, and `spilled_bytes` how much memory they
        have moved to disk, because it was not enough.

        None for the first call, which has nothing to compare with, and where Spark does not answer.
        """
        is_first = self._counted is None
        try:
            load = self._read()
        except Py4JError:  # a store that was replaced: no batch fails for a statistic
            return None
        return None if is_first else {**load, "gc_ms": min(load["task_ms"], load["gc_ms"])}

    def _read(self) -> Counter[str]:
        """Return the sums over the stages that have ended since the last call; Spark lists the newest first."""
        store: Any = self._context._jsc.sc().statusStore()  # noqa: SLF001 - no public way
        stages = store.stageList(self._ended, False, False, self._no_quantiles, None)  # noqa: FBT003 - Scala's signature
        load = Counter({"task_ms": 0, "gc_ms": 0, "spilled_bytes": 0})
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
