"""Cut batches by the wall clock, or ahead of it where it was wrong for a while (F45, F76)."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from penstock.time.clock import Clock
from penstock.time.triggers import Trigger

__all__ = ["TickClock"]

log = structlog.get_logger()


@dataclass
class TickClock:
    """The time in microseconds by which a job's batches are cut.

    Without ticks it is the wall clock's: there batch times advance slowly until that has caught up. With ticks the
    driver would wait a day after one batch under a clock that was a day ahead, because batch times never decrease.
    After `patience` microseconds time continues from that batch instead, at the pace of the clock, until it has caught
    up.
    """

    patience: int
    ahead: int = 0
    _seen: int = 0

    def now(self, clock: Clock, trigger: Trigger, last: int | None) -> int:
        """Return the time, where `last` is that of the last batch."""
        wall = clock.wall()
        if last is None or wall >= last or trigger.interval is None:
            self.ahead = 0
        elif self.ahead and wall - self._seen > self.patience:
            self.ahead = last - wall  # set right in part: what it has caught up is no time that has passed
        elif last - (wall + self.ahead) > self.patience:
            self.ahead = last - wall
            log.warning("clock.behind", seconds=round(self.ahead / 1_000_000, 1), last_batch=last)
        self._seen = wall
        return wall + self.ahead
