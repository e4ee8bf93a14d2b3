"""How many rows arrive at a simulated source, as a function of time. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.errors import ConfigError
from penstock.rates.quantities import at_least

__all__ = ["Load"]


@dataclass(frozen=True, slots=True)
class Load:
    """Rows that arrive evenly between points in time; none before the first point and after the last.

    Attributes:
        seconds: The points, rising, in seconds.
        rows: How many rows have arrived by each point, from 0 on.
    """

    seconds: tuple[float, ...]
    rows: tuple[float, ...]

    @classmethod
    def of_steps(cls, steps: Iterable[tuple[float, float]]) -> Load:
        """Return a load by its steps, each a length in seconds and the rows a second in it; raises ConfigError."""
        seconds, rows = [0.0], [0.0]
        for length, rate in steps:
            at_least("the length of a step", length, 0)
            at_least("the rate of a step", rate, 0)
            if length:
                seconds.append(seconds[-1] + length)
                rows.append(rows[-1] + length * rate)
        return cls(tuple(seconds), tuple(rows))

    @classmethod
    def of_counts(cls, times: Sequence[float], counts: Sequence[int]) -> Load:
        """Return the load in which `counts[k]` rows arrive in the time up to `times[k]`, from the time before.

        The first count arrives in as much time as the second, at 0 at the earliest. Times that do not rise are a
        ConfigError, as is a single one.
        """
        if len(times) < 2 or any(after <= before for before, after in pairwise(times)):  # noqa: PLR2004 - two make a length
            raise ConfigError("a load needs two moments or more, and each after the one before")
        begin = times[0] - (times[1] - times[0])
        rows = [0.0]
        for count in counts:
            rows.append(rows[-1] + count)
        return cls((0.0, *(time - begin for time in times)), tuple(rows))

    @property
    def end(self) -> float:
        """Return the last point, in seconds."""
        return self.seconds[-1]

    def arrived(self, second: float) -> float:
        """Return how many rows have arrived by a moment."""
        return _between(self.seconds, self.rows, second)

    def arrival(self, row: float) -> float:
        """Return the earliest moment by which so many rows have arrived; the last point where they never do."""
        return _between(self.rows, self.seconds, row)


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return y at x of a line through points that do not fall; where xs are equal, the first y of them."""
    at = bisect_right(xs, x)
    while at > 0 and xs[at - 1] == x:
        at -= 1
    if at == 0:
        return ys[0]
    if at == len(xs):
        return ys[-1]
    (left, right), (low, high) = xs[at - 1 : at + 1], ys[at - 1 : at + 1]
    return min(max(low, low + (high - low) * (x - left) / (right - left)), high)  # a double may round beyond it
