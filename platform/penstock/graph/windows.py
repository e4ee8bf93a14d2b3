"""Describe windows, when they are emitted, and what happens to rows that come too late (SEMANTICS 2.6 and 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from penstock.graph.durations import Count, Duration, duration_micros
from penstock.graph.names import checked_name
from penstock.graph.policies import Accumulation, LatenessRule
from penstock.graph.source_location import job_error

__all__ = [
    "PANE",
    "REVISION",
    "Cumulative",
    "DropLate",
    "EventWindow",
    "Extent",
    "LateTo",
    "Sliding",
    "TimeWindow",
    "Tumbling",
    "drop_late",
    "late_to",
]

PANE, REVISION = "_pane", "_revision"
"""The columns that follow the aggregates of a window that may be emitted more than once."""


@dataclass(frozen=True, slots=True)
class DropLate:
    """Drop late rows, counted exactly."""


@dataclass(frozen=True, slots=True)
class LateTo:
    """Hand late rows to a side stream of the job, named here."""

    stream: str


def drop_late() -> DropLate:
    """Drop and count the rows that are too late to revise a window: `update_late(within=…, then=drop_late())`."""
    return DropLate()


def late_to(name: str) -> LateTo:
    """Hand the rows that are too late to revise a window to the side stream `job.late(name)`."""
    return LateTo(checked_name(name, "a late stream"))


class Extent(Enum):
    """The extents of windows that have ends every so often."""

    FIXED = "fixed"
    """Each window is as long as every other."""
    GROWING = "growing"
    """Windows of one start grow step by step to their full size, and the next ones begin there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWindow:
    """Windows of event time, with what happens to rows that come too late for them.

    A window is forgotten `allowed_lateness` after its end (SEMANTICS 2.5), in microseconds.
    A window without a late policy cannot be used: choose with `drop_late()`, `late_to(name)` or `update_late(…)`.
    `early_every` (microseconds) and `early_rows` say when a window that is open is emitted; None is never.
    """

    late: DropLate | LateTo | None = None
    rule: LatenessRule = LatenessRule.WINDOW
    allowed_lateness: int = 0
    accumulation: Accumulation = Accumulation.ACCUMULATING
    early_every: int | None = None
    early_rows: int | None = None

    def __post_init__(self) -> None:
        """Raise JobError where no late row could ever revise a window."""
        if self.allowed_lateness and self.rule is LatenessRule.WATERMARK:
            raise job_error(
                "update_late revises windows, and under LatenessRule.WATERMARK every row that could is late: use one of"
                " the two"
            )

    @property
    def has_panes(self) -> bool:
        """Return whether a window may be emitted more than once, so that its rows have PANE and REVISION."""
        return self.allowed_lateness > 0 or self.has_early

    @property
    def has_early(self) -> bool:
        """Return whether a window may be emitted before it closes."""
        return self.early_every is not None or self.early_rows is not None

    def drop_late(self) -> Self:
        """Return the same windows; late rows are dropped and counted."""
        return self._with_policy(DropLate())

    def late_to(self, name: str) -> Self:
        """Return the same windows; late rows go to the side stream `job.late(name)`."""
        return self._with_policy(late_to(name))

    def update_late(self, *, within: Duration, then: DropLate | LateTo) -> Self:
        """Return the same windows; a late row revises each window that has closed and is not forgotten.

        A revision is one more row of the output, for each batch, key and window that late rows touch. All rows get the
        columns `_pane` (ON_TIME or LATE) and `_revision` (0, 1, …).

        Args:
            within: The allowed lateness, at least a microsecond: a window is forgotten when the watermark has reached
                its end + `within`. The state keeps its slices until then.
            then: The fate of rows whose windows are all forgotten: `drop_late()` or `late_to(name)`.
        """
        if not isinstance(then, DropLate | LateTo):
            raise job_error(f"then= of update_late is {then!r}; write drop_late() or late_to(name) of penstock.windows")
        lateness = duration_micros(within, "within= of update_late", least=1)
        return replace(self._with_policy(then), allowed_lateness=lateness)

    def emit_every(self, d: Duration) -> Self:
        """Return the same windows; open ones are emitted early, at multiples of `d` in batch time (SEMANTICS 3.2).

        Multiples count from the job's zero time. A key and window whose first new row came in a batch has its pane at
        the first multiple that is not before this batch's time. The first batch at or after the multiple emits it,
        with the rows of that batch. It runs even without rows. New rows are those that no pane has had.

        All rows get the columns `_pane` (EARLY, ON_TIME or LATE) and `_revision` (0, 1, …).
        With `emit_on` as well, either of the two emits a pane.

        Args:
            d: A duration of at least a microsecond. It need not be a multiple of the job's interval.
        """
        if self.early_every is not None:
            raise job_error("a window has one emit_every, and this one has it already")
        return replace(self, early_every=duration_micros(d, "the time of emit_every", least=1))

    def emit_on(self, rows: Count) -> Self:
        """Return the same windows; open ones are emitted early, once they have `rows` new rows (SEMANTICS 3.2).

        Judged once for each batch, key and window, after the batch's rows, so that a pane may have more rows than that.
        New rows are those that no pane has had. Rows that come after the closing are not counted: `update_late` emits
        these in the batch in which they come.

        All rows get the columns `_pane` (EARLY, ON_TIME or LATE) and `_revision` (0, 1, …).

        Args:
            rows: A number of rows, as in `emit_on(count(100))`.
        """
        if not isinstance(rows, Count):
            raise job_error(f"emit_on takes a number of rows such as count(100), not {rows!r}")
        if self.early_rows is not None:
            raise job_error("a window has one emit_on, and this one has it already")
        return replace(self, early_rows=rows.rows)

    def accumulating(self) -> Self:
        """Return the same windows; a pane has all rows of its window so far, as without saying so."""
        return replace(self, accumulation=Accumulation.ACCUMULATING)

    def discarding(self) -> Self:
        """Return the same windows; a pane has only the rows that came since the pane before."""
        return replace(self, accumulation=Accumulation.DISCARDING)

    def lateness_rule(self, rule: LatenessRule) -> Self:
        """Return the same windows under another rule of what is late (SEMANTICS 2.3)."""
        if not isinstance(rule, LatenessRule):
            raise job_error(f"lateness_rule is {rule!r}; write LatenessRule.WINDOW or LatenessRule.WATERMARK")
        return replace(self, rule=rule)

    def _with_policy(self, policy: DropLate | LateTo) -> Self:
        if self.late is not None:
            raise job_error("a window has one late policy, and this one has it already")
        return replace(self, late=policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow(EventWindow):
    """Windows whose ends are `offset` + `size` plus the multiples of `every` from 1970; all in microseconds.

    A window of fixed extent is [start, start + `size`).
    A growing one starts at `offset` plus a multiple of `size`, the last before its end. Then `size` is a multiple of
    `every`.
    """

    size: int
    every: int
    offset: int = 0
    extent: Extent = Extent.FIXED


def Tumbling(size: Duration, *, offset: Duration | int = 0) -> TimeWindow:
    """Cut time into windows of `size` that follow each other without overlap."""
    width = duration_micros(size, "the size of a window", least=1)
    return TimeWindow(size=width, every=width, offset=_offset(offset))


def Sliding(size: Duration, *, every: Duration, offset: Duration | int = 0) -> TimeWindow:
    """Let a window of `size` start at every multiple of `every`.

    `size` need not be a multiple of `every`; where `every` is longer, rows between windows are in none.
    """
    return TimeWindow(
        size=duration_micros(size, "the size of a window", least=1),
        every=duration_micros(every, "the slide of a window", least=1),
        offset=_offset(offset),
    )


def Cumulative(size: Duration, *, step: Duration) -> TimeWindow:
    """Let windows of one start grow by `step` up to `size`, then begin again: a day so far, hour by hour.

    A row counts in each window of its `size` that ends after it. `size` must be a multiple of `step`.
    """
    longest = duration_micros(size, "the size of a window", least=1)
    every = duration_micros(step, "the step of a window", least=1)
    if longest % every:
        raise job_error(f"the size of a cumulative window is {size}, which is no multiple of its step {step}")
    return TimeWindow(size=longest, every=every, extent=Extent.GROWING)


def _offset(offset: Duration | int) -> int:
    if isinstance(offset, int) and not isinstance(offset, bool) and offset == 0:
        return 0
    if isinstance(offset, Duration):
        return offset.micros
    raise job_error(f"the offset of a window is {offset!r}, which has no unit")
