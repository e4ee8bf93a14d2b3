"""Estimate a rate as the PID controller of Spark's DStreams does (SEMANTICS 8.1)."""

from __future__ import annotations

from math import inf, isfinite

from penstock.rates.quantities import at_least, positive

__all__ = ["PIDRateEstimator"]


class PIDRateEstimator:
    """A controller whose error is the last rate minus the rate at which the batch was processed.

    With `proportional` 1, which is the default, the new rate is that of the last batch, less what the rows that wait
    for it would take. It knows no fixed cost: where a batch of 100 rows takes 300 ms it sees 333 rows a second.

    Args:
        batch_interval_ms: The batch interval, milliseconds, above 0.
        proportional: The weight of the error, 0 or more.
        integral: The weight of the rows that wait because batches began late, 0 or more.
        derivative: The weight of the change of the error, 0 or more.
        min_rate: The least rate it gives, rows a second, above 0.

    Raises:
        ConfigError: An argument is out of range, or not a finite number.
    """

    def __init__(
        self,
        batch_interval_ms: float = 1000,
        proportional: float = 1.0,
        integral: float = 0.2,
        derivative: float = 0.0,
        min_rate: float = 100.0,
    ) -> None:
        self.batch_interval_ms = positive("batch_interval_ms", batch_interval_ms)
        self.proportional = at_least("proportional", proportional, 0)
        self.integral = at_least("integral", integral, 0)
        self.derivative = at_least("derivative", derivative, 0)
        self.min_rate = positive("min_rate", min_rate)
        self._time_ms: float | None = None
        self._rate = 0.0
        self._error = 0.0

    def compute(self, time_ms: float, rows: int, processing_ms: float, scheduling_ms: float) -> float | None:
        """Return the new rate; None for the first batch, without rows, and where no time has passed."""
        first = self._time_ms is None
        if not (rows > 0 and 0 < processing_ms < inf and (self._time_ms is None or time_ms > self._time_ms)):
            return None
        processed = rows / processing_ms * 1000
        error = 0.0 if first else self._rate - processed
        rate = processed if first else self._next(time_ms, processed, error, scheduling_ms)
        if not isfinite(rate):
            return None
        self._time_ms, self._rate, self._error = time_ms, rate, error
        return None if first else rate

    def _next(self, time_ms: float, processed: float, error: float, scheduling_ms: float) -> float:
        assert self._time_ms is not None
        historical = scheduling_ms * processed / self.batch_interval_ms
        change = (error - self._error) / ((time_ms - self._time_ms) / 1000)
        rate = self._rate - self.proportional * error - self.integral * historical - self.derivative * change
        return max(rate, self.min_rate)
