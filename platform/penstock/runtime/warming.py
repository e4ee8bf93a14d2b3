"""Have Spark start its Python workers while the driver still analyses its job and reads its log.

They are forked from a process that takes a second to import what they need (decision 4), and that Spark starts with the
first task in Python. A first batch would wait for it, with half of the machine idle until then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start_workers", "warm"]


def warm(spark: SparkSession) -> None:
    """Start the workers in a thread, and go on; whatever is wrong with them, the first batch will say."""

    def run() -> None:
        with suppress(Exception):
            start_workers(spark)

    Thread(target=run, name="penstock-warm", daemon=True).start()


def start_workers(spark: SparkSession) -> set[int]:
    """Run a task on each core, and return the processes that its workers were forked from.

    Not by SQL, whose planner would take as long as what it is to be done beside.
    """
    context = spark.sparkContext
    context.setJobDescription("start Python workers")
    tasks = context.defaultParallelism
    return set(context.parallelize(range(tasks), tasks).mapPartitions(_parent).collect())


def _parent(_: Iterable[int]) -> Iterable[int]:
    yield os.getppid()
