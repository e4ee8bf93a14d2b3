"""Choose what holds for a run where a job's code and its configuration may both say something."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.config.schema import RatesSection
from penstock.config.settings import Settings
from penstock.errors import ConfigError, IntervalUnfit
from penstock.graph.graph import JobGraph
from penstock.graph.job import Job
from penstock.graph.schedules import AUTO, Schedule
from penstock.rates import Constant, CostModel, PIDRateEstimator, RateEstimator
from penstock.runtime.driver.rate_control import RatePolicy
from penstock.time.triggers import AsFastAsPossible, FixedInterval, Trigger

__all__ = ["choose_rates", "choose_schedule", "choose_trigger"]

Chosen = TypeVar("Chosen")


def choose_trigger(job: Job, settings: Settings) -> Trigger:
    """Return when batches run: as the job's code says, else its configuration, else as fast as possible.

    Raises ConfigError at the trigger's line where code and configuration both say something, and not the same.
    Raises IntervalUnfit for an interval that a step cannot go by, or that may adapt where it must not (SEMANTICS 4.1).
    """
    graph = job.graph()
    trigger = _trigger(graph.interval, settings)
    for step in graph.steps:
        step.spec.check_interval(step, trigger.interval)
        if step.spec.needs_ticks and settings.rates.longest_interval is not None:
            raise IntervalUnfit(
                f"step {step.name!r} goes by batch times, so the interval cannot adapt, and `longest_interval` is "
                f"{settings.rates.longest_interval}",
                where=settings.where("rates", "longest_interval"),
            )
    return trigger


def _trigger(interval: int | None, settings: Settings) -> Trigger:
    """Return the trigger that code and configuration agree on; `interval` is that of the code."""
    if interval is None:
        return settings.run.trigger or AsFastAsPossible()
    says = f"Job(interval=…) of {interval / 1_000_000:g} s"
    return _agreed(FixedInterval(interval), says, settings, "run", "trigger")


def choose_rates(settings: Settings) -> RatePolicy:
    """Return how the rates of batches come about; raises ConfigError for a constant rate that is none."""
    rates = settings.rates
    make: Callable[[float], RateEstimator] | None = None
    match rates.estimator:
        case "cost_model":
            make = partial(_cost_model, rates)
        case "pid":
            gains = {"proportional": rates.proportional, "integral": rates.integral, "derivative": rates.derivative}
            make = partial(PIDRateEstimator, **gains, min_rate=rates.min_rate)
        case "constant":
            rate = rates.rate
            if rate is None:
                raise ConfigError("the constant estimator needs a `rate`", where=settings.where("rates", "estimator"))
            make = lambda _interval_ms: Constant(rate)  # noqa: E731 - as the others, of the interval
    return RatePolicy(
        estimator=make,
        initial_rate=rates.rate if rates.estimator == "constant" else rates.initial_rate,
        first_batch=None if rates.first_batch == "unbounded" else float(rates.first_batch),
        least_per_partition=rates.min_rate_per_partition,
        target=rates.target.micros,
    )


def _cost_model(rates: RatesSection, interval_ms: float) -> CostModel:
    """Return a cost model for an interval; a longest one that is shorter than it lengthens none."""
    longest = None if rates.longest_interval is None else max(interval_ms, rates.longest_interval.micros / 1_000)
    return CostModel(interval_ms, headroom=rates.headroom, min_rate=rates.min_rate, longest_interval_ms=longest)


def choose_schedule(graph: JobGraph, settings: Settings) -> Schedule:
    """Return how often data checkpoints are made: as the job's code says, else its configuration, else `AUTO`.

    Raises ConfigError where code and configuration both say something, and not the same.
    """
    if graph.checkpoints is None:
        return settings.checkpoint.every or AUTO
    return _agreed(graph.checkpoints, "how often data checkpoints are made", settings, "checkpoint", "every")


def _agreed(coded: Chosen, says: str, settings: Settings, section: str, key: str) -> Chosen:
    """Return what the job's code says, unless its configuration says something else."""
    if getattr(getattr(settings, section), key) not in (None, coded):
        raise ConfigError(
            f"the job's code says {says}, and the configuration says something else; keep one of them",
            where=settings.where(section, key),
        )
    return coded
