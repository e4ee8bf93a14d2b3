"""Clocks, injected everywhere, so that a test can set the time."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["END_OF_TIME", "Clock", "ManualClock", "SystemClock"]

END_OF_TIME = 2**63 - 1
"""The watermark of what has ended, microseconds; no row is later."""


class Clock(Protocol):
    """Give wall time for batch times, and monotonic time for everything that waits."""

    def wall(self) -> int:
        """Return microseconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never moves backwards."""

    def sleep(self, seconds: float) -> None:
        """Wait a little, for something to turn up."""

    def sleep_until(self, wall: int) -> None:
        """Wait for a tick, in microseconds since 1970."""


class SystemClock:
    """Ask the machine."""

    def wall(self) -> int:
        """Return microseconds since 1970, UTC."""
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        """Return seconds of a clock that never moves backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait a little."""
        time.sleep(seconds)

    def sleep_until(self, wall: int) -> None:
        """Wait for a tick; short naps, so that a signal is heard and a clock set back does not hang the job."""
        while (left := wall - self.wall()) > 0:
            time.sleep(min(left / 1_000_000, 0.1))


class ManualClock(SystemClock):
    """A clock that moves only when a test sets it, or the driver waits for a tick; polling does not move it.

    Its monotonic seconds are real: how long something took is not for a test to say.
    """

    def __init__(self, wall: int = 0) -> None:
        self.now = wall

    def wall(self) -> int:
        """Return the microseconds it was set to."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Return at once."""

    def sleep_until(self, wall: int) -> None:
        """Move on to the tick."""
        self.now = max(self.now, wall)
