"""Run receivers as long tasks of a cluster, spread over its executors, and leave cores to batches.

A receiver is a Spark job of its own with one task. Its thread has a job group, so that it alone can be cancelled.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import ReceiversTakeAllCores
from penstock.receivers.in_task import ReceiverTask
from penstock.receivers.process import ReceiverOrder
from penstock.receivers.task_process import TaskProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Executor", "ReceiverTasks", "cores_for", "least_taken", "refuse_all_cores"]

_DRIVER = "driver"


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """An executor that is there: its id, its host as Spark names it, and the cores that it runs tasks on."""

    id: str
    host: str
    cores: int

    @property
    def location(self) -> str:
        """What Spark takes for a wish of a task to run in this executor."""
        return f"executor_{self.host}_{self.id}"


def cores_for(executors: Iterable[Executor], conf: Mapping[str, str]) -> float:
    """Return the tasks that can run at once: on what is there, and with dynamic allocation on what can come."""
    each = int(conf.get("spark.task.cpus", "1"))
    there = sum(executor.cores // each for executor in executors)
    if conf.get("spark.dynamicAllocation.enabled", "").lower() != "true":
        return there
    most = conf.get("spark.dynamicAllocation.maxExecutors", "")
    if not most.isdecimal():
        return float("inf")
    return max(there, int(most) * (int(conf.get("spark.executor.cores", "1")) // each))


def refuse_all_cores(receivers: int, cores: float) -> None:
    """Raise ReceiversTakeAllCores where so many receivers leave no core to batches."""
    if receivers and receivers >= cores:
        raise ReceiversTakeAllCores(f"receivers take {receivers} cores, and the executors have {cores:g}")


def least_taken(executors: Iterable[Executor], taken: Sequence[str]) -> Executor | None:
    """Return the executor that has the fewest receivers for its cores, None where no executor is known.

    Args:
        executors: Those that are there.
        taken: The id of the executor of each receiver that runs, or waits for its core.
    """
    return min(
        executors,
        key=lambda executor: ((taken.count(executor.id) + 1) / max(executor.cores, 1), executor.id),
        default=None,
    )


@dataclass
class ReceiverTasks:
    """Start receivers on the executors of a session; `launch` is safe from the threads of all supervisors."""

    spark: SparkSession
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _places: dict[str, str] = field(default_factory=dict)
    """The executor of each receiver that was started, by the name of its log."""
    _starts: int = 0

    def refuse(self, receivers: int) -> None:
        """Raise ReceiversTakeAllCores where the executors that are there have too few cores."""
        if receivers:
            refuse_all_cores(receivers, cores_for(self._executors(), self._conf()))

    def launch(self, order: ReceiverOrder) -> TaskProcess:
        """Start a receiver; raises ReceiversTakeAllCores where executors have gone, and no core would be left."""
        executors, conf = self._executors(), self._conf()
        with self._lock:
            others = {log: place for log, place in self._places.items() if log != order.log}
            refuse_all_cores(len(others) + 1, cores_for(executors, conf))
            executor = least_taken(executors, [*others.values()])
            self._places = {**others, order.log: "" if executor is None else executor.id}
            self._starts += 1
            group = f"penstock-{order.log}-{self._starts}"
        host = conf["spark.driver.host"]
        try:
            return TaskProcess(
                order,
                bind=conf.get("spark.driver.bindAddress", host),
                host=host,
                run=lambda task: self._run(task, group, executor),
                cancel=lambda: self.spark.sparkContext.cancelJobGroup(group),
                ended=lambda: self._forget(order.log),
            )
        except BaseException:
            self._forget(order.log)
            raise

    def _forget(self, log: str) -> None:
        with self._lock:
            self._places.pop(log, None)

    def _run(self, task: ReceiverTask, group: str, executor: Executor | None) -> None:
        self.spark.sparkContext.setJobGroup(group, f"receiver {group}", interruptOnCancel=True)
        self._placed(executor).mapPartitions(_running(task)).collect()

    def _placed(self, executor: Executor | None) -> Any:
        """Return an RDD of one partition, which prefers an executor; pyspark itself cannot say that."""
        context = self.spark.sparkContext
        if executor is None:
            return context.parallelize([0], 1)
        from pyspark import RDD

        java: Any = context._jvm  # noqa: SLF001 - no public way
        element = bytearray(pickle.dumps([0]))
        wishes = java.PythonUtils.toSeq([executor.location])
        pairs = java.PythonUtils.toSeq([java.scala.Tuple2(element, wishes)])
        tag = java.scala.reflect.ClassTag.apply(java.java.lang.Class.forName("[B"))
        rows = context._jsc.sc().makeRDD(pairs, tag)  # noqa: SLF001 - as above
        return RDD(rows.toJavaRDD(), context)

    def _executors(self) -> list[Executor]:
        store = self.spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - no public way
        listed = store.executorList(True)  # noqa: FBT003 - of Spark; the active ones
        summaries = [listed.apply(index) for index in range(listed.size())]
        return [
            Executor(each.id(), re.sub(r":\d+$", "", each.hostPort()), each.totalCores())
            for each in summaries
            if each.id() != _DRIVER
        ]

    def _conf(self) -> Mapping[str, str]:
        return dict(self.spark.sparkContext.getConf().getAll())


def _running(task: ReceiverTask) -> Callable[[Iterable[int]], Iterator[int]]:
    def run(_: Iterable[int]) -> Iterator[int]:
        task.run()
        return iter(())

    return run
