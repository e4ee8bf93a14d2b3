"""Check the numbers that estimators and limits are given, and read them as they are written. Pure."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isfinite
from numbers import Real

from penstock.errors import ConfigError

__all__ = ["at_least", "exact", "fraction_of_one", "positive"]


def positive(name: str, value: object) -> float:
    """Return a finite number above 0; raises ConfigError."""
    number = _finite(name, value)
    if number <= 0:
        raise ConfigError(f"{name} is above 0, found {value!r}")
    return number


def at_least(name: str, value: object, least: float) -> float:
    """Return a finite number that is not below `least`; raises ConfigError."""
    number = _finite(name, value)
    if number < least:
        raise ConfigError(f"{name} is {least:g} or more, found {value!r}")
    return number


def fraction_of_one(name: str, value: object) -> float:
    """Return a number above 0, and at most 1; raises ConfigError."""
    number = positive(name, value)
    if number > 1:
        raise ConfigError(f"{name} is at most 1, found {value!r}")
    return number


def exact(number: float | Fraction) -> Fraction:
    """Return a number as it is written: 0.7 is seven tenths, though no double is.

    Ten times 0.7 rows are seven rows, which a product of doubles may miss by one.
    """
    if isinstance(number, int | Fraction):
        return Fraction(number)
    return Fraction(Decimal(str(float(number))))


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{name} is a number, found {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ConfigError(f"{name} is larger than a double holds") from None
    if not isfinite(number):
        raise ConfigError(f"{name} is a finite number, found {value!r}")
    return number
