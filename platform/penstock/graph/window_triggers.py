"""The ready-made triggers of a global window: by rows, by values, by time (SEMANTICS 6)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.declarations import checked_text
from penstock.graph.durations import Count, Duration, duration_micros
from penstock.graph.source_location import job_error
from penstock.graph.timeouts import BATCH, EVENT, TimerClock
from penstock.graph.trigger_protocol import Trigger

__all__ = ["AfterCount", "AfterDelta", "AfterEventTime", "AfterProcessingTime", "AtEnd", "Every", "Never"]


@dataclass(frozen=True, slots=True)
class AfterCount(Trigger):
    """Fire once the window has got at least `rows` rows since the trigger began, then finish.

    A batch is judged as a whole: `AfterCount(3)` fires once with all 7 rows of a batch.
    """

    rows: int

    def __post_init__(self) -> None:
        """Raise JobError for what is no number of rows; `count(3)` is one too."""
        object.__setattr__(self, "rows", _rows(self.rows, "AfterCount"))

    def __str__(self) -> str:
        return f"AfterCount({self.rows})"


@dataclass(frozen=True, slots=True)
class AfterProcessingTime(Trigger):
    """Fire when the batch time is at or past that of the first row since the trigger began + `delay`, then finish."""

    delay: Duration

    def __post_init__(self) -> None:
        """Raise JobError for what is no duration."""
        duration_micros(self.delay, "the delay of AfterProcessingTime")

    def __str__(self) -> str:
        return f"AfterProcessingTime({self.delay})"


@dataclass(frozen=True, slots=True)
class AfterEventTime(Trigger):
    """Fire when the watermark is at or past the earliest event time since the trigger began + `delay`, then finish."""

    delay: Duration

    def __post_init__(self) -> None:
        """Raise JobError for what is no duration."""
        duration_micros(self.delay, "the delay of AfterEventTime")

    @property
    def event(self) -> bool:
        """Return that it does."""
        return True

    def __str__(self) -> str:
        return f"AfterEventTime({self.delay})"


@dataclass(frozen=True, slots=True)
class AfterDelta(Trigger):
    """Fire when a row's value differs from the reference by more than `threshold`, then finish.

    The reference is the value of the first row. Where the trigger begins again after it has fired, the reference is the
    value of the last row of the batch that fired it. Values are compared as doubles; a null is passed over.

    Args:
        value: A numeric column or Spark SQL expression.
        threshold: The difference that does not fire yet, in either direction, not below 0.
    """

    value: str
    threshold: float

    def __post_init__(self) -> None:
        """Raise JobError for a threshold that is no number, and BadExpression for no expression."""
        checked_text(self.value, "value", "AfterDelta")
        _threshold(self.threshold, "AfterDelta", least=0)

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the expression."""
        return (self.value,)

    def __str__(self) -> str:
        return f"AfterDelta({self.value!r}, {self.threshold:g})"


@dataclass(frozen=True, slots=True)
class Every(Trigger):
    """Fire again and again: after each so many rows, or at each multiple of a duration while the window has rows.

    `Every(count(3))` is `Repeatedly(AfterCount(3))`. Multiples of a duration count from the job's zero time, with
    `clock=EVENT` from 1970. Of several that a batch passes the window fires once.

    Args:
        period: `count(n)` or a duration.
        clock: BATCH, the batch time, or EVENT, the watermark; both are in `penstock.state`.
    """

    period: Count | Duration
    clock: TimerClock = BATCH

    def __post_init__(self) -> None:
        """Raise JobError for what is neither count nor duration, and for a clock that is none."""
        if not isinstance(self.period, Count):
            duration_micros(self.period, "the period of Every", least=1)
        if not isinstance(self.clock, TimerClock):
            raise job_error(f"the clock of Every is {self.clock!r}; write BATCH or EVENT of penstock.state")
        if isinstance(self.period, Count) and self.clock is EVENT:
            raise job_error("Every(count(…)) goes by rows, and has no clock")

    @property
    def finishes(self) -> bool:
        """Return that it does not."""
        return False

    @property
    def event(self) -> bool:
        """Return whether its clock does."""
        return self.clock is EVENT

    def __str__(self) -> str:
        if isinstance(self.period, Count):
            return f"Every(count({self.period.rows}))"
        return f"Every({self.period}{', clock=EVENT' if self.event else ''})"


@dataclass(frozen=True, slots=True)
class AtEnd(Trigger):
    """Fire at the end of time, when the job drains or its bounded sources have ended, then finish."""

    @property
    def fires(self) -> bool:
        """Return that it does not, before then."""
        return False

    @property
    def event(self) -> bool:
        """Return that it does."""
        return True

    def __str__(self) -> str:
        return "AtEnd()"


@dataclass(frozen=True, slots=True)
class Never(Trigger):
    """Never fire."""

    @property
    def fires(self) -> bool:
        """Return that it does not."""
        return False

    @property
    def finishes(self) -> bool:
        """Return that it does not."""
        return False

    def __str__(self) -> str:
        return "Never()"


def _rows(rows: object, where: str) -> int:
    if isinstance(rows, Count):
        return rows.rows
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise job_error(f"{where} takes a number of rows from 1 on, not {rows!r}")
    return rows


def _threshold(value: object, where: str, *, least: float) -> None:
    # Of a comparison with NaN both sides are false.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise job_error(f"the threshold of {where} is {value!r}, not a number from {least:g} on")
