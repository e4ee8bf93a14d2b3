"""Take a batch apart: what the driver, the JVM and Python each take of it.

The driver's part is timed by the hooks of its stages; Spark's is read back from its own status store, which keeps the
jobs of a session by description.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from benchmarks.engine_side import BatchTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["COLUMNS", "SparkParts", "batch_parts", "spark_parts"]

COLUMNS = ("part", "median ms")
_PYTHON = "time to execute Python code"
_STARTING = ("time to start Python workers", "time to initialize Python workers")
_AMOUNT = re.compile(r"([\d.,]+) (ms|s|m)\b")
_MILLIS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkParts:
    """Hold what one batch's Spark job took, in milliseconds.

    `job`: from submission to the end. `tasks` and `python`: summed over all tasks, so on two cores up to twice `job`;
    `python` is what the Python workers computed, without waiting for rows, and `starting` how long their tasks waited
    until they stood ready. Of a kept plan, `python` has the waiting as well, and `starting` is 0: Spark does not say.
    """

    job: float
    tasks: float
    python: float
    starting: float


def spark_parts(spark: SparkSession, name: str, batches: Sequence[BatchTime]) -> list[SparkParts]:
    """Read what Spark's status store says of the newest batches of the job `name`; it forgets those long past."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - no public way
    context.listenerBus().waitUntilEmpty()
    wanted = {f"{name} batch {batch.commit.batch}" for batch in batches}
    store = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - no public way
    executions = store.executionsList()
    rows = []
    # From the newest: a job of the same name may have run before in this session.
    for number in reversed(range(executions.size())):
        execution = executions.apply(number)
        if execution.description() in wanted:
            wanted.remove(execution.description())
            rows.append(_parts_of(context.statusStore(), store, execution))
    return rows + _of_kept_plans(context.statusStore(), wanted)


def batch_parts(batches: Sequence[BatchTime], jobs: Sequence[SparkParts]) -> list[tuple[str, float]]:
    """Return the rows of a table: the parts in the order of a batch, by their medians."""
    job = _median([j.job for j in jobs])
    spark = _median([b.spark for b in batches])

    def stage(name: str) -> float:
        return _median([b.stages.get(name, 0.0) for b in batches])

    between = _median([b.whole - sum(b.stages.values()) for b in batches])
    return [
        ("driver: plan the batch", between),
        ("driver: offsets into the log", stage("FixOffsets")),
        ("JVM: plan, start, and return the result", spark - job),
        ("Spark job", job),
        ("  its tasks, summed over 2 cores", _median([j.tasks for j in jobs])),
        ("  of that Python", _median([j.python for j in jobs])),
        ("driver: receipts, verdicts, accounting", stage("Compute") - spark),
        ("driver: commit into the log", stage("CommitBatch")),
        ("driver: publish the sinks", stage("PublishSinks")),
        ("driver: purge", stage("Purge")),
        ("the whole batch", _median([b.whole for b in batches])),
    ]


def _parts_of(jobs: Any, store: Any, execution: Any) -> SparkParts:
    wall = tasks = 0.0
    numbers = execution.jobs().keys().toSeq()
    for number in range(numbers.size()):
        job = jobs.job(numbers.apply(number))
        wall += job.completionTime().get().getTime() - job.submissionTime().get().getTime()
        stages = job.stageIds()
        for index in range(stages.size()):
            with suppress(Py4JJavaError):  # one that was skipped, because its rows are cached, is forgotten early
                tasks += jobs.lastStageAttempt(stages.apply(index)).executorRunTime()
    values = store.executionMetrics(execution.executionId())
    metrics = execution.metrics()
    python = starting = 0.0
    for index in range(metrics.size()):
        metric = metrics.apply(index)
        if values.contains(metric.accumulatorId()):
            millis = _millis(values.apply(metric.accumulatorId()))
            python += millis * (metric.name() == _PYTHON)
            starting += millis * (metric.name() in _STARTING)
    return SparkParts(job=wall, tasks=tasks, python=python, starting=starting)


def _of_kept_plans(store: Any, wanted: set[str]) -> list[SparkParts]:
    """Return the parts of batches of a kept plan, which runs as an RDD and is no query of SQL (decision 217).

    Spark then has no times of Python: `python` is what the tasks took without the time of a core in Java.
    """
    jobs, rows = store.jobsList(None), []
    for job in sorted((jobs.apply(at) for at in range(jobs.size())), key=lambda job: -int(job.jobId())):
        description = job.description()
        if description.isEmpty() or description.get() not in wanted:
            continue
        wanted.remove(description.get())
        tasks, java = 0.0, 0.0
        for at in range(job.stageIds().size()):
            with suppress(Py4JJavaError):
                stage = store.lastStageAttempt(job.stageIds().apply(at))
                tasks += stage.executorRunTime()
                java += stage.executorCpuTime() / 1e6
        wall = job.completionTime().get().getTime() - job.submissionTime().get().getTime()
        rows.append(SparkParts(job=wall, tasks=tasks, python=tasks - java, starting=0.0))
    return rows


def _millis(text: str) -> float:
    """Read the total out of what Spark shows: "12 ms", or of several tasks a line of words and "1.2 s (…)"."""
    amount = _AMOUNT.search(text)
    return float(amount[1].replace(",", "")) * _MILLIS[amount[2]] if amount else 0.0


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
