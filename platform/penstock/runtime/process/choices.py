"""Choose what holds for a run where a job's code and its configuration may both say something."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.config.schema import RatesSection
from penstock.config.settings import Settings
from penstock.config.toml_reader import closest
from penstock.errors import ConfigError, IntervalUnfit
from penstock.graph.graph import JobGraph
from penstock.graph.job import Job
from penstock.graph.schedules import AUTO, Schedule
from penstock.rates import Constant, CostModel, PIDRateEstimator, RateEstimator
from penstock.runtime.driver.own_estimator import own_estimator
from penstock.runtime.driver.rate_control import RatePolicy
from penstock.runtime.process.minimum_rates import refuse_caps
from penstock.time.triggers import AsFastAsPossible, FixedInterval, Trigger

__all__ = ["choose_rates", "choose_schedule", "choose_trigger", "refuse_disagreement"]

Chosen = TypeVar("Chosen")


def refuse_disagreement(job: Job, settings: Settings) -> None:
    """Raise the error by which a run would refuse what code and configuration say together."""
    choose_trigger(job, settings)
    choose_rates(job.graph(), settings)
    choose_schedule(job.graph(), settings)


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


def choose_rates(graph: JobGraph, settings: Settings) -> RatePolicy:
    """Return how the rates of batches come about.

    Raises ConfigError for a constant rate that is none, and where code and configuration both name an estimator. So it
    does for a limit of rows a second below the least rate of the configuration, and for limits of an unknown source.
    """
    rates = settings.rates
    _refuse_unknown_sources(graph, settings)
    refuse_caps(graph, settings)
    constant = graph.estimator is None and rates.estimator == "constant"
    return RatePolicy(
        estimator=_estimator_of(settings) if graph.estimator is None else _own(graph.estimator, settings),
        initial_rate=rates.rate if constant else rates.initial_rate,
        first_batch=None if rates.first_batch == "unbounded" else float(rates.first_batch),
        least_per_partition=rates.min_rate_per_partition,
        target=rates.target.micros,
    )


def _refuse_unknown_sources(graph: JobGraph, settings: Settings) -> None:
    names = [node.name for node in graph.sources]
    for name in settings.limits.sources:
        if name not in names:
            raise ConfigError(
                f"the job has no source {name!r} to limit; {closest(name, names)}",
                where=settings.where("limits", f"sources.{name}"),
            )


def _own(make: Callable[[float], Any], settings: Settings) -> Callable[[float], RateEstimator]:
    """Return what makes the estimator of the job's code, where the configuration names none."""
    if (where := settings.where("rates", "estimator")) is not None:
        raise ConfigError("the job's code has a rate estimator, and so has the configuration; keep one", where=where)
    return partial(own_estimator, make)


def _estimator_of(settings: Settings) -> Callable[[float], RateEstimator] | None:
    """Return what makes the estimator that the configuration names, None for "off"."""
    rates = settings.rates
    match rates.estimator:
        case "cost_model":
            return partial(_cost_model, rates)
        case "pid":
            gains = {"proportional": rates.proportional, "integral": rates.integral, "derivative": rates.derivative}
            return partial(PIDRateEstimator, **gains, min_rate=rates.min_rate)
        case "constant":
            rate = rates.rate
            if rate is None:
                raise ConfigError("the constant estimator needs a `rate`", where=settings.where("rates", "estimator"))
            return lambda _interval_ms: Constant(rate)
        case "off":
            return None


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
