"""Choose how often a data checkpoint pays (DESIGN 5). Pure: all that was measured is given. Seconds and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Interval", "Measured", "auto_interval", "daly"]

LEAST = 60.0
"""No data checkpoint follows another sooner, where the interval is chosen."""
SHARE = 0.1
"""The most of the time that making them may take."""
_PRIOR = 86_400.0
"""One failure a day is supposed before any is seen."""
_GUESSED_RATE = 50e6
"""Bytes a second at which state is read and written, supposed before it was measured."""
_TELLING = 2**25
"""Bytes from which a data checkpoint tells how fast that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of a job: bytes of state, seconds and bytes of the last data checkpoint, both None before the first.

    `age` is how long the job exists, `starts` how many drivers it has had: all but the first are counted as failures,
    though some were stopped by a person. `growth` is the bytes of segments that batches write in a second.
    """

    state: int
    cost: float | None
    bytes: int | None
    age: float
    starts: int
    growth: float


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval and why it is that, in words for an operator."""

    seconds: float
    why: str


def daly(cost: float, mtbf: float) -> float:
    """Return the interval between checkpoints that loses least time, all in seconds.

    Young's first-order optimum, sqrt(2 C M) (CACM 1974), with the higher order of Daly (FGCS 2006, equation 37).

    >>> round(daly(1.0, 86_400.0))
    415
    """
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def auto_interval(measured: Measured, recover_within: float) -> Interval:
    """Return the optimum, cut so that what was written since is read back within `recover_within`, and not too short.

    A restart reads the base and the later segments, so the longer the interval, the more there is to read.
    """
    # Of little state the cost is that of a process and a table, and says nothing of how fast bytes are read.
    is_measured = measured.cost is not None and measured.bytes is not None and measured.bytes >= _TELLING
    rate = measured.bytes / measured.cost if is_measured and measured.bytes and measured.cost else _GUESSED_RATE
    cost = 1.0 + measured.state / rate if measured.cost is None else measured.cost
    mtbf = (measured.age + _PRIOR) / max(1, measured.starts)
    best = daly(cost, mtbf)
    reason = f"a data checkpoint of {cost:.1f} s and a failure in {mtbf / 3600:.1f} h make {best:.0f} s the optimum"
    if measured.growth > 0 and best > (bound := recover_within * rate / measured.growth):
        best, reason = (
            bound,
            f"{reason}; {bound:.0f} s, so that a restart reads what came since in {recover_within:.0f} s",
        )
    least = max(LEAST, cost / SHARE)
    if best < least:
        best, reason = least, f"{reason}; {least:.0f} s, so that they take at most {SHARE:.0%} of the time"
    return Interval(best, reason)
