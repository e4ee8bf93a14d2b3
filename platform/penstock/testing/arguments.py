"""Batch times that a test asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from penstock.errors import JobError
from penstock.graph.source_location import user_site
from penstock.runtime.driver.loop import Driver
from penstock.time.triggers import AsFastAsPossible, FixedInterval, Tick

__all__ = ["AskedFor", "Untimed", "checked_time", "micros", "said"]


@dataclass(frozen=True, slots=True)
class AskedFor(FixedInterval):
    """Take multiples of the interval, but the time `at` (microseconds since 1970) until a batch has had it."""

    at: int | None = None

    def next(self, zero: int, last: int | None, now: int) -> Tick:
        """Return the time that the test sets, or else the next multiple."""
        if self.at is None or (last is not None and last >= self.at):
            return FixedInterval.next(self, zero, last, now)
        behind = zero if last is None else last
        missed = (self.at - 1 - zero) // self.interval - (behind - zero) // self.interval
        return Tick(self.at, wait=max(0, self.at - now), merged=missed)


@dataclass(frozen=True, slots=True)
class Untimed(AsFastAsPossible):
    """Run a job without an interval: as fast as possible, at the times that the harness's clock gives (SEMANTICS 1.4).

    As in production no tick makes a batch due, and none is missed.
    """

    times: AskedFor

    def zero(self, now: int) -> int:
        """Return the zero time."""
        return self.times.zero(now)

    def next(self, zero: int, last: int | None, now: int) -> Tick:
        """Return the next time of the clock."""
        return replace(self.times.next(zero, last, now), merged=0)


def micros(at: float | datetime) -> int:
    """Return seconds since 1970, or a datetime (without a zone: UTC), as microseconds."""
    if isinstance(at, datetime):
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return round(at * 1_000_000)


def said(at: int) -> str:
    """Write microseconds as seconds, with all digits that count."""
    return f"{at / 1_000_000:.6f}".rstrip("0").rstrip(".")


def checked_time(at: int, driver: Driver, zero: int, interval: int | None) -> int:
    """Return the batch time that a test sets; raises JobError where the driver cannot have it.

    `zero` is the zero time of a job that has had no batch, `interval` that of the job, None where it has none.
    """
    zero = zero if driver.zero is None else driver.zero
    least, name = (zero, "zero time") if driver.last_time is None else (driver.last_time, "last one")
    if at <= least:
        problem = f"the batch time {said(at)} is not later than the {name}, {said(least)}"
        raise JobError(problem, where=str(user_site()))
    if interval is not None and (at - zero) % interval:
        raise JobError(
            f"the batch time {said(at)} is not the zero time {said(zero)} plus a multiple of the job's interval, "
            f"{said(interval)} s",
            where=str(user_site()),
        )
    return at
