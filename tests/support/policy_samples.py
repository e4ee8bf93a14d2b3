"""How patient the supervisor of a test is, and who holds the log that it looks at."""

from __future__ import annotations

from types import SimpleNamespace

from penstock.config.schema import RunSection, SuperviseSection
from penstock.config.settings import Settings
from penstock.graph.durations import micros, seconds
from penstock.supervise.stream import DriverSlot

SECOND = 1_000_000
POLICY = SimpleNamespace(
    backoff=2 * SECOND,
    backoff_max=60 * SECOND,
    healthy_after=100 * SECOND,
    deadline=30 * SECOND,
    start_within=50 * SECOND,
    stop_within=40 * SECOND,
    silent=10 * SECOND,
)
"""What follows from the settings, in microseconds: a driver has 25 seconds beyond its deadline to stop."""
SETTINGS = Settings.model_construct(
    supervise=SuperviseSection.model_construct(
        backoff=micros(POLICY.backoff),
        backoff_max=micros(POLICY.backoff_max),
        failures_per_hour=3,
        healthy_after=micros(POLICY.healthy_after),
        progress_within=micros(POLICY.deadline),
        start_within=micros(POLICY.start_within),
    ),
    run=RunSection.model_construct(deadline=seconds(15), takeover_after=seconds(10)),
)


def holder(generation: int, handle: dict[str, object] | None = None) -> DriverSlot:
    """Return the holder in the newest Takeover of a log."""
    return DriverSlot(generation=generation, at=0, handle=handle, foreign=True)
