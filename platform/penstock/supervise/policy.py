"""Read how patient a supervisor is from a job's settings."""

from __future__ import annotations

from penstock.config.settings import Settings
from penstock.runtime.process.signals import GRACE
from penstock.supervise.machine import Policy

__all__ = ["policy_of"]

_LEAST_SILENCE = 10.0
"""Seconds; a heartbeat is due every two, and its way through storage that others use as well may take some."""
_SPARE = 15.0
"""Seconds beyond its deadline that a driver has to notice a stop and to leave Spark."""


def policy_of(settings: Settings) -> Policy:
    """Return the policy of `[supervise]`; a driver may take its own deadline to stop, and a little more."""
    own = settings.supervise
    return Policy(
        backoff=own.backoff.micros,
        backoff_max=max(own.backoff.micros, own.backoff_max.micros),
        failures=own.failures_per_hour,
        healthy_after=own.healthy_after.micros,
        deadline=own.progress_within.micros,
        start_within=own.start_within.micros,
        stop_within=int((settings.run.deadline.seconds + GRACE + _SPARE) * 1_000_000),
        silent=int(max(settings.run.takeover_after.seconds, _LEAST_SILENCE) * 1_000_000),
    )
