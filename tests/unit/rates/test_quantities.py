"""Numbers that estimators and limits are given: checked, and read as they are written."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from penstock.errors import ConfigError
from penstock.rates.quantities import at_least, exact, fraction_of_one, positive


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "7", None, True, 10**400], ids=str)
def test_what_is_no_positive_number_is_rejected_by_its_name(value: object) -> None:
    """The message names the argument, and it is a ValueError as well."""
    with pytest.raises(ConfigError, match=r"PEN-CNF-001 some_rate is ") as why:
        positive("some_rate", value)
    assert isinstance(why.value, ValueError)


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (lambda v: at_least("integral", v, 0), -0.1, "integral is 0 or more, found -0.1"),
        (lambda v: at_least("growth", v, 1), 0.5, "growth is 1 or more, found 0.5"),
        (lambda v: fraction_of_one("headroom", v), 1.5, "headroom is at most 1, found 1.5"),
        (lambda v: fraction_of_one("headroom", v), 0, "headroom is above 0, found 0"),
    ],
    ids=["below 0", "below 1", "above 1", "zero"],
)
def test_a_number_out_of_range_is_rejected_with_the_range(
    check: Callable[[float], float], value: float, message: str
) -> None:
    """The message says what is expected and what there is."""
    with pytest.raises(ConfigError) as why:
        check(value)
    assert why.value.what == message


def test_bounds_themselves_are_allowed() -> None:
    """At least 0 is 0 or more; a part of one may be all of it."""
    assert [at_least("n", 0, 0), at_least("n", 1, 1), fraction_of_one("n", 1), positive("n", 2)] == [
        0,
        1,
        1,
        2,
    ]


def test_a_float_is_read_as_it_is_written() -> None:
    """Ten times 0.7 is seven."""
    assert exact(0.7) * 10 == 7
    assert exact(1e-9) == Fraction(1, 10**9)
    assert exact(10**30) == 10**30
    assert exact(Fraction(1, 3)) == Fraction(1, 3)
