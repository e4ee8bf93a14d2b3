"""Bring the rows of each state partition to its task, on a cluster to the same machine each time.

Left to itself, Spark runs a task after a shuffle on any executor, another one in each batch. A machine that had the
partition before keeps copies of its files (`hdfs_folder`), and its workers have them mapped and checked. Another
machine would have to fetch, map and check them. Spark has no way to place such a task, but it prefers the machine with
a cached block that the task reads. So each partition has such a block, its home: a row of a cached frame, in a union
with the shuffled rows. Spark unites equally partitioned frames partition by partition, without another shuffle.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PartitionPlacement", "numbers_of"]

_HOME = "_home"
_WORD = 2**32 - 1
_SEED = 42
"""Spark's."""


class PartitionPlacement:
    """The homes of all state partitions of a job; none where all tasks run in one process, which `apart` denies."""

    def __init__(self, spark: SparkSession, *, apart: bool) -> None:
        self._spark = spark
        self._apart = apart
        self._rows: dict[int, DataFrame] = {}
        self._settled: frozenset[str] = frozenset()

    def bring(self, frame: DataFrame, partitions: int) -> DataFrame:
        """Return the rows of a frame in so many partitions, each in that of its column `_pid`, modulo their number.

        With homes each partition has one more row, of nulls, and one more column. Without the column in the union's
        output, Spark would take the partitioning of the sides for unknown. All frames must have the same columns.
        """
        from pyspark.sql import functions as F

        if not self._apart:
            return frame.repartitionById(partitions, F.col("_pid"))
        # Spark knows of partitionings by hash alone that they are the same, so numbers are taken that it puts in place.
        numbers = F.expr(f"array({', '.join(map(str, numbers_of(partitions)))})")

        def at_home(rows: DataFrame, pid: str) -> DataFrame:
            number = F.element_at(numbers, F.pmod(F.col(pid).cast("int"), F.lit(partitions)) + 1)
            return rows.withColumn(_HOME, number).repartition(partitions, _HOME)

        if partitions not in self._rows:
            nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema]
            rows = at_home(self._spark.range(partitions), "id").select(*nulls, _HOME)
            self._rows[partitions] = rows
        return at_home(frame, "_pid").unionAll(self._rows[partitions])

    def settle(self) -> None:
        """Give the partitions homes if the executors are others than they were: a small Spark job for each number.

        The first batch does not settle: most partitions would go where Python starts first. Without this, none would
        return to an executor that comes back, because its machine has none of the blocks.
        """
        if not self._rows:
            return
        executors = self._executors()
        if executors == self._settled:
            return
        for rows in self._rows.values():
            rows.unpersist()
            rows.persist()
            rows.count()
        self._settled = executors

    def _executors(self) -> frozenset[str]:
        """Return host and port of all executors; a new one on the same host has another port."""
        status = self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - no public way
        return frozenset(status.keySet().mkString(" ").split())


@lru_cache
def numbers_of(partitions: int) -> tuple[int, ...]:
    """Return for each partition the least whole number that Spark's partitioning by hash puts into it."""
    numbers: dict[int, int] = {}
    for number in itertools.count():
        numbers.setdefault(_hashed(number) % partitions, number)
        if len(numbers) == partitions:
            return tuple(numbers[partition] for partition in range(partitions))
    raise AssertionError


def _hashed(number: int) -> int:
    """Return Spark's hash of an int: Murmur3 (Appleby), x86, 32 bit, of one block of four bytes."""
    block = _rotated(number * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    value = (_rotated(_SEED ^ block, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    value ^= value >> 16
    return value - (value >> 31 << 32)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
