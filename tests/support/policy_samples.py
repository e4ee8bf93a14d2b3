"""How patient the supervisor of a test is, and who holds the log that it looks at."""

from __future__ import annotations

from penstock.supervise.machine import Policy
from penstock.supervise.stream import DriverSlot

SECOND = 1_000_000
POLICY = Policy(
    backoff=2 * SECOND,
    backoff_max=60 * SECOND,
    failures=3,
    healthy_after=100 * SECOND,
    deadline=30 * SECOND,
    start_within=50 * SECOND,
    stop_within=40 * SECOND,
    silent=10 * SECOND,
)


def holder(generation: int, handle: dict[str, object] | None = None) -> DriverSlot:
    """Return the holder in the newest Takeover of a log."""
    return DriverSlot(generation=generation, at=0, handle=handle, foreign=True)
