"""Describe which rows leave a global window before its function is called (SEMANTICS 6). What is evicted is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.graph.declarations import checked_text
from penstock.graph.durations import Count, Duration, duration_micros
from penstock.graph.source_location import job_error

__all__ = ["Evictor", "KeepDelta", "KeepLast", "KeepNewest", "checked_evictor"]


@dataclass(frozen=True, slots=True)
class KeepLast:
    """Keep the last `rows` rows in the order of arrival."""

    rows: int

    def __post_init__(self) -> None:
        """Raise JobError for what is no number of rows; `count(3)` is one too."""
        rows = self.rows.rows if isinstance(self.rows, Count) else self.rows
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
            raise job_error(f"KeepLast takes a number of rows from 1 on, not {rows!r}")
        object.__setattr__(self, "rows", rows)

    def __str__(self) -> str:
        return f"KeepLast({self.rows})"


@dataclass(frozen=True, slots=True)
class KeepNewest:
    """Keep the rows whose event time is later than the latest one of the window - `within`."""

    within: Duration

    def __post_init__(self) -> None:
        """Raise JobError for what is no duration above 0."""
        duration_micros(self.within, "within of KeepNewest", least=1)

    def __str__(self) -> str:
        return f"KeepNewest({self.within})"


@dataclass(frozen=True, slots=True)
class KeepDelta:
    """Keep the rows whose value differs from that of the last row by less than `threshold`.

    Values are compared as doubles. A row whose value is null stays, and is no last row.

    Args:
        value: A numeric column or Spark SQL expression.
        threshold: The difference from which on rows go, in either direction, above 0.
    """

    value: str
    threshold: float

    def __post_init__(self) -> None:
        """Raise JobError for a threshold that is no number above 0, and BadExpression for no expression."""
        checked_text(self.value, "value", "KeepDelta")
        number = self.threshold
        if isinstance(number, bool) or not isinstance(number, int | float) or not number > 0:
            raise job_error(f"the threshold of KeepDelta is {number!r}, not a number above 0")

    def __str__(self) -> str:
        return f"KeepDelta({self.value!r}, {self.threshold:g})"


Evictor: TypeAlias = KeepLast | KeepNewest | KeepDelta


def checked_evictor(evictor: object) -> Evictor:
    """Return an evictor, or refuse with the user's line what is none."""
    if not isinstance(evictor, KeepLast | KeepNewest | KeepDelta):
        raise job_error(f"evict takes an evictor such as KeepLast(10), not {evictor!r}")
    return evictor
