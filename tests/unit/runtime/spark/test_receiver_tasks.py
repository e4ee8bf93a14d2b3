"""Receivers of a cluster are spread over its executors, and leave a core to batches (F47)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ReceiversTakeAllCores
from penstock.runtime.spark.receiver_tasks import Executor, cores_for, least_taken, refuse_all_cores

TWO = [Executor("0", "a", 2), Executor("1", "b", 3)]
DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({}, 5),
        ({"spark.task.cpus": "2"}, 2),
        (DYNAMIC, float("inf")),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "4", "spark.executor.cores": "3"}, 12),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "1"}, 5),
    ],
    ids=["as they are", "two a task", "as many as it takes", "up to four executors", "fewer than there are"],
)
def test_cores_are_those_that_tasks_can_run_on(conf: dict[str, str], cores: float) -> None:
    """With dynamic allocation, executors come where tasks wait."""
    assert cores_for(TWO, conf) == cores


@pytest.mark.remedy("PEN-SRC-033")
def test_receivers_that_take_every_core_are_refused() -> None:
    """No batch would ever run. A job without receivers is none of its business."""
    for receivers, cores in ((2, 2), (3, 2), (1, 0)):
        with pytest.raises(ReceiversTakeAllCores, match=f"{receivers} cores, and the executors have {cores}"):
            refuse_all_cores(receivers, cores)
    for receivers, cores in ((1, 2), (0, 0), (9, float("inf"))):
        refuse_all_cores(receivers, cores)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(0, 30))
def test_receivers_are_spread_by_cores(cores: list[int], count: int) -> None:
    """However many: no executor has more for its cores than any other would have with one more."""
    executors = [Executor(str(number), f"h{number}", each) for number, each in enumerate(cores)]
    taken: list[str] = []
    for _ in range(count):
        chosen = least_taken(executors, taken)
        assert chosen is not None
        taken.append(chosen.id)
    shares = [taken.count(executor.id) / executor.cores for executor in executors]
    more = [(taken.count(executor.id) + 1) / executor.cores for executor in executors]
    assert max(shares) <= min(more)


def test_without_executors_spark_chooses() -> None:
    """With dynamic allocation none may be there yet; and an executor has a name that Spark prefers."""
    assert least_taken([], []) is None
    assert Executor("7", "10.0.0.1", 4).location == "executor_10.0.0.1_7"
