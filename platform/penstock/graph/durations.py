"""Say how long and how many, as types of their own: a bare int where one is meant is refused."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import JobError
from penstock.graph.sites import user_site

__all__ = ["Count", "Duration", "count", "days", "duration_micros", "hours", "micros", "millis", "minutes", "seconds"]


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """Hold a length of time as an integer number of microseconds."""

    micros: int

    def __str__(self) -> str:
        for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
            if self.micros and self.micros % size == 0:
                return f"{self.micros // size} {unit}"
        return f"{self.micros / 1_000:g} ms"


@dataclass(frozen=True, slots=True, order=True)
class Count:
    """Hold a number of rows."""

    rows: int


def _whole(value: float, unit: int) -> Duration:
    exact = value * unit
    if exact != int(exact):
        raise JobError(f"{value!r} is not a whole number of microseconds", where=str(user_site()))
    return Duration(int(exact))


def micros(n: int) -> Duration:
    """Return n microseconds."""
    return _whole(n, 1)


def millis(n: float) -> Duration:
    """Return n milliseconds."""
    return _whole(n, 1_000)


def seconds(n: float) -> Duration:
    """Return n seconds."""
    return _whole(n, 1_000_000)


def minutes(n: float) -> Duration:
    """Return n minutes."""
    return _whole(n, 60_000_000)


def hours(n: float) -> Duration:
    """Return n hours."""
    return _whole(n, 3_600_000_000)


def days(n: float) -> Duration:
    """Return n days of 24 hours."""
    return _whole(n, 86_400_000_000)


def count(n: int) -> Count:
    """Return a number of rows, for windows and triggers that count."""
    return Count(n)


def duration_micros(value: object, what: str, *, least: int = 0) -> int:
    """Return the microseconds of a Duration, refusing anything else.

    `least` is the smallest number of microseconds allowed.
    """
    if not isinstance(value, Duration):
        raise JobError(
            f"{what} is {value!r}, which has no unit: write seconds({value!r}) or another duration",
            where=str(user_site()),
        )
    if value.micros < least:
        raise JobError(f"{what} is {value}, which is too short", where=str(user_site()))
    return value.micros
