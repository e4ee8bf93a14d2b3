"""Durations are whole microseconds of the number as it is written, and nothing else is one (SEMANTICS, head)."""

from __future__ import annotations

import inspect
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Duration, days, hours, micros, millis, minutes, seconds
from penstock.config.values import parse_duration
from penstock.errors import JobError

UNITS = {micros: 1, millis: 1_000, seconds: 1_000_000, minutes: 60_000_000, hours: 3_600_000_000, days: 86_400_000_000}
LONGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (lambda: seconds(1.001), 1_001_000),
        (lambda: minutes(1.1), 66_000_000),
        (lambda: hours(0.07), 252_000_000),
        (lambda: days(0.7), 60_480_000_000),
        (lambda: millis(0.001), 1),
        (lambda: seconds(1e-06), 1),
        (lambda: micros(1e3), 1_000),
        (lambda: micros(5.0), 5),
        (lambda: seconds(0), 0),
        (lambda: seconds(-0.0), 0),
        (lambda: seconds(-1.001), -1_001_000),
        (lambda: seconds(Decimal("0.000001")), 1),
        (lambda: hours(Decimal("0.07")), 252_000_000),
        (lambda: seconds(Decimal("1E+3")), 1_000_000_000),
        (lambda: seconds(np.float64(1.001)), 1_001_000),
        (lambda: seconds(np.int64(2)), 2_000_000),
        (lambda: micros(LONGEST), LONGEST),
        (lambda: micros(-LONGEST), -LONGEST),
    ],
)
def test_a_number_is_taken_as_it_is_written(duration: Any, expected: int) -> None:
    """0.07 hours are 252 seconds, though the nearest double is a little more."""
    assert duration() == Duration(expected)
    assert type(duration().micros) is int


@given(st.integers(min_value=-(10**9), max_value=10**9))
def test_thousandths_of_a_second_are_milliseconds(n: int) -> None:
    """Whatever the double nearest to them."""
    assert seconds(n / 1000) == millis(n)
    assert millis(n / 1000) == micros(n)


@given(st.sampled_from(list(UNITS)), st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_exact_or_refused(unit: Any, n: float) -> None:
    """Nothing is rounded: what is accepted is the number times the unit, and the rest is no whole number of them."""
    exact = Fraction(repr(n)) * UNITS[unit]
    if exact.denominator == 1 and abs(exact) <= LONGEST:
        assert unit(n).micros == exact
    else:
        with pytest.raises(JobError):
            unit(n)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.__name__)
@pytest.mark.parametrize(
    "number",
    [
        float("nan"), float("inf"), float("-inf"), Decimal("nan"), Decimal("sNaN"), Decimal("-Infinity"),
        True, False, "5", b"5", "", None, [5], 1j, Fraction(1, 2), seconds(5), np.True_,
        Decimal("1e-999999"), Decimal("1e999999"), 1e300, 2**63, -(2**63), 10**5000, 1e-300,
    ],
    ids=lambda number: str(number)[:20] if not isinstance(number, int) or abs(number) < 2**64 else "huge",
)  # fmt: skip
def test_what_is_no_number_of_whole_microseconds_is_refused_at_the_users_line(unit: Any, number: object) -> None:
    """API: a duration is a type of its own; SEMANTICS: an integer number of microseconds."""
    with pytest.raises(JobError) as caught:
        unit(number)
    frame = inspect.currentframe()
    assert frame is not None
    assert caught.value.where == f"{__file__}:{frame.f_lineno - 3}"
    assert unit.__name__ in caught.value.what


@pytest.mark.parametrize(
    ("duration", "message"),
    [
        (lambda: micros(0.5), "micros(0.5) is not a whole number of microseconds"),
        (lambda: seconds(Decimal("0.0000001")), "whole number of microseconds"),
        (lambda: seconds(1.0000000000000002), "whole number of microseconds"),
        (lambda: seconds("5"), "seconds takes a number, not '5'"),
        (lambda: hours(float("nan")), "hours(nan) is not a finite number"),
        (lambda: days(1e300), "longer than"),
    ],
)
def test_the_message_says_what_is_wrong(duration: Any, message: str) -> None:
    """With the call as it was written."""
    with pytest.raises(JobError) as caught:
        duration()
    assert message in caught.value.what


def test_a_decimal_is_not_rounded_to_the_precision_of_the_context() -> None:
    """28 digits are what Python multiplies decimals with; a job is not built from what they leave over."""
    with pytest.raises(JobError):
        seconds(Decimal("1.0000000000000000000000000000000001"))


@given(st.integers(min_value=0, max_value=10**12), st.integers(min_value=0, max_value=6))
def test_files_and_jobs_read_a_number_alike(digits: int, places: int) -> None:
    """conf/*.toml and jobs/*.py share one arithmetic."""
    number = Decimal(digits).scaleb(-places)
    assert parse_duration(f"{number:f} seconds") == seconds(number)


@pytest.mark.parametrize("text", ["0.0000001 seconds", "1.0000000000000000000000000000000001 seconds"])
def test_files_are_not_rounded_either(text: str) -> None:
    """The error is one of the file, and names no line of Python."""
    with pytest.raises(ValueError, match="whole number of microseconds") as caught:
        parse_duration(text)
    assert not isinstance(caught.value, JobError)


def test_a_file_may_not_say_more_than_fits() -> None:
    """Times are 64 bits wide inside."""
    with pytest.raises(ValueError, match="longer than"):
        parse_duration("9999999999999 days")
