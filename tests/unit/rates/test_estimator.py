"""The contract of estimators, for each that there is: recoverable from the log, finite, and never below the floor."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.rates import Constant, CostModel, Measurement, PIDRateEstimator, RateEstimator, replayed
from penstock.rates.estimator import REMEMBERED, estimated

MAKERS: dict[str, Callable[[], RateEstimator]] = {
    "constant": lambda: Constant(500),
    "pid": PIDRateEstimator,
    "cost model": CostModel,
}
BATCHES = st.lists(
    st.builds(
        Measurement,
        st.integers(0, 10**9),
        st.one_of(st.just(0), st.integers(0, 10**6), st.integers(0, 2**63)),
        st.one_of(st.just(0), st.integers(0, 5_000), st.floats(0, 1e9)),
        st.floats(0, 1e9),
        st.sampled_from([0.0, 50.0, 1e9]),
    ),
    max_size=40,
)
every_estimator = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@every_estimator
def test_a_new_one_that_is_fed_the_same_batches_gives_the_same_rates(make: Callable[[], RateEstimator]) -> None:
    """A driver that starts feeds the batches of the log, and goes on as the one before would have."""

    @settings(max_examples=examples(60))
    @given(BATCHES, st.integers(0, 40))
    def law(batches: list[Measurement], at: int) -> None:
        before, after = make(), make()
        rates = [estimated(before, batch) for batch in batches]
        in_force = replayed(after, batches[:at])
        assert in_force == next((rate for rate in reversed(rates[:at]) if rate is not None), None)
        assert [estimated(after, batch) for batch in batches[at:]] == rates[at:]

    law()


@every_estimator
def test_what_is_older_than_the_batches_that_are_fed_has_faded(make: Callable[[], RateEstimator]) -> None:
    """An estimator that saw a thousand batches more gives the same rate within a percent."""
    batches = [
        Measurement(1000 * k, 500 + 37 * k % 200, 300 + 0.5 * (500 + 37 * k % 200), 10 * (k % 3)) for k in range(1100)
    ]
    old = [batch._replace(rows=10, processing_ms=900) if k < 1000 else batch for k, batch in enumerate(batches)]
    assert replayed(make(), old) == pytest.approx(replayed(make(), old[-REMEMBERED:]), rel=0.01)


@every_estimator
def test_a_rate_is_finite_and_never_negative(make: Callable[[], RateEstimator]) -> None:
    """For any batches at all, also with numbers that none can have."""

    @settings(max_examples=examples(100))
    @given(BATCHES)
    def law(batches: list[Measurement]) -> None:
        estimator = make()
        for batch in batches:
            rate = estimated(estimator, batch)
            assert rate is None or (isfinite(rate) and rate >= 100)

    law()


@every_estimator
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1.0], ids=str)
def test_numbers_that_no_batch_can_have_leave_no_trace(make: Callable[[], RateEstimator], odd: float) -> None:
    """They give the constant, or None, and the next batch a rate as if they had not been."""
    estimator, other = make(), make()
    for k in range(5):
        estimator.compute(1000 * k, 400, 500, 0)
        other.compute(1000 * k, 400, 500, 0)
    assert estimator.compute(5000, 400, odd, 0) in (None, 500)
    assert estimator.compute(6000, 450, 520, 0) == other.compute(6000, 450, 520, 0)


@every_estimator
def test_an_estimator_is_known_by_its_method(make: Callable[[], RateEstimator]) -> None:
    """8.0, API: RateEstimator can be asked at run time whether something is one."""
    assert isinstance(make(), RateEstimator)
    assert not isinstance(object(), RateEstimator)


def test_an_estimator_of_ones_own_is_one_method() -> None:
    """The class of the contract's outline."""

    class Half:
        def compute(self, time_ms: float, rows: int, processing_ms: float, scheduling_ms: float) -> float | None:
            return None if rows == 0 or processing_ms <= 0 else 500 * rows / processing_ms

    assert replayed(Half(), [Measurement(0, 100, 100, 0), Measurement(1, 0, 5, 0)]) == 500
