"""How patient the supervisor of a test is."""

from __future__ import annotations

from penstock.supervise.machine import Policy

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
