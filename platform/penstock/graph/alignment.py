"""Let sources wait for each other in event time (SEMANTICS 2.8)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.durations import Duration, duration_micros

__all__ = ["Align", "align"]


@dataclass(frozen=True, slots=True)
class Align:
    """How far a source may be ahead of the slowest one, in microseconds."""

    max_drift: int


def align(*, max_drift: Duration) -> Align:
    """Return the setting `align=` of a source: it is not read while its watermark is ahead by more than `max_drift`.

    It is ahead of the slowest other source that counts. That one may have had no row yet, and then any lead is too
    much; `idle_after` of that source bounds the wait.

    Raises:
        JobError: `max_drift` is no Duration.
    """
    return Align(duration_micros(max_drift, "max_drift= of align"))
