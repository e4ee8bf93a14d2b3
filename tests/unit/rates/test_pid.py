"""The PID estimator, by its definition in SEMANTICS 8.1."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.rates import PIDRateEstimator

BATCH = st.tuples(
    st.integers(-10, 100_000), st.integers(-3, 100_000), st.integers(-3, 100_000), st.integers(0, 100_000)
)
GAIN = st.sampled_from([0.0, 0.1, 0.2, 1.0, 2.5])


def model(batches: list[tuple[int, int, int, int]], b: float, p: float, i: float, d: float, least: float) -> list:
    """Return what SEMANTICS 8.1 says, term by term."""
    answers, last = [], None
    for t, n, ms, late in batches:
        if not (n > 0 and ms > 0 and (last is None or t > last[0])):
            answers.append(None)
            continue
        rate = n / ms * 1000
        if last is None:
            last = (t, rate, 0.0)
            answers.append(None)
            continue
        error = last[1] - rate
        change = (error - last[2]) / ((t - last[0]) / 1000)
        new = max(last[1] - p * error - i * (late * rate / b) - d * change, least)
        last = (t, new, error)
        answers.append(new)
    return answers


@settings(max_examples=examples(200))
@given(
    st.lists(BATCH, max_size=30), st.sampled_from([1, 20, 1000, 60_000]), GAIN, GAIN, GAIN, st.sampled_from([1, 100])
)
def test_it_is_the_definition(
    batches: list[tuple[int, int, int, int]], b: float, p: float, i: float, d: float, least: float
) -> None:
    """SEMANTICS 8.1, for batches of every kind: out of order, without rows, in no time, late."""
    estimator = PIDRateEstimator(b, p, i, d, least)
    answers = [estimator.compute(*batch) for batch in batches]
    expected = model(batches, b, p, i, d, least)
    assert [rate is None for rate in answers] == [rate is None for rate in expected]
    assert [rate or 0 for rate in answers] == pytest.approx([rate or 0 for rate in expected], rel=1e-9)
    assert all(rate is None or least <= rate < float("inf") for rate in answers)


def test_the_first_batch_is_recorded_and_gives_no_rate() -> None:
    """The second one is compared with it; with P 1 its own rate is the answer."""
    estimator = PIDRateEstimator(batch_interval_ms=20, integral=0)
    assert estimator.compute(0, 10, 10, 0) is None
    assert estimator.compute(10, 30, 10, 0) == 3000


@pytest.mark.parametrize(
    "batch",
    [(10, 30, 10, 0), (5, 30, 10, 0), (20, 0, 10, 0), (20, 30, 0, 0)],
    ids=["same time", "back", "no rows", "0 ms"],
)
def test_a_batch_that_says_nothing_changes_nothing(batch: tuple[int, int, int, int]) -> None:
    """It gives None, and the next batch is judged as if it had not been."""
    with_it, without = PIDRateEstimator(20), PIDRateEstimator(20)
    for estimator in (with_it, without):
        estimator.compute(0, 10, 10, 0)
        estimator.compute(10, 20, 10, 0)
    assert with_it.compute(*batch) is None
    assert with_it.compute(30, 25, 10, 3) == without.compute(30, 25, 10, 3) is not None


def test_rows_that_wait_take_their_part() -> None:
    """The integral: of 1,000 rows a second, late by half an interval, a fifth of a half is taken off."""
    estimator = PIDRateEstimator(1000)
    estimator.compute(0, 1000, 1000, 0)
    assert estimator.compute(1000, 1000, 1000, 500) == pytest.approx(900)


def test_a_steady_load_is_met_at_once_and_kept() -> None:
    """With P alone, the rate is that at which rows are processed."""
    estimator = PIDRateEstimator(20, 1.0, 0.0, 0.0)
    rates = [estimator.compute(20 * k, 20, 20, 0) for k in range(50)]
    assert rates == [None, *[pytest.approx(1000)] * 49]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"batch_interval_ms": 0}, "batch_interval_ms"),
        ({"batch_interval_ms": -20}, "batch_interval_ms"),
        ({"proportional": -1}, "proportional"),
        ({"integral": -0.2}, "integral"),
        ({"derivative": -1}, "derivative"),
        ({"min_rate": 0}, "min_rate"),
        ({"min_rate": -10}, "min_rate"),
        ({"min_rate": float("nan")}, "min_rate"),
        ({"integral": float("inf")}, "integral"),
    ],
    ids=str,
)
def test_an_argument_out_of_range_is_named(arguments: dict[str, float], named: str) -> None:
    """Before the first batch, as the job is built."""
    with pytest.raises(ConfigError, match=f"{named} is "):
        PIDRateEstimator(**arguments)
