"""Run a rate estimator of the user's, whose errors cost an estimate and no batch (SEMANTICS 8.0)."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any

import structlog

from penstock.errors import JobError, PenstockError
from penstock.graph.source_location import line_of
from penstock.rates import CostModel, RateEstimator

__all__ = ["OwnEstimator", "own_estimator"]

log = structlog.get_logger()


def own_estimator(make: Callable[[float], Any], interval_ms: float) -> RateEstimator:
    """Return the estimator that a job's code makes for a batch interval in milliseconds.

    A cost model stays what it is, because the driver takes its advice as well. A subclass is code of the user's like
    any other: its estimates count, and its advice does not.

    Raises:
        JobError: The function raises, or returns no estimator.
    """
    try:
        made = make(interval_ms)
    except PenstockError:
        raise
    except Exception as why:
        raise JobError(f"the rate estimator cannot be made: {why!r}", where=line_of(make)) from why
    if not callable(getattr(made, "compute", None)):
        raise JobError(f"the rate estimator is {made!r}, which has no method compute", where=line_of(make))
    return made if type(made) is CostModel else OwnEstimator(made)


class OwnEstimator:
    """An estimator of the user's: an error of it, or a number that is no rate, is logged and gives no new estimate."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def compute(self, time_ms: float, rows: int, processing_ms: float, scheduling_ms: float) -> float | None:
        """Return the rate above 0 that it gives, None for none."""
        try:
            rate = self.estimator.compute(time_ms, rows, processing_ms, scheduling_ms)
            if rate is None:
                return None
            if not isinstance(rate, bool) and isinstance(rate, Real) and isfinite(rate) and float(rate) > 0:
                return float(rate)
            self._failed(f"{rate!r} is no number of rows above 0")
        except Exception as why:  # noqa: BLE001 - the batch is committed, and no error of an estimator undoes that
            self._failed(repr(why))
        return None

    def _failed(self, error: str) -> None:
        kind = type(self.estimator)
        log.warning("rates.estimator_failed", estimator=f"{kind.__module__}.{kind.__qualname__}", error=error)
