"""Batch times that a test asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.runtime.triggers import FixedInterval, Tick

__all__ = ["AskedFor", "micros", "said"]


@dataclass(frozen=True, slots=True)
class AskedFor(FixedInterval):
    """Run at multiples of the interval, but at the time `at` (microseconds since 1970) until a batch has had it."""

    at: int | None = None

    def next(self, zero: int, last: int | None, now: int) -> Tick:
        """Return the time that was asked for, or else the next multiple."""
        if self.at is None or (last is not None and last >= self.at):
            return FixedInterval.next(self, zero, last, now)
        behind = zero if last is None else last
        missed = (self.at - 1 - zero) // self.interval - (behind - zero) // self.interval
        return Tick(self.at, wait=max(0, self.at - now), merged=missed)


def micros(at: float | datetime) -> int:
    """Return seconds since 1970, or a datetime (without a zone: UTC), as microseconds."""
    if isinstance(at, datetime):
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return round(at * 1_000_000)


def said(at: int) -> str:
    """Write microseconds as seconds, with all digits that count."""
    return f"{at / 1_000_000:.6f}".rstrip("0").rstrip(".")
