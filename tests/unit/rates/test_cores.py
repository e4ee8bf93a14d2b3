"""How many cores a job needs, by the true processing rate of one (issue 19, item 8; DS2)."""

from __future__ import annotations

from math import ceil

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.rates.cores import BatchLoad, cores_needed

SECOND = 1_000_000


def loads(*batches: tuple[int, float, float]) -> list[BatchLoad]:
    """Return a batch a second of (rows, waiting, task_ms)."""
    return [BatchLoad(time=k * SECOND, rows=r, waiting=w, task_ms=ms) for k, (r, w, ms) in enumerate(batches)]


def test_a_job_that_keeps_up_is_offered_what_it_reads() -> None:
    """1,000 rows a second, of which a busy core processes 2,000."""
    advice = cores_needed(loads(*[(1_000, 1_000, 500)] * 11))
    assert advice is not None
    assert (advice.cores, advice.offered, advice.per_core) == (1, 1_000, 2_000)


def test_a_job_that_lags_behind_needs_cores_for_what_arrives() -> None:
    """It reads 1,000 rows a second with a busy core, and 2,500 arrive."""
    advice = cores_needed(loads(*[(1_000, 1_000 + 1_500 * k, 1_000) for k in range(11)]))
    assert advice is not None
    assert (advice.cores, advice.offered, advice.per_core) == (3, 2_500, 1_000)


def test_a_backlog_that_is_read_needs_no_cores() -> None:
    """What waits at the begin has arrived before: 500 rows a second do now."""
    advice = cores_needed(loads(*[(2_000, 20_000 - 1_500 * k, 1_000) for k in range(11)]))
    assert advice is not None
    assert (advice.cores, advice.offered) == (1, 500)


@pytest.mark.parametrize(
    "batches",
    [
        [],
        loads((5, 5, 5.0)),
        loads((0, 0, 5.0), (0, 0, 5.0)),
        loads((5, 5, 0.0), (5, 5, 0.0)),
        loads((5, 50, 5.0), (5, 5, 5.0)),
        [BatchLoad(time=k, rows=9, waiting=9, task_ms=9) for k in range(9)],
    ],
    ids=["none", "one", "no rows", "no time of tasks", "rows that went by themselves", "a blink"],
)
def test_batches_that_tell_too_little_give_no_advice(batches: list[BatchLoad]) -> None:
    """Also where another reader, or retention, took rows away."""
    assert cores_needed(batches) is None


@settings(max_examples=examples(100))
@given(st.integers(1, 10**5), st.floats(0.001, 10), st.integers(2, 40), st.integers(1, 60))
def test_cores_are_the_offered_rate_over_that_of_one_core(rows: int, ms: float, batches: int, every: int) -> None:
    """As a law: rows a second times the seconds of a core that each takes, rounded up; more rows never need fewer."""

    def advice(times: int) -> int:
        load = [
            BatchLoad(time=k * every * SECOND, rows=times * rows, waiting=times * rows, task_ms=times * rows * ms)
            for k in range(batches)
        ]
        advised = cores_needed(load)
        assert advised is not None
        return advised.cores

    assert advice(1) in {max(1, ceil(rows / every * ms / 1000 + off)) for off in (-1e-6, 0)}
    assert advice(2) >= advice(1)
