"""The rows of a batch, divided among partitions by what waits in each (SEMANTICS 8.2)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.rates import partition_limits
from penstock.rates.division import shares_beside, shares_within

LAG = st.dictionaries(
    st.tuples(st.sampled_from("tu"), st.integers(0, 9)),
    st.one_of(st.integers(-5, 50), st.integers(0, 10**12)),
    max_size=12,
)
RATE = st.one_of(st.integers(1, 10**6), st.floats(0.01, 1e6))
SECONDS = st.sampled_from([0.05, 0.3, 0.5, 1, 2.5, 10, 60])


@pytest.mark.parametrize(
    ("rate", "lag", "bounds", "rows"),
    [
        (100, [50, 50], {}, [50, 50]),
        (100, [50, 150], {}, [25, 75]),
        (100, [50, 150], {"seconds": 10}, [250, 750]),
        (100, [50, 150], {"max_rate": 40}, [25, 40]),
        (100, [50, 150], {"max_rate": 40, "seconds": 0.5}, [13, 20]),
        (100, [1, 9_999], {}, [1, 100]),
        (100, [1, 9_999], {"min_rate": 5}, [5, 100]),
        (100, [1, 9_999], {"min_rate": 5, "seconds": 60}, [300, 5999]),
        (100, [1, 9_999], {"min_rate": 0, "seconds": 0.1}, [1, 10]),
        (1, [0, 100, 200, 300], {"min_rate": 0, "seconds": 60}, [0, 10, 20, 30]),
        (1, [0, 100, 200, 300], {"min_rate": 0.1, "seconds": 60}, [6, 10, 20, 30]),
        (5, [0, 0], {"seconds": 2}, [2, 2]),
        (5, [0, 0], {"min_rate": 0}, [0, 0]),
        (10, [1, 1, 1], {}, [4, 3, 3]),
        (1000, [7], {}, [1000]),
        (10, [-4, 5], {"min_rate": 0}, [0, 10]),
        (0.7, [3], {"seconds": 10}, [10]),
        (0.7, [3], {"seconds": 10, "min_rate": 0.1}, [7]),
        (100, [3, 3], {"seconds": 10, "max_rate": 0.7, "min_rate": 0.7}, [7, 7]),
    ],
    ids=[
        "even", "by lag", "times the seconds", "capped", "cap times the seconds", "none starves", "floor",
        "floor times the seconds", "one row", "without lag and floor", "without lag", "no lag at all",
        "nothing at all", "by remainder", "more than waits", "negative lag", "floor above the rate", "as written",
        "cap and floor as written",
    ],
)  # fmt: skip
def test_a_rate_is_divided_by_lag(rate: float, lag: list[int], bounds: dict[str, float], rows: list[int]) -> None:
    """SEMANTICS 8.2: share, cap, seconds, floor."""
    limits = partition_limits(rate, lag=dict(enumerate(lag)), **{"seconds": 1, **bounds})
    assert [limits[k] for k in range(len(lag))] == rows


def test_keys_are_of_any_kind() -> None:
    """The call that API writes."""
    assert partition_limits(100, lag={("t", 0): 10}, seconds=1) == {("t", 0): 100}
    assert partition_limits(100, {"a": 1, None: 1}, seconds=1) == {"a": 50, None: 50}


def test_a_lag_may_come_from_an_array() -> None:
    """Its product with the rate has more than 64 bits, and is exact."""
    lag = dict(enumerate(np.array([3 * 10**18, 10**18])))
    assert partition_limits(123_456.75, lag, seconds=10) == {0: 925_926, 1: 308_642}


@settings(max_examples=examples(300))
@given(RATE, LAG, SECONDS, st.none() | st.floats(5, 1e5), st.floats(0, 5))
def test_a_division_is_the_definition_within_one_row(
    rate: float, lag: dict[Any, int], seconds: float, max_rate: float | None, min_rate: float
) -> None:
    """SEMANTICS 8.2 as a law: never negative, never above limits, none starved, less than a row from the exact share."""
    limits = partition_limits(rate, lag, seconds=seconds, max_rate=max_rate, min_rate=min_rate)
    assert limits.keys() == lag.keys()
    waiting = {key: max(0, n) for key, n in lag.items()}
    total = sum(waiting.values())
    at = Fraction(str(seconds))
    for key, rows in limits.items():
        share = Fraction(str(rate)) * waiting[key] / total if total else Fraction(0)
        capped = share if max_rate is None else min(share, Fraction(str(max_rate)))
        expected = max(capped, Fraction(str(min_rate))) * at
        assert abs(rows - expected) < 1 or (rows == 1 and waiting[key] > 0 and expected < 1)
        assert rows >= Fraction(str(min_rate)) * at
        assert max_rate is None or rows <= max(1, -(-Fraction(str(max_rate)) * at // 1))
        assert rows > 0 or waiting[key] == 0


@settings(max_examples=examples(200))
@given(RATE, LAG, SECONDS)
def test_shares_sum_up_to_the_rate(rate: float, lag: dict[Any, int], seconds: float) -> None:
    """Where no floor and no cap changes a share, the sum is that of the rate, but for the rows that none may lack."""
    limits = partition_limits(rate, lag, seconds=seconds, min_rate=0)
    lagging = sum(n > 0 for n in lag.values())
    if lagging:
        wanted = Fraction(str(rate)) * Fraction(str(seconds))
        assert abs(sum(limits.values()) - wanted) <= lagging


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 0}, "rate is above 0"),
        ({"rate": float("nan")}, "rate is a finite number"),
        ({"seconds": 0}, "seconds is above 0"),
        ({"max_rate": 0}, "max_rate is above 0"),
        ({"min_rate": -1}, "min_rate is 0 or more"),
        ({"max_rate": 5, "min_rate": 10}, "max_rate is 5 rows a second, below min_rate of 10"),
    ],
    ids=str,
)
def test_an_argument_out_of_range_is_named(arguments: dict[str, float], message: str) -> None:
    """A rate of zero is no pause, and a cap below the floor cannot be kept."""
    with pytest.raises(ConfigError, match=message):
        partition_limits(**{"rate": 10, "lag": {"a": 1}, "seconds": 1, **arguments})


@settings(max_examples=examples(300))
@given(LAG, st.integers(1, 10**6), st.integers(1, 100))
def test_shares_within_a_hard_limit_exceed_it_by_no_floor(lag: dict[Any, int], total: int, least: int) -> None:
    """The limit to the row, unless it is below the number of partitions with rows; each has as many as it can."""
    waiting = {key: n for key, n in lag.items() if n > 0}
    shares = shares_within(lag, total, least=least)
    assert shares.keys() == lag.keys()
    if sum(waiting.values()) >= total:
        assert sum(shares.values()) == max(total, len(waiting))
        floor = max(1, min(least, total // max(1, len(waiting))))
        assert all(min(n, floor) <= shares[key] <= n for key, n in waiting.items())
    assert all(shares[key] == 0 for key in lag.keys() - waiting.keys())


@settings(max_examples=examples(300))
@given(st.data(), LAG, st.one_of(st.integers(1, 10**6), st.floats(0.01, 1e6)))
def test_what_a_cap_takes_goes_to_the_others(data: st.DataObject, lag: dict[Any, int], total: float) -> None:
    """None has less than by its lag alone, and all is given while somebody may take more."""
    most = {key: data.draw(st.integers(0, 10**6)) for key in lag}
    floor = data.draw(st.integers(0, 10**6))

    def taken(key: Any, share: int) -> tuple[int, int]:
        return max(share, floor), min(max(share, floor), most[key])

    shares = shares_beside(lag, total, taken)
    lagging = [key for key in lag if lag[key] > 0]
    assert all(shares[key] == 0 for key in lag if key not in lagging)
    whole = sum(lag[key] for key in lagging)
    assert all(shares[key] >= max(1, int(Fraction(total) * lag[key] / whole) - 1) for key in lagging)
    takes = {key: min(shares[key], most[key]) for key in lagging}
    assert sum(takes.values()) <= total + len(lagging)
    if not floor and sum(most[key] for key in lagging) >= total + len(lagging):
        assert sum(takes.values()) >= total - 1
