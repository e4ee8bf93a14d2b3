"""Python workers that are started ahead are those that batches use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.runtime.spark.warm_up import start_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"parent": [os.getppid()]})


def test_batches_find_the_daemon_that_was_started_ahead(spark: SparkSession) -> None:
    """Spark keeps a daemon for each set of variables that workers are given, so those of SQL must be just these."""
    ahead = start_workers(spark)
    parents = {row.parent for row in spark.range(0, 2, 1, 2).mapInArrow(_parents, "parent long").collect()}
    assert len(ahead) == 1
    assert parents == ahead
