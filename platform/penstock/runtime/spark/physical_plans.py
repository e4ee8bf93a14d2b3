"""Run the physical plan of a batch again in the next one, where Spark would compute the same from new rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import UnknownException, convert_exception
from pyspark.serializers import CPickleSerializer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PhysicalPlans"]

log = structlog.get_logger()
_OPERATOR = re.compile(r"^[\s:+\-]*(?:\*\(\d+\) )?(\w+)", re.MULTILINE)
_COMPUTE_AGAIN = frozenset({"Exchange", "Filter", "MapInArrow", "Project", "Range", "ReusedExchange", "Union"})
"""Operators of Spark that compute their rows again in each run of a plan, once their shuffles are empty."""
_SHUFFLE = "ShuffleExchangeExec"
_OWN_MANAGERS = ("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager")
"""Those that take a shuffle again after it was removed. A remote shuffle service need not."""
_AGAIN = 3
"""How often a batch is re-run whose rows have died with executors; as often as Spark re-runs a stage."""
_CANNOT_ROLL_BACK = re.compile(
    r"^(?!.* failed \d+ times).*Job aborted .*(?:indeterminate|cannot rollback)", re.MULTILINE
)
"""What Spark says where a part of a shuffle is gone, others have been read, and to compute it again gives other bytes.

They are others in each run, because receipts name files that no other task has written.
"""
_PICKLES: Any = CPickleSerializer()
_OF_TODAY = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark reads as a time, wherever they stand in a plan."""


class PhysicalPlans:
    """Run the frame of each batch, by the plan of the batch before where `each` does not deny it.

    A shuffle in a plan that ran before gives its files again (FACTS 5: 41 of 60 batches were stale). So they go
    first, and where Spark keeps one, the batch has a plan of its own. The receipts of a batch's tasks say
    that it has read no rows of another (`transport.receipts_of`).
    """

    def __init__(self, spark: SparkSession, *, each: bool) -> None:
        cleaner: Any = spark.sparkContext._jsc.sc().cleaner()  # noqa: SLF001 - no public way
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - no public way
        self._jvm = jvm
        self._spark = spark
        manager = spark.sparkContext.getConf().get("spark.shuffle.manager", "sort")
        self._each = each or cleaner.isEmpty() or manager not in _OWN_MANAGERS
        self._cleaner: Any = None if self._each else cleaner.get()
        self._tracker: Any = jvm.org.apache.spark.SparkEnv.get().mapOutputTracker()
        self._known: DataFrame | None = None
        self._kept: _KeptPlan | None = None

    def collect(self, frame: DataFrame) -> list[tuple[str, bytes]]:
        """Run a frame and return port and payload of each of its rows.

        It is re-run whole where Spark gives up because an executor has died. Of the first run only partitions of the
        job's caches are read again, each of them whole.
        """
        for _ in range(_AGAIN):
            try:
                return self._ran(frame)
            except Exception as why:
                if _CANNOT_ROLL_BACK.search(str(why)) is None:
                    raise
            log.warning("batch.rerun", reason="an executor has died with rows of which others were read")
        return self._ran(frame)

    def _ran(self, frame: DataFrame) -> list[tuple[str, bytes]]:
        if self._known is frame and self._kept is not None and self._emptied(self._kept):
            return self._kept.collect()
        planned = frame.select("_port", "_payload")  # each select is planned by itself
        if self._known is not frame:
            self._known = frame
            again = not self._each and self._computes_again(planned)
            self._kept = _KeptPlan(planned, self._spark) if again else None
            if self._kept is not None:
                return self._kept.collect()
        return [(row[0], bytes(row[1])) for row in planned.collect()]

    def _emptied(self, kept: _KeptPlan) -> bool:
        """Remove the files of the plan's shuffles on all machines, and return whether they are gone."""
        for shuffle in kept.shuffles:
            self._cleaner.doCleanupShuffle(shuffle, True)  # noqa: FBT003 - Scala's signature
        return not any(self._tracker.containsShuffle(shuffle) for shuffle in kept.shuffles)

    def _computes_again(self, planned: DataFrame) -> bool:
        """Return whether each run of a frame's physical plan computes everything; Spark plans it here, and once.

        `current_timestamp()` and its like become literals when Spark optimises, and would stand still; so does
        `CAST('now' AS TIMESTAMP)`, which no pattern tells.
        """
        java: Any = planned._jdf.queryExecution()  # noqa: SLF001 - no public way
        current = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        # By itself a tree names 25 columns of each operator.
        whole = java.analyzed().treeString(True, False, 2**31 - 1, False, False)  # noqa: FBT003 - Scala's signature
        if java.analyzed().containsPattern(current) or _OF_TODAY.search(whole):
            return False
        return _COMPUTE_AGAIN.issuperset(_OPERATOR.findall(java.executedPlan().toString().strip()))


class _KeptPlan:
    """A physical plan as one RDD, which each batch runs as a job.

    `DataFrame.collect` gives Spark two closures whenever it runs a plan. To clean them, Spark reads the byte code of
    its two largest classes: 7 ms of each batch, before its first task starts. `collectAsync` has a small closure.
    Nor does it tell the tasks the settings of SQL, which Spark reads there too: Arrow's batches, the parsing of times.
    """

    def __init__(self, planned: DataFrame, spark: SparkSession) -> None:
        java: Any = planned._jdf  # noqa: SLF001 - no public way
        self._plan = java.queryExecution().executedPlan()
        self._pickled = java.javaToPython()
        session: Any = spark._jsparkSession  # noqa: SLF001 - no public way
        self._settings = session.conf().getAllAsJava()
        self._context = session.sparkContext()

    @cached_property
    def shuffles(self) -> list[int]:
        """The numbers of the plan's shuffles, which it has once it ran."""
        return list(_shuffles(self._plan))

    def collect(self) -> list[tuple[str, bytes]]:
        """Run the plan; raises what `DataFrame.collect` would."""
        # They stay in the thread: to take them out again costs more, and a query of Spark's own puts them there, too.
        self._context.getLocalProperties().putAll(self._settings)
        try:
            pickled = self._pickled.collectAsync().get()
        except Py4JJavaError as why:
            raise _of_the_job(why) from why
        # By their numbers: at the end of an iterator Java raises, which costs more than all the rows.
        rows = (row for number in range(pickled.size()) for row in _PICKLES.loads(pickled.get(number)))
        return [(row[0], bytes(row[1])) for row in rows]


def _of_the_job(why: Py4JJavaError) -> Exception:
    """Return what ended a job, which its future has wrapped, as pyspark raises it; of a job not begun, the error."""
    said: Exception = why
    cause: Any = why.java_exception.getCause()
    if cause is not None:  # it is where Spark has stopped
        raised: Any = convert_exception(cause)
        said = Py4JJavaError(why.errmsg, cause) if isinstance(raised, UnknownException) else raised
    return said


def _shuffles(plan: Any) -> Iterator[int]:
    """Yield the numbers of the shuffles in a physical plan."""
    if plan.getClass().getSimpleName() == _SHUFFLE:
        yield plan.shuffleDependency().shuffleId()
    children = plan.children()
    for number in range(children.size()):
        yield from _shuffles(children.apply(number))
