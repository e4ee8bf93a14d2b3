"""Timeouts, which set the state TTL of keys, and the clocks of timers (SEMANTICS 7.2, 7.8)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.graph.durations import Duration, duration_micros
from penstock.graph.source_location import job_error

__all__ = ["BATCH", "EVENT", "NEVER", "Timeout", "TimerClock", "event_time", "idle", "idle_micros"]


class TimerClock(Enum):
    """Name a clock: the watermark of the step, or the time of the batch."""

    EVENT = "event"
    BATCH = "batch"


EVENT = TimerClock.EVENT
BATCH = TimerClock.BATCH


@dataclass(frozen=True, slots=True)
class Timeout:
    """A key's timeout: so many microseconds of batch time without a row, or a deadline in event time.

    `idle(minutes(5)) | event_time()` is both, whichever comes first.
    """

    idle: int | None = None
    event_time: bool = False

    def __or__(self, other: object) -> Timeout:
        """Return the timeout that has both."""
        if not isinstance(other, Timeout):
            return NotImplemented
        if self.idle is not None and other.idle is not None:
            raise job_error("a timeout has one idle(…), and this has two")
        return Timeout(
            idle=other.idle if self.idle is None else self.idle, event_time=self.event_time or other.event_time
        )


NEVER = Timeout()


def idle(duration: Duration) -> Timeout:
    """Forget a key in the first batch whose time is later than that of its last row's batch + duration, strictly."""
    return Timeout(idle=duration_micros(duration, "the duration of idle", least=1))


def event_time() -> Timeout:
    """Forget a key when the watermark is past the deadline that the function has set with `state.set_deadline`."""
    return Timeout(event_time=True)


def idle_micros(ttl: object, where: str) -> int:
    """Return a TTL that is a duration or `idle(…)` in microseconds; refuse others, with `where` as their name."""
    if isinstance(ttl, Timeout):
        if ttl.idle is None or ttl.event_time:
            raise job_error(f"{where} is a time without rows: write idle(hours(1))")
        return ttl.idle
    return duration_micros(ttl, where, least=1)
