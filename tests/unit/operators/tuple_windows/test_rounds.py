"""In which windows rows are: rows that enter out of order, against a loop (SEMANTICS 5.3)."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.tuple_windows.rounds import NEVER, KeyRows, ceil_div, rounds_by_time


@settings(max_examples=examples(40), deadline=None)
@given(
    given_rows=st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9))),
    count=st.integers(1, 4),
    slide=st.integers(1, 5),
)
def test_the_last_rows_of_each_end_equal_a_loop(given_rows: list[tuple[int, int]], count: int, slide: int) -> None:
    """5.3: the last so many by arrival, of those up to the end."""
    given_rows = sorted(given_rows, key=lambda row: row[0])
    ids, times = (np.array([row[place] for row in given_rows], dtype=np.int64) for place in range(2))
    rows = KeyRows(ids, times, np.zeros(len(ids), dtype=np.bool_), 3)
    first = -20 // slide
    made = rounds_by_time(rows, slide, ends=(first, 20 // slide), origin=0, length=None, count=count)
    for number in range(first, 20 // slide + 1):
        round_ = number - first + 1
        for key in range(3):
            candidates = [at for at, (k, time) in enumerate(given_rows) if k == key and time <= number * slide]
            inside = [at for at in np.flatnonzero(ids == key) if made.enter[at] <= round_ < made.leave[at]]
            assert inside == candidates[-count:]
    assert made.at(np.array([0]), np.array([1]))[0].tolist() == [first * slide]
    assert int(made.leave.max(initial=0)) <= NEVER


def test_multiples_are_rounded_up_before_1970_too() -> None:
    """5.3: a time at a multiple is at the end of that window."""
    assert ceil_div(np.array([-11, -10, -1, 0, 1, 10]), 10, 0).tolist() == [-1, -1, 0, 0, 1, 1]
    assert ceil_div(np.array([3, 4, 13]), 10, 3).tolist() == [0, 1, 1]
