"""Floats are added exactly, so that no cut into tasks changes a verdict (SEMANTICS 11.3)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.quality.exact import BINS, bins_of, rounded

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def parts(values: list[float]) -> list[tuple[int, int, int]]:
    return list(zip(*(a.tolist() for a in bins_of(np.array(values, np.float64))), strict=True))


@given(st.lists(FINITE, max_size=30))
@example([1e17, 1.0, -1e17])
@example([5e-324, 5e-324, -5e-324])
@example([1.7976931348623157e308, 1.7976931348623157e308, -1.7976931348623157e308])
def test_the_sum_is_the_double_nearest_to_the_true_sum(values):
    """Against fractions: no rounding on the way, in whatever order, so 1e17 + 1 - 1e17 is 1."""
    true = sum(map(Fraction, values), Fraction(0))
    try:
        expected = float(true)
    except OverflowError:
        expected = math.inf if true > 0 else -math.inf
    assert rounded(parts(values)) == expected
    assert rounded(parts(values[::-1])) == expected


@given(st.lists(FINITE, min_size=1, max_size=20), st.data())
def test_partial_sums_of_each_bin_add_up(values, data):
    """Parts of different tasks may be added bin by bin before they are rounded, which is what merging does."""
    bins: dict[int, list[int]] = {}
    for place, high, low in data.draw(st.permutations(parts(values))):
        held = bins.setdefault(place, [0, 0])
        held[0] += high
        held[1] += low
    assert rounded((place, high, low) for place, (high, low) in bins.items()) == rounded(parts(values))


@pytest.mark.parametrize("value", [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -0.0, 0.1, -1e300])
def test_every_double_has_a_bin_and_comes_back(value):
    """The smallest subnormal lies in bin 0 and the largest double in the last one; parts leave room for 2**29 rows."""
    [(place, high, low)] = parts([value])
    assert 0 <= place < BINS
    assert abs(high) < 2**34
    assert 0 <= low < 2**34
    assert rounded([(place, high, low)]) == value


def test_sums_beyond_the_largest_double_are_infinite():
    """As in Spark, where the double itself overflows."""
    largest = 1.7976931348623157e308
    assert rounded(parts([largest, largest])) == math.inf
    assert rounded(parts([-largest, -largest])) == -math.inf
