"""Describe which rows leave a global window before its function is called (SEMANTICS 6). What is evicted is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, runtime_checkable

from penstock.graph.declarations import checked_text
from penstock.graph.durations import Count, Duration, duration_micros
from penstock.graph.source_location import job_error
from penstock.graph.trigger_protocol import Moment

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Evictor",
    "KeepDelta",
    "KeepLast",
    "KeepNewest",
    "ReadyEvictor",
    "RowEvictor",
    "checked_evictor",
    "evictor_words",
]


class ReadyEvictor:
    """A plain value that jobs write, for all windows of a batch at once; `operators/triggers/evictions.py` applies it.

    Its text is what the job writes.
    """

    __slots__ = ()

    by_event_time: ClassVar[bool] = False
    """Whether it reads event times, which the rows must have then."""
    bounds: ClassVar[bool] = False
    """Whether a window has a bound after it, in rows or in time, however many rows come."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the Spark SQL expressions of numbers that it reads of the rows. The state keeps their values."""
        return ()


@dataclass(frozen=True, slots=True)
class KeepLast(ReadyEvictor):
    """Keep the last `rows` rows in the order of arrival."""

    rows: int

    bounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise JobError for what is no number of rows; `count(3)` is one too."""
        rows = self.rows.rows if isinstance(self.rows, Count) else self.rows
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
            raise job_error(f"KeepLast takes a number of rows from 1 on, not {rows!r}")
        object.__setattr__(self, "rows", rows)

    def __str__(self) -> str:
        return f"KeepLast({self.rows})"


@dataclass(frozen=True, slots=True)
class KeepNewest(ReadyEvictor):
    """Keep the rows whose event time is later than the latest one of the window - `within`."""

    within: Duration

    by_event_time: ClassVar[bool] = True
    bounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise JobError for what is no duration above 0."""
        duration_micros(self.within, "within of KeepNewest", least=1)

    def __str__(self) -> str:
        return f"KeepNewest({self.within})"


@dataclass(frozen=True, slots=True)
class KeepDelta(ReadyEvictor):
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

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the value."""
        return (self.value,)

    def __str__(self) -> str:
        return f"KeepDelta({self.value!r}, {self.threshold:g})"


@runtime_checkable
class RowEvictor(Protocol):
    """An evictor of the user's: an object that can be sent to tasks."""

    def keep(self, rows: pa.Table, at: Moment) -> pa.Array | Sequence[bool]:
        """Return for each row of a window that fires whether it stays: a boolean, never null.

        `rows` have the visible columns of the stream, and are in the order of arrival. `at` has no event time.
        """


Evictor: TypeAlias = ReadyEvictor | RowEvictor


def checked_evictor(evictor: object) -> Evictor:
    """Return an evictor, or refuse with the user's line what is none."""
    if isinstance(evictor, type) or not isinstance(evictor, ReadyEvictor | RowEvictor):
        raise job_error(f"evict takes an evictor such as KeepLast(10), or an object with keep, not {evictor!r}")
    return evictor


def evictor_words(evictor: Evictor) -> str:
    """Return an evictor as the job writes it; one of the user's by the name of its class."""
    return str(evictor) if isinstance(evictor, ReadyEvictor) else type(evictor).__qualname__
