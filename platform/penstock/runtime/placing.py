"""Bring the rows of each state partition to its task, on a cluster to the same machine each time.

Left to itself, Spark runs a task behind a shuffle on any executor, another one in each batch. A machine that had the
partition before keeps copies of its files (`checkpoint.mirror`), and its workers have them mapped and checked: all of
that would be brought and done anew. Spark lets nobody say where such a task is to run, but prefers the machine that
has a cached block which the task reads. So each partition has one: a row of a cached frame, that is united with what
the shuffle brings. Frames that are partitioned alike are united partition by partition, without another shuffle.

A block stays as long as its executor lives, and is made anew where its partition runs next.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock.runtime.config_values import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["brought_home"]

_HOME = "_home"


def brought_home(frame: DataFrame, partitions: int) -> DataFrame:
    """Return the rows of a frame in so many partitions, each in that of its column `_pid`.

    On a cluster there is one row more in each, of nulls, and one column more: without it behind the union, Spark would
    take the sides to be partitioned in unknown ways.
    """
    from pyspark.sql import functions as F

    spark = frame.sparkSession
    master = spark.sparkContext.master
    assert master is not None
    if is_local(master):
        return frame.repartitionById(partitions, F.col("_pid"))
    # Spark knows of partitionings by hash alone that they are the same, so numbers are taken that it puts in place.
    numbers = F.array(*map(F.lit, _numbers(spark, partitions)))
    placed = frame.withColumn(_HOME, F.element_at(numbers, F.col("_pid") + 1)).repartition(partitions, _HOME)
    homes = spark.range(partitions).select(
        *(F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema),
        F.element_at(numbers, F.col("id").cast("int") + 1).alias(_HOME),
    )
    homes = homes.repartition(partitions, _HOME).persist()
    homes.count()  # now: in the first batch most would go where Python starts first
    return placed.unionAll(homes)


def _numbers(spark: SparkSession, partitions: int) -> list[int]:
    """Return for each partition the least number that Spark's partitioning by hash puts into it."""
    from pyspark.sql import functions as F

    number = F.col("id").cast("int")
    least = spark.range(_enough(partitions)).groupBy(F.pmod(F.hash(number), F.lit(partitions)).alias("pid"))
    found = {row["pid"]: row["least"] for row in least.agg(F.min(number).alias("least")).collect()}
    return [found[pid] for pid in range(partitions)]


def _enough(partitions: int) -> int:
    """Return so many numbers that one in e^40 choices of them would leave a partition without any."""
    return math.ceil(partitions * (math.log(partitions) + 40))
