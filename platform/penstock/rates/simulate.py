"""Run an estimator on a simulated plant: a job with costs, noise and pauses, and rows that arrive. Pure.

Ticks are those of `penstock.time.triggers`, and rows are divided as `partition_limits` does: what the driver uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import exp
from random import Random

from penstock.errors import ConfigError
from penstock.rates.cost_model import CostModel
from penstock.rates.division import partition_bounds, partition_limits
from penstock.rates.estimator import Measurement, RateEstimator, estimated, learned
from penstock.rates.load import Load
from penstock.rates.quantities import at_least, positive
from penstock.time.triggers import FixedInterval

__all__ = ["Interval", "Plant", "SimulatedBatch", "Simulation", "simulate"]

_MICROS = 1_000_000


class Interval(Enum):
    """Whether the batch interval follows the advice of the cost model, as in a driver."""

    FIXED = "fixed"
    ADAPTIVE = "adaptive"
    """Rates are for the interval that the model advises; ticks stay those of the job, and merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """What batches cost, and what arrives.

    Attributes:
        load: The rows that arrive.
        fixed_ms: What a batch costs whatever it reads, milliseconds.
        row_ms: What each row adds, milliseconds.
        noise: The standard deviation of the logarithm of a batch's time: 0.05 is about 5 percent.
        pause_chance: The probability that the garbage collector pauses a batch, from 0 to 1.
        pause_ms: How long such a pause is, milliseconds.
        shares: The part of the rows that each source partition gets; they need not sum up to 1.
    """

    load: Load
    fixed_ms: float = 600.0
    row_ms: float = 0.05
    noise: float = 0.05
    pause_chance: float = 0.0
    pause_ms: float = 1_500.0
    shares: Sequence[float] = field(default=(4, 2, 1, 1))

    def __post_init__(self) -> None:
        for name in ("fixed_ms", "row_ms", "noise", "pause_chance", "pause_ms"):
            at_least(name, getattr(self, name), 0)
        if self.pause_chance > 1:
            raise ConfigError(f"pause_chance is at most 1, found {self.pause_chance}")
        for share in self.shares:
            positive("the share of a partition", share)

    def batch_ms(self, rows: int, random: Random) -> float:
        """Return how long a batch of so many rows takes, at least a hundredth of a millisecond."""
        pause = self.pause_ms if random.random() < self.pause_chance else 0.0
        return max(0.01, (self.fixed_ms + self.row_ms * rows) * exp(random.gauss(0, self.noise)) + pause)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBatch:
    """One batch of a simulation.

    Attributes:
        batch: Its number, from 0.
        second: When it began, in seconds.
        rows: The rows that it read.
        rate: The rate in force, rows a second; None before the first estimate, and with no estimator.
        late_ms: How much later than its batch time it began, milliseconds: the scheduling delay of estimators.
        delay_ms: How much longer than the interval its oldest row had waited when it began, milliseconds. A job that
            reads all that waits at each tick has none.
        batch_ms: How long it took, milliseconds.
        left: The rows that waited when it began, and that it did not read.
        interval_ms: The batch interval in force, milliseconds.
    """

    batch: int
    second: float
    rows: int
    rate: float | None
    late_ms: float
    delay_ms: float
    batch_ms: float
    left: int
    interval_ms: float

    @property
    def end(self) -> float:
        """Return when it was committed, in seconds."""
        return self.second + self.batch_ms / 1000


@dataclass(frozen=True, slots=True)
class Simulation:
    """The batches of a run, and what they come to."""

    batches: tuple[SimulatedBatch, ...]

    def caught_up(self, after: float) -> float | None:
        """Return the seconds from a moment until a batch was committed that left no rows; None where none was."""
        return next((batch.end - after for batch in self.batches if batch.second >= after and batch.left == 0), None)

    def worst_delay_ms(self, after: float = 0.0) -> float:
        """Return the longest delay of rows, in batches that began at a moment or later, milliseconds."""
        return max((batch.delay_ms for batch in self.batches if batch.second >= after), default=0.0)


def simulate(
    plant: Plant,
    estimator: RateEstimator | None,
    *,
    interval_ms: float = 1000,
    adapts: Interval = Interval.FIXED,
    first_rate: float = 10_000,
    max_rate: float | None = None,
    min_rate: float = 1,
    seconds: float | None = None,
    seed: int = 0,
) -> Simulation:
    """Return the batches of a job on a plant until a moment.

    Args:
        plant: What batches cost, and what arrives.
        estimator: A new estimator, whose rate after a batch holds from the next batch on; None for
            no limit after the first batch.
        interval_ms: The job's batch interval, milliseconds.
        adapts: Whether the interval follows the advice of a CostModel.
        first_rate: The most rows a second of each partition before the first estimate.
        max_rate: The most rows a second of each partition; None for no cap.
        min_rate: The rows a second that each partition may have.
        seconds: When to end; None for the end of the load.
        seed: The seed of noise and pauses.

    Raises:
        ConfigError: An argument is out of range.
    """
    positive("interval_ms", interval_ms)
    positive("first_rate", first_rate)
    until = plant.load.end if seconds is None else positive("seconds", seconds)
    source, random = _Source(plant), Random(seed)  # noqa: S311 - noise, and no secret
    ticks = FixedInterval(max(1, round(interval_ms * 1000)))
    micros = ticks.interval
    rate: float | None = None
    batches: list[SimulatedBatch] = []
    now, last = 0, None
    while now < until * _MICROS:
        tick = ticks.next(0, last, now)
        begin = max(now, tick.time)
        second = begin / _MICROS
        lag = source.lag(second)
        if not any(lag.values()):
            now = begin + ticks.interval
            continue
        if rate is not None:
            limits = partition_limits(rate, lag, seconds=micros / _MICROS, max_rate=max_rate, min_rate=min_rate)
        else:  # each partition has a cap of its own, and all together have none
            unlimited = estimator is None and batches
            cap = max_rate if unlimited else min(first_rate, max_rate or first_rate)
            _, most = partition_bounds(micros / _MICROS, max_rate=cap, min_rate=min_rate)
            limits = lag if most is None else dict.fromkeys(lag, max(1, most))
        oldest = source.oldest(lag)
        rows = source.read(lag, limits)
        took = plant.batch_ms(rows, random)
        late = (begin - tick.time) / 1000
        batches.append(
            SimulatedBatch(
                batch=len(batches),
                second=second,
                rows=rows,
                rate=rate,
                late_ms=late,
                delay_ms=max(0.0, 1000 * (second - oldest) - micros / 1000),
                batch_ms=took,
                left=sum(lag.values()) - rows,
                interval_ms=micros / 1000,
            )
        )
        last, now = tick.time, begin + max(1, round(took * 1000))
        if estimator is not None:
            batch = Measurement(now / 1000, rows, took, late)
            follows = adapts is Interval.ADAPTIVE
            newer = learned(estimator, batch) if follows else estimated(estimator, batch)
            if isinstance(estimator, CostModel) and follows:
                micros = round(estimator.interval_ms * 1000)
            rate = rate if newer is None else newer
    return Simulation(tuple(batches))


class _Source:
    """The partitions of a simulated source, and how far each was read."""

    def __init__(self, plant: Plant) -> None:
        whole = sum(plant.shares)
        self._load = plant.load
        self._shares = [share / whole for share in plant.shares]
        self._next = [0] * len(self._shares)

    def lag(self, second: float) -> dict[int, int]:
        """Return the rows that wait in each partition."""
        arrived = self._load.arrived(second)
        return {at: int(arrived * share) - self._next[at] for at, share in enumerate(self._shares)}

    def oldest(self, lag: dict[int, int]) -> float:
        """Return when the row arrived that has waited longest, in seconds."""
        return min(
            self._load.arrival((self._next[at] + 1) / self._shares[at]) for at, waiting in lag.items() if waiting
        )

    def read(self, lag: dict[int, int], limits: dict[int, int]) -> int:
        """Read as far as the limits allow; return the rows."""
        read = {at: min(waiting, limits[at]) for at, waiting in lag.items()}
        for at, rows in read.items():
            self._next[at] += rows
        return sum(read.values())
