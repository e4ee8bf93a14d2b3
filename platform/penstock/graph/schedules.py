"""Schedules of data checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.durations import Duration, duration_micros
from penstock.graph.source_location import job_error

__all__ = ["AUTO", "NEVER", "Auto", "EveryBatches", "EveryMicros", "Never", "Schedule", "checked_schedule"]


@dataclass(frozen=True, slots=True)
class EveryBatches:
    """Once in so many batches."""

    batches: int

    def __post_init__(self) -> None:
        if isinstance(self.batches, bool) or not isinstance(self.batches, int) or self.batches < 1:
            raise job_error(f"EveryBatches takes a whole number of at least 1, not {self.batches!r}")


@dataclass(frozen=True, slots=True)
class EveryMicros:
    """Once in so many microseconds of batch time."""

    micros: int


@dataclass(frozen=True, slots=True)
class Auto:
    """As often as pays, from what a data checkpoint costs and how often drivers fail."""


@dataclass(frozen=True, slots=True)
class Never:
    """Not at all: the state is kept in segments only."""


Schedule = EveryBatches | EveryMicros | Auto | Never
AUTO, NEVER = Auto(), Never()


def checked_schedule(every: Duration | EveryBatches | Auto | Never) -> Schedule:
    """Return what `Job.checkpoint(every=…)` was given; raises JobError for what says no interval."""
    if isinstance(every, EveryBatches | Auto | Never):
        return every
    return EveryMicros(duration_micros(every, "the interval of data checkpoints", least=1))
