"""Keep one rate, whatever batches cost."""

from __future__ import annotations

from penstock.rates.quantities import positive

__all__ = ["Constant"]


class Constant:
    """An estimator that always gives the same rate.

    Args:
        rate: Rows a second, above 0.

    Raises:
        ConfigError: The rate is not a finite number above 0.
    """

    def __init__(self, rate: float) -> None:
        self.rate = positive("rate", rate)

    def compute(self, time_ms: float, rows: int, processing_ms: float, scheduling_ms: float) -> float | None:
        """Return the rate."""
        return self.rate
