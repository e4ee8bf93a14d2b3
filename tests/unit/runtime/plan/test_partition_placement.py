"""Where Spark puts the rows of state partitions, with homes and without (decision 50)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.plan.partition_placement import PartitionPlacement, numbers_of
from penstock.runtime.plan.projection import map_in_arrow
from penstock.runtime.tasks.functions import Batches
from penstock.runtime.tasks.transport import ENVELOPE

PLACES = pa.schema([("task", pa.int32()), ("pid", pa.int32()), ("order", pa.int64())])


def placed(batches: Batches) -> Batches:
    """Say for each row in which task it is."""
    from pyspark import TaskContext

    for batch in batches:
        task = pa.repeat(pa.scalar(TaskContext.get().partitionId(), pa.int32()), batch.num_rows)
        yield pa.record_batch([task, batch["_pid"], batch["_order"]], schema=PLACES)


def passed_on(batches: Batches) -> Batches:
    """Give the rows of an earlier shuffle to the next, as carriers that are for others."""
    for batch in batches:
        yield batch.select(ENVELOPE.names)


def carriers(spark: Any, rows: int) -> Any:
    """Return rows for partitions 0 to 9, in two tasks."""
    made = spark.range(0, rows, 1, 2).selectExpr("cast(id % 10 AS int)", "'p'", "id", "binary('x')")
    return made.toDF(*ENVELOPE.names)


@pytest.mark.parametrize("partitions", [1, 2, 7, 200])
def test_each_partition_has_a_number_that_spark_puts_there(spark: Any, partitions: int) -> None:
    """By the hash that Spark's own partitioning uses."""
    numbers = numbers_of(partitions)
    homes = spark.createDataFrame([(n,) for n in numbers], "n int").selectExpr(f"pmod(hash(n), {partitions})")
    assert [row[0] for row in homes.collect()] == list(range(partitions))


@pytest.mark.sample(2)
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_rows_are_in_the_task_of_their_partition(spark: Any, *, apart: bool, settled: bool) -> None:
    """Modulo the number of partitions, through shuffles of several numbers, with as many tasks as there are partitions.

    What is passed on keeps the number that it had, which may be more than the next shuffle has.
    """
    homes = PartitionPlacement(spark, apart=apart)
    frame = carriers(spark, 100)
    for partitions in (7, 3, 3, 1):
        frame = map_in_arrow(homes.bring(frame, partitions), passed_on, ENVELOPE)
    frame = map_in_arrow(homes.bring(frame, 4), placed, PLACES)
    for _ in range(2):  # a batch, and the next
        if settled:
            homes.settle()
        rows = frame.select("*").collect()
        places = [(row.task, row.pid, row.order) for row in rows if row.order is not None]
        assert sorted(order for *_, order in places) == list(range(100))
        assert {(task, pid) for task, pid, _ in places} == {(pid % 4, pid) for pid in range(10)}
        # Rows of nulls: those of the shuffles before, which fall into one task, and one in each task.
        nulls = Counter(row.task for row in rows if row.order is None)
        assert nulls.total() == (7 + 3 + 3 + 1 + 4 if apart else 0)
        assert set(nulls) == (set(range(4)) if apart else set())
        assert max(row.task for row in rows) == 3
    for rows in homes._rows.values():
        rows.unpersist()  # found by its plan, it would be settled in the next test too


def test_homes_are_settled_once_for_the_same_executors(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again when there are others: those that came would have no partition."""
    homes = PartitionPlacement(spark, apart=True)
    frame = map_in_arrow(homes.bring(carriers(spark, 10), 2), placed, PLACES)
    there, jobs = {"a:1", "b:1"}, []
    monkeypatch.setattr(PartitionPlacement, "_executors", lambda _: frozenset(there))
    monkeypatch.setattr(type(homes._rows[2]), "count", lambda _: jobs.append(1))
    for now in ({"a:1", "b:1"}, {"a:1", "b:1"}, {"a:1"}, {"a:1", "b:2"}):
        there = now
        homes.settle()
        assert frame.select("*").collect()
    assert len(jobs) == 3
