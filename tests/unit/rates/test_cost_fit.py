"""Batch time as a fixed cost and a cost per row."""

from __future__ import annotations

import random

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.rates.cost_fit import CostFit


def fitted(batches: list[tuple[float, float]]) -> CostFit:
    """Return the fit after these rows and milliseconds."""
    fit = CostFit(fade=10 / 11)
    for rows, ms in batches:
        fit.add(rows, ms)
    return fit


def test_both_costs_are_found_where_row_counts_differ() -> None:
    """300 ms and 0.04 ms a row."""
    fit = fitted([(n, 300 + 0.04 * n) for n in (100, 400, 1_600, 6_400, 10_000, 8_000, 9_000) * 3])
    assert (fit.fixed_ms, fit.row_ms) == (pytest.approx(300, rel=0.02), pytest.approx(0.04, rel=0.02))
    assert fit.rows_in(850) == pytest.approx(13_750, rel=0.02)


def test_one_batch_counts_as_cost_of_rows_alone() -> None:
    """The careful guess: nothing says that any of it was fixed."""
    fit = fitted([(100, 300)])
    assert (fit.fixed_ms, fit.row_ms) == (0, 3)


def test_equal_row_counts_leave_the_cost_per_row_as_it_was() -> None:
    """The fit is singular: a change of time goes to the fixed cost."""
    varied = [(n, 300 + 0.1 * n) for n in (500, 1_500, 1_000, 2_000) * 5]
    fit = fitted([*varied, *[(1_000, 400)] * 100, *[(1_000, 500)] * 100])
    assert fit.row_ms == pytest.approx(0.1, rel=0.05)
    assert fit.expected_ms(1_000) == pytest.approx(500, rel=0.01)


def test_rows_that_cost_nothing_have_no_bound() -> None:
    """Time that falls with the rows is no negative cost."""
    fit = fitted([(100, 300), (1_000, 290), (100, 310), (1_000, 280)])
    assert fit.row_ms == 0
    assert fit.rows_in(850) == float("inf")
    assert fit.rows_in(100) == 0


def test_one_pause_changes_little() -> None:
    """A garbage collector that takes three seconds once is no cost of the job."""
    steady = [(1_000 + 100 * (k % 5), 300 + 0.2 * (1_000 + 100 * (k % 5))) for k in range(30)]
    before, after = fitted(steady), fitted([*steady, (1_200, 3_540)])
    assert after.expected_ms(1_200) == pytest.approx(before.expected_ms(1_200), rel=0.15)


def test_a_cost_that_has_risen_for_good_is_followed() -> None:
    """Three times the cost is no accident when it comes again and again."""
    rng = random.Random(1)
    rows = [rng.randint(500, 2_000) for _ in range(50)]
    fit = fitted([*((n, 100 + 0.2 * n) for n in rows[:30]), *((n, 300 + 0.6 * n) for n in rows[30:])])
    assert fit.expected_ms(1_000) == pytest.approx(900, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_averaged(seed: int) -> None:
    """A tenth of noise on each batch leaves the expectation within a tenth."""
    rng = random.Random(seed)
    rows = [rng.randint(500, 10_000) for _ in range(60)]
    fit = fitted([(n, (300 + 0.05 * n) * rng.gauss(1, 0.1)) for n in rows])
    assert fit.expected_ms(5_000) == pytest.approx(550, rel=0.1)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(1, 10**17), st.floats(1e-3, 1e14)), min_size=1, max_size=50))
def test_costs_are_finite_and_never_negative(batches: list[tuple[float, float]]) -> None:
    """Whatever batches took: one row or 10 to the 17th, a microsecond or a thousand years."""
    fit = fitted(batches)
    assert 0 <= fit.fixed_ms < 1e16
    assert 0 <= fit.row_ms < 1e16
    assert fit.rows_in(1_000) >= 0
