"""State what a job tells the listeners of its code (`Job.listen`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.graph.source_location import job_error

__all__ = ["BATCH_EVENTS", "EVENTS", "RECEIVER_EVENTS", "BatchInfo", "ReceiverInfo", "checked_listener"]

BATCH_EVENTS = ("on_batch_submitted", "on_batch_started", "on_batch_completed")
"""The methods that are called, in this order for each batch, each with a BatchInfo."""
RECEIVER_EVENTS = ("on_receiver_started", "on_receiver_error", "on_receiver_stopped")
"""The methods that are called between batches, each with a ReceiverInfo."""
EVENTS = (*BATCH_EVENTS, *RECEIVER_EVENTS)
"""All methods that are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """A batch as far as it has come. Times are aware, in UTC.

    Attributes:
        batch: Its id.
        time: Its batch time.
        submitted: When it was planned.
        started: When its computation began; None before.
        completed: When its sinks had published it; None before.
        rows: The rows that it has read, by source; None before it is completed, as only its tasks count them.
        output: The rows that it has published, by sink; None before it is completed.
        late_by: Seconds after its batch time at which it was planned: the scheduling delay of `penstock status`. None
            before it is completed, as what follows.
        waiting: The rows that waited at live sources as it was planned, those that it has read among them; None without
            a live source.
        gc_share: The part of its tasks' time in which Java collected garbage, from 0 to 1; None where it is unknown.
        spilled_bytes: The memory that its tasks have moved to disk, for want of more; None where it is unknown.
        cores: The cores that the job needs for what arrives at its live sources, by the newest batches of this driver;
            None where they tell too little.
    """

    batch: int
    time: datetime
    submitted: datetime
    started: datetime | None = None
    completed: datetime | None = None
    rows: Mapping[str, int] | None = None
    output: Mapping[str, int] | None = None
    late_by: float | None = None
    waiting: int | None = None
    gc_share: float | None = None
    spilled_bytes: int | None = None
    cores: int | None = None

    @property
    def scheduling_delay(self) -> float | None:
        """Seconds from when it was planned until its computation began; None before."""
        return None if self.started is None else (self.started - self.submitted).total_seconds()

    @property
    def processing_delay(self) -> float | None:
        """Seconds from when its computation began until its sinks had published it; None before."""
        if self.started is None or self.completed is None:
            return None
        return (self.completed - self.started).total_seconds()

    @property
    def total_delay(self) -> float | None:
        """Seconds from when it was planned until its sinks had published it; None before."""
        return None if self.completed is None else (self.completed - self.submitted).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverInfo:
    """A receiver when something has happened to it.

    Attributes:
        source: The name of its source in the job.
        receiver: Its number among those of the source, from 0.
        epoch: The number of its newest start, which no other start of it has; None before the first.
        time: When the event was noted, aware, in UTC.
        restarts: How often it was started again in this run of the driver.
        error: Its newest error in words; None before the first.
    """

    source: str
    receiver: int
    epoch: int | None
    time: datetime
    restarts: int = 0
    error: str | None = None


def checked_listener(listener: Any) -> Any:
    """Return a listener, or refuse what has none of the methods that are called."""
    if isinstance(listener, type):
        raise job_error(f"listen takes an object, not the class {listener.__name__} itself")
    if not any(callable(getattr(listener, event, None)) for event in EVENTS):
        raise job_error(f"listen takes an object with {', '.join(EVENTS[:-1])} or {EVENTS[-1]}, not {listener!r:.80}")
    return listener
