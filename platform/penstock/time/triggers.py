"""Decide when the next batch runs and what its batch time is (SEMANTICS 1.1, 1.3, 1.4). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["AsFastAsPossible", "FixedInterval", "Tick", "Trigger", "multiple_from"]


def multiple_from(time: int, every: int, zero: int) -> int:
    """Return the first multiple of `every`, counted from `zero`, that is not before a batch time.

    >>> multiple_from(11, 5, zero=0), multiple_from(15, 5, zero=0), multiple_from(15, 5, zero=1)
    (15, 15, 16)
    """
    return zero - (zero - time) // every * every


@dataclass(frozen=True, slots=True)
class Tick:
    """Name a batch time, how long to wait for it (microseconds), and how many missed ticks it stands for."""

    time: int
    wait: int = 0
    merged: int = 0


@dataclass(frozen=True, slots=True)
class FixedInterval:
    """Run at multiples of `interval` microseconds from the job's zero time."""

    interval: int
    start: int | None = None

    def zero(self, now: int) -> int:
        """Return the zero time of a job that starts now: `start`, or now floored to the interval."""
        return now - now % self.interval if self.start is None else self.start

    def next(self, zero: int, last: int | None, now: int) -> Tick:
        """Return the next tick after batch time `last`; ticks that were missed are merged into the newest."""
        behind = zero if last is None else last
        # The last time may be no multiple: it comes from another interval, or was asked for by a test.
        following = behind + self.interval - (behind - zero) % self.interval
        newest = zero + (now - zero) // self.interval * self.interval
        if newest <= following:
            return Tick(following, wait=max(0, following - now))
        return Tick(newest, merged=(newest - following) // self.interval)


@dataclass(frozen=True, slots=True)
class AsFastAsPossible:
    """Run whenever there is something to do, at wall time, strictly increasing."""

    interval: ClassVar[None] = None

    def zero(self, now: int) -> int:
        """Return the start."""
        return now

    def next(self, zero: int, last: int | None, now: int) -> Tick:
        """Return wall time, or just after the last batch where the wall clock was set back (F45)."""
        return Tick(now if last is None else max(now, last + 1))


Trigger = FixedInterval | AsFastAsPossible
