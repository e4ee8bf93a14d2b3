"""Lengths of time and numbers of rows, as types of their own: a bare int in their place is refused."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral

from penstock.graph.source_location import job_error

__all__ = [
    "Count",
    "Duration",
    "count",
    "days",
    "duration_micros",
    "hours",
    "micros",
    "millis",
    "minutes",
    "seconds",
    "whole_micros",
]

_LONGEST = 2**63 - 1
"""Times are 64 bits wide inside."""


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time as an integer number of microseconds; `seconds(5)` and its like make one."""

    micros: int

    def __post_init__(self) -> None:
        if not isinstance(self.micros, int) or isinstance(self.micros, bool):
            raise job_error(
                f"a Duration is a whole number of microseconds, not {self.micros!r}; write it as seconds(5)"
            )

    @property
    def seconds(self) -> float:
        """The same length in seconds."""
        return self.micros / 1_000_000

    def __str__(self) -> str:
        for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
            if self.micros and self.micros % size == 0:
                return f"{self.micros // size} {unit}"
        return f"{self.micros / 1_000:g} ms"


@dataclass(frozen=True, slots=True, order=True)
class Count:
    """A number of rows, at least one."""

    rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.rows, int) or isinstance(self.rows, bool) or self.rows < 1:
            raise job_error(f"count takes a number of rows from 1 on, not {self.rows!r}")


def whole_micros(number: float | Decimal, unit: int) -> int:
    """Return `number` units of `unit` microseconds each, taking the number as it is written: 0.07 is 7 hundredths.

    Nothing is rounded. Raises ValueError where the result is no whole number, or longer than 64 bits hold.
    """
    # A float says what it is by its shortest text; the double itself is a little off, and so is its product.
    written = Decimal(number) if isinstance(number, int) else Decimal(str(number))
    if not written.is_finite():
        raise ValueError("is not a finite number")
    if written and written.adjusted() > len(str(_LONGEST)):
        raise ValueError("is longer than 64 bits of microseconds hold")
    if written and written.adjusted() < -len(str(unit)):
        raise ValueError("is not a whole number of microseconds")
    exact = Fraction(written) * unit
    if exact.denominator != 1:
        raise ValueError("is not a whole number of microseconds")
    if abs(exact) > _LONGEST:
        raise ValueError("is longer than 64 bits of microseconds hold")
    return exact.numerator


def _duration(number: object, unit: int, name: str) -> Duration:
    if isinstance(number, Integral) and not isinstance(number, bool):
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise job_error(f"{name} takes a number, not {number!r}")
    try:
        exact = whole_micros(number, unit)
    except ValueError as why:
        # Python refuses to write out integers of thousands of digits.
        shown = number if not isinstance(number, int) or abs(number) < 10**30 else "…"
        raise job_error(f"{name}({shown}) {why}") from None
    return Duration(exact)


def micros(n: float | Decimal) -> Duration:
    """Return n microseconds."""
    return _duration(n, 1, "micros")


def millis(n: float | Decimal) -> Duration:
    """Return n milliseconds."""
    return _duration(n, 1_000, "millis")


def seconds(n: float | Decimal) -> Duration:
    """Return n seconds."""
    return _duration(n, 1_000_000, "seconds")


def minutes(n: float | Decimal) -> Duration:
    """Return n minutes."""
    return _duration(n, 60_000_000, "minutes")


def hours(n: float | Decimal) -> Duration:
    """Return n hours."""
    return _duration(n, 3_600_000_000, "hours")


def days(n: float | Decimal) -> Duration:
    """Return n days of 24 hours."""
    return _duration(n, 86_400_000_000, "days")


def count(n: int) -> Count:
    """Return a number of rows from 1 on, for windows and triggers that count."""
    return Count(n)


def duration_micros(value: object, what: str, *, least: int = 0) -> int:
    """Return the microseconds of a Duration, refusing anything else.

    `least` is the smallest number of microseconds allowed.
    """
    if not isinstance(value, Duration):
        number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        hint = (
            f", which has no unit: write seconds({value}) or another duration"
            if number
            else ": write a duration such as seconds(5)"
        )
        raise job_error(f"{what} is {value!r}{hint}")
    if value.micros < least:
        raise job_error(f"{what} is {value}, which is too short")
    return value.micros
