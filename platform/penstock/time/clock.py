"""Tell the time: injected everywhere, so that a test can say what time it is."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """Give wall time for batch times, and monotonic time for everything that waits."""

    def wall(self) -> int:
        """Return microseconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """Ask the machine."""

    def wall(self) -> int:
        """Return microseconds since 1970, UTC."""
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class ManualClock:
    """Stand still until told; sleeping moves it."""

    def __init__(self, wall: int = 0) -> None:
        self.now = wall

    def wall(self) -> int:
        """Return the microseconds it was set to."""
        return self.now

    def monotonic(self) -> float:
        """Return the same, in seconds."""
        return self.now / 1_000_000

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self.now += round(seconds * 1_000_000)
