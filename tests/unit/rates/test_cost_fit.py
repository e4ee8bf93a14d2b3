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
    return CostFit.of(batches, fade=10 / 11)


def test_both_costs_are_found_where_row_counts_differ() -> None:
    """300 ms and 0.04 ms a row."""
    fit = fitted([(n, 300 + 0.04 * n) for n in (100, 400, 1_600, 6_400, 10_000, 8_000, 9_000) * 3])
    assert (fit.fixed_ms, fit.row_ms) == (pytest.approx(300, rel=0.02), pytest.approx(0.04, rel=0.02))
    assert fit.rows_in(850) == pytest.approx(13_750, rel=0.02)


def test_without_differences_the_split_is_a_guess() -> None:
    """Where batches are short, rows cost nothing; where they are long, they cost all of it."""
    fit = fitted([(100, 300), (101, 310), (100, 300)])
    assert not fit.settled
    assert fit.rows_in(850) == float("inf")
    assert fit.rows_in(320) == pytest.approx(107, abs=1)
    assert fit.rows_in(150) == pytest.approx(50, abs=1)
    assert fit.rows_in(-5) == 0


def test_one_larger_batch_settles_it() -> None:
    """Four times the rows of ten batches before."""
    fit = fitted([*[(100, 300)] * 10, (400, 312)])
    assert fit.settled
    assert (fit.fixed_ms, fit.row_ms) == (pytest.approx(296), pytest.approx(0.04))


def test_rows_that_cost_nothing_have_no_bound() -> None:
    """Time that falls with the rows is no negative cost."""
    fit = fitted([(100, 300), (1_000, 290), (100, 310), (1_000, 280)])
    assert fit.settled
    assert fit.row_ms == 0
    assert fit.rows_in(850) == float("inf")
    assert fit.rows_in(100) == 0


@pytest.mark.parametrize("every", [31, 10, 5])
def test_pauses_of_some_batches_change_little(every: int) -> None:
    """A garbage collector that takes three seconds of each fifth batch is no cost of the others."""
    rows = [1_000 + 400 * (k % 7) for k in range(50)]
    fit = fitted([(n, 300 + 0.2 * n + 3_000 * (k % every == every - 1)) for k, n in enumerate(rows)])
    assert fit.expected_ms(1_000) == pytest.approx(500, rel=0.1)
    assert fit.expected_ms(3_400) == pytest.approx(980, rel=0.1)


def test_a_cost_that_has_risen_for_good_is_followed() -> None:
    """Three times the cost is no accident when it comes three times in a row."""
    rng = random.Random(1)
    rows = [rng.randint(500, 2_000) for _ in range(33)]
    fit = fitted([*((n, 100 + 0.2 * n) for n in rows[:30]), *((n, 300 + 0.6 * n) for n in rows[30:])])
    assert fit.expected_ms(1_000) == pytest.approx(900, rel=0.01)


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
