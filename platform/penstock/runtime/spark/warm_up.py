"""Do work beside the first calls to Java that the driver would otherwise wait for after them.

Spark's Python workers are forked from a process that takes a while to import what they need (decision 4), and that
Spark starts with the first task in Python. A first batch would wait for it, with half of the machine idle until then.
The driver itself needs pandas where it first names a function over Arrow batches, because pyspark asks for it, and
deltalake where it first looks at a table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start_workers", "warm"]


def warm(spark: SparkSession) -> None:
    """Start the workers and import modules in threads, and return at once; the first batch reports any error."""

    def run(work: Callable[[], object]) -> None:
        with suppress(Exception):
            work()

    Thread(target=run, args=(partial(start_workers, spark),), name="penstock-warm", daemon=True).start()
    # No daemon: a thread that is ended within an extension module takes the process with it.
    Thread(target=run, args=(_import,), name="penstock-import").start()


def _import() -> None:
    for name in ("pandas", "deltalake"):
        import_module(name)


def start_workers(spark: SparkSession) -> set[int]:
    """Run a task on each core, and return the parent processes of its workers.

    It uses no SQL, whose planner would take as long as the calls it runs beside.
    """
    context = spark.sparkContext
    context.setJobDescription("start Python workers")
    tasks = context.defaultParallelism
    return set(context.parallelize(range(tasks), tasks).mapPartitions(_parent).collect())


def _parent(_: Iterable[int]) -> Iterable[int]:
    yield os.getppid()
