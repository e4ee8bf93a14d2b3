"""The search for the newest of other rows finds what a look at all of them finds (SEMANTICS 7.6)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock.operators.as_of_search import newest_at, newest_of_each
from penstock.operators.interval_pairs import Moments
from penstock.state.keys import Ints
from tests.support.examples import examples

_drawn = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=30)


def moments(rows: list[tuple[int, int]]) -> Moments:
    """Return rows of key and time."""
    ids = np.array([key for key, _ in rows], dtype=np.int64)
    return Moments(ids, np.array([time for _, time in rows], dtype=np.int64), ids)


def by_time(others: Moments) -> Ints:
    """Return the order by key, then time, then place."""
    return np.lexsort((np.arange(len(others.ids)), others.times, others.ids))


@hypothesis_settings(max_examples=examples(100), deadline=None)
@given(rows=_drawn, others=_drawn, within=st.integers(0, 6))
def test_each_row_takes_what_a_look_at_all_takes(
    rows: list[tuple[int, int]], others: list[tuple[int, int]], within: int
) -> None:
    """The greatest time that is not above the row's and not too far below; of equal ones the last."""
    expected = []
    for key, time in rows:
        fits = [(t, n) for n, (k, t) in enumerate(others) if k == key and time - within <= t <= time]
        expected.append(max(fits)[1] if fits else -1)
    given_others = moments(others)
    assert newest_at(moments(rows), given_others, by_time(given_others), within).tolist() == expected


@hypothesis_settings(max_examples=examples(50), deadline=None)
@given(rows=_drawn)
def test_the_newest_of_each_key_is_its_last_in_the_order(rows: list[tuple[int, int]]) -> None:
    """And none where it has no row."""
    expected = [max(((t, n) for n, (k, t) in enumerate(rows) if k == key), default=(0, -1))[1] for key in range(4)]
    assert newest_of_each(moments(rows).ids, by_time(moments(rows)), 4).tolist() == expected


@pytest.mark.parametrize("within", [0, 2**63 - 1])
def test_bounds_reach_to_the_ends_of_time(within: int) -> None:
    """Without an overflow."""
    least, most = -(2**63), 2**63 - 1
    others = moments([(0, least), (0, most)])
    assert newest_at(moments([(0, least), (0, most), (0, 0)]), others, by_time(others), within).tolist() == [
        0,
        1,
        -1,
    ]
