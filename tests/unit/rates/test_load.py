"""How many rows arrive at a simulated source."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.rates.load import Load

BURST = Load.of_steps([(60, 100), (30, 0), (20, 1_000)])


@pytest.mark.parametrize(
    ("second", "rows"),
    [(-1, 0), (0, 0), (30, 3_000), (60, 6_000), (75, 6_000), (95, 11_000), (110, 26_000), (500, 26_000)],
)
def test_rows_arrive_evenly_within_a_step(second: float, rows: float) -> None:
    """A minute of 100 a second, half a minute of none, and a burst."""
    assert BURST.arrived(second) == pytest.approx(rows)


@pytest.mark.parametrize(
    ("row", "second"), [(0, 0), (3_000, 30), (6_000, 60), (6_001, 90.001), (26_000, 110), (10**6, 110)]
)
def test_a_row_has_a_moment_at_which_it_is_there(row: float, second: float) -> None:
    """The earliest one: the last row before a pause does not wait for its end."""
    assert BURST.arrival(row) == pytest.approx(second)


def test_a_history_is_a_load() -> None:
    """What each batch read arrived since the batch before."""
    load = Load.of_counts([100, 102, 103], [20, 40, 5])
    assert [load.arrived(second) for second in (0, 1, 2, 3, 4, 5)] == [0, 10, 20, 40, 60, 65]
    assert load.end == 5


@settings(max_examples=examples(100))
@given(
    # At a row a year nobody can tell by the rows which second it is.
    st.lists(st.tuples(st.floats(0.1, 100), st.just(0.0) | st.floats(0.1, 1e5)), min_size=1, max_size=8),
    st.floats(0, 900),
)
def test_arrivals_and_moments_agree(steps: list[tuple[float, float]], second: float) -> None:
    """As a law: rows do not leave, and what has arrived by a moment was there at that moment."""
    load = Load.of_steps(steps)
    rows = load.arrived(second)
    assert 0 <= rows <= load.rows[-1]
    assert load.arrived(second + 1) >= rows
    assert load.arrival(rows) <= min(second, load.end) + 1e-6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Load.of_steps([(-1, 5)]), "the length of a step is 0 or more"),
        (lambda: Load.of_steps([(1, -5)]), "the rate of a step is 0 or more"),
        (lambda: Load.of_counts([1], [5]), "two moments or more"),
        (lambda: Load.of_counts([1, 3, 3], [5, 5, 5]), "each after the one before"),
    ],
    ids=["length", "rate", "one moment", "no time"],
)
def test_what_is_no_load_is_rejected(make, message: str) -> None:
    """With what is wrong."""
    with pytest.raises(ConfigError, match=message):
        make()
