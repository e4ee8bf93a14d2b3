"""Advise how many cores a job needs, by the time that its tasks take (SEMANTICS 8, issue 19). Pure.

The method is that of DS2: V. Kalavri, J. Liagouris, M. Hoffmann, D. Dimitrova, M. Forshaw, T. Roscoe, "Three steps is
all you need: fast, accurate, automatic scaling decisions for distributed streaming dataflows", OSDI 2018. The true
processing rate of an instance is its rows over the time in which it was busy, without the time in which it waited.
The instances needed are the rate that is offered over that rate, rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

__all__ = ["BatchLoad", "CoreAdvice", "cores_needed"]

_LEAST_SECONDS = 1.0
"""What arrived in less time says little of a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLoad:
    """The load of a batch.

    Attributes:
        time: Its batch time, microseconds since 1970.
        rows: The rows that it has read.
        waiting: The rows that waited as it was planned, those that it has read among them.
        task_ms: The time of its tasks, summed over cores, milliseconds.
    """

    time: int
    rows: int
    waiting: float
    task_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreAdvice:
    """The cores that a job needs to keep up with what arrives.

    Attributes:
        cores: The number of cores, 1 or more.
        offered: Rows a second that arrived.
        per_core: Rows a second that one busy core processes: the true processing rate.
    """

    cores: int
    offered: float
    per_core: float


def cores_needed(batches: Sequence[BatchLoad]) -> CoreAdvice | None:
    """Return the advice for batches of one run, oldest first; None where they tell too little.

    Rows arrive between the plans of two batches: those that wait for the second, and had not waited for the first or
    were read by it. So a job that lags behind is offered more than it reads. The time of tasks includes what a batch
    costs whatever it reads, and waits for a broker, so the advice is rather too high than too low.
    More cores shorten neither the time of the driver nor a task that alone has most of the rows.
    """
    if len(batches) < 2:  # noqa: PLR2004 - two plans bound a time
        return None
    first, last = batches[0], batches[-1]
    seconds = (last.time - first.time) / 1_000_000
    rows, busy = sum(batch.rows for batch in batches), sum(batch.task_ms for batch in batches) / 1_000
    arrived = last.waiting - first.waiting + rows - last.rows
    if seconds < _LEAST_SECONDS or rows <= 0 or busy <= 0 or arrived < 0:
        return None
    offered, per_core = arrived / seconds, rows / busy
    return CoreAdvice(cores=max(1, ceil(offered / per_core - 1e-9)), offered=offered, per_core=per_core)
