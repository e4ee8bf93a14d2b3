"""State what every rate estimator promises (SEMANTICS 8.0).

An estimator of your own is one class with one method:

    class Half:
        def compute(self, time_ms, rows, processing_ms, scheduling_ms):
            return None if rows == 0 or processing_ms <= 0 else 500 * rows / processing_ms

`job.estimate_rate(lambda interval_ms: Half())` lets a job use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from penstock.rates.cost_model import CostModel

__all__ = ["REMEMBERED", "Measurement", "RateEstimator", "estimated", "learned", "replayed"]

REMEMBERED = 100
"""How many of the newest batches a driver feeds to an estimator at its start."""


class Measurement(NamedTuple):
    """What estimators learn of a committed batch: the arguments of `RateEstimator.compute`, and one of a cost model."""

    time_ms: float
    rows: int
    processing_ms: float
    scheduling_ms: float
    pause_ms: float = 0.0
    """The milliseconds that garbage collection and spilling took."""


@runtime_checkable
class RateEstimator(Protocol):
    """Say how many rows a second a source may give, by how long the batches so far took.

    The driver has one estimator for each run and source. One thread calls it, once for each batch, after its commit and
    in the order of batches. It reads no clock, draws no random number and keeps nothing outside itself: the same calls
    give the same answers.

    An estimator may keep what it has learnt, and none of it is in the checkpoint. A driver that starts makes a new
    estimator, and feeds it the last REMEMBERED batches of the log, oldest first, as `replayed` does. So an estimator
    may use no batch that is older, other than in a way that fades.
    """

    def compute(self, time_ms: float, rows: int, processing_ms: float, scheduling_ms: float) -> float | None:
        """Return the rows a second for all partitions of the source together, or None for no new estimate.

        The limit of the next batch is that rate times the seconds of the interval, divided among the partitions. After
        None the rate before stays in force. Before the first rate, `initial_rate` or the cap of first batches holds.
        A rate is finite and above 0. It does not raise: numbers that no batch can have give None.

        Args:
            time_ms: When the batch was finished, milliseconds since 1970. It rises strictly, also where a clock is set
                back; a call with a time that does not gives None in estimators that use the time.
            rows: The rows that the batch has read, 0 where only time made it due.
            processing_ms: From the begin of the batch to its commit, milliseconds.
            scheduling_ms: How much later than its batch time the batch began, milliseconds; 0 where it was on time.
        """


def estimated(estimator: RateEstimator, batch: Measurement) -> float | None:
    """Feed a batch to an estimator, and return what it computes. Only a cost model heeds pauses."""
    time_ms, rows, processing_ms, scheduling_ms, pause_ms = batch
    if isinstance(estimator, CostModel):
        return estimator.compute(time_ms, rows, processing_ms, scheduling_ms, pause_ms=pause_ms)
    return estimator.compute(time_ms, rows, processing_ms, scheduling_ms)


def learned(estimator: RateEstimator, batch: Measurement) -> float | None:
    """Feed a batch to an estimator, follow the advice of a cost model as a driver does, and return the new rate."""
    rate = estimated(estimator, batch)
    return rate if rate is None or not isinstance(estimator, CostModel) else estimator.adopt()


def replayed(estimator: RateEstimator, batches: Iterable[Measurement]) -> float | None:
    """Feed batches of the log, oldest first, to a new estimator; return the rate in force after them, None for none."""
    rate = None
    for batch in batches:
        newer = estimated(estimator, batch)
        rate = rate if newer is None else newer
    return rate
