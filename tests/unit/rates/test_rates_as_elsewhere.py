"""Rates give the figures that other systems' suites expect of them (SEMANTICS 8.1, 8.2).

They are those of Spark's PIDRateEstimatorSuite, DirectKafkaStreamSuite and KafkaMicroBatchSourceSuite, written anew.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.rates import PIDRateEstimator, partition_limits
from penstock.rates.division import shares_within

BATCHES = range(50)


def test_a_backlog_that_grows_is_answered_with_the_least_rate() -> None:
    """8.1: a row each 20 ms that was 100 ms late asks for less than any rate."""
    estimator = PIDRateEstimator(20, 1.0, 1.0, 0.0, 5.0)
    rates = [estimator.compute(20 * k, 1, 20, 100) for k in BATCHES]
    assert rates == [None, *[5.0] * 49]


@pytest.mark.parametrize(
    "rows", [[20 * (k + 1) for k in BATCHES], [20 * (50 - k) for k in BATCHES]], ids=["up", "down"]
)
def test_without_delay_the_rate_is_that_of_the_last_batch(rows: list[int]) -> None:
    """8.1: also with an integral, as no row waited."""
    estimator = PIDRateEstimator(20, 1.0, 1.0, 0.0, 10.0)
    rates = [estimator.compute(20 * k, rows[k], 20, 0) for k in BATCHES]
    assert rates == [None, *(50.0 * n for n in rows[1:])]


def test_with_delay_the_rate_is_below_that_of_the_last_batch() -> None:
    """8.1: what waited is taken off."""
    estimator = PIDRateEstimator(20, 1.0, 0.01, 0.0, 10.0)
    rows = [(k * 397) % 1000 for k in BATCHES]
    rates = [estimator.compute(20 * k, rows[k], 20, 1 + k % 18) for k in BATCHES]
    asked = [(rate, n) for rate, n in zip(rates, rows, strict=True) if rate is not None]
    assert len(asked) == 48, "the batch without rows, and the first one with rows, ask for none"
    assert all(rate == 10 or rate < 50 * n for rate, n in asked)


@pytest.mark.parametrize(
    ("rate", "lag", "seconds", "bounds", "rows"),
    [
        (1_000_000, [50, 50], 0.1, {"max_rate": 100}, [10, 10]),
        (1_000, [1_000, 1_000], 0.1, {"max_rate": 50}, [5, 5]),
        (500, [1_000], 0.5, {"max_rate": 1_000}, [250]),
        (1_000, [1_000], 0.5, {"max_rate": 300}, [150]),
        (100, [5_000], 0.5, {"max_rate": 100}, [50]),
        (20, [5_000], 0.5, {"max_rate": 100}, [10]),
        # The suite has [5, 10, 20, 30] for an interval of a minute: it forgets the seconds of the floor.
        (1, [0, 100, 200, 300], 60, {"max_rate": 100, "min_rate": 5}, [300, 300, 300, 300]),
        (1, [0, 100, 200, 300], 60, {"max_rate": 100, "min_rate": 5 / 60}, [5, 10, 20, 30]),
    ],
    ids=[
        "no backpressure", "capped", "initial rate", "initial rate above the cap", "100 a second", "20 a second",
        "floor of a second", "floor of a batch",
    ],
)  # fmt: skip
def test_a_rate_is_divided_as_of_the_direct_stream(
    rate: float, lag: list[int], seconds: float, bounds: dict[str, float], rows: list[int]
) -> None:
    """8.2."""
    limits = partition_limits(rate, lag=dict(enumerate(lag)), seconds=seconds, **bounds)
    assert [limits[k] for k in range(len(lag))] == rows


def test_a_limit_of_a_batch_is_divided_as_of_the_micro_batch_source() -> None:
    """8.2: ten rows of partitions with 101, 11 and 1, batch after batch; the smallest does not starve."""
    ends, read = {0: 101, 1: 11, 2: 1}, [dict.fromkeys(range(3), 0)]
    for _ in range(4):
        shares = shares_within({k: ends[k] - read[-1][k] for k in ends}, 10)
        read.append({k: read[-1][k] + shares[k] for k in ends})
    assert [[b[k] - a[k] for k in ends] for a, b in pairwise(read)] == [[8, 1, 1], [9, 1, 0], [9, 1, 0], [9, 1, 0]]
