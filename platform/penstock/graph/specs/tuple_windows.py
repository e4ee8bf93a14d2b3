"""The steps over windows whose length and slide are each a number of rows or a duration (SEMANTICS 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self

from penstock.errors import MissingSink, UnboundedState
from penstock.graph.aggregates import Aggregate
from penstock.graph.durations import Count, Duration, duration_micros, seconds
from penstock.graph.names import checked_name
from penstock.graph.nodes import LateNode, SideNode
from penstock.graph.policies import Accumulation
from penstock.graph.source_location import job_error
from penstock.graph.stateful import Stream
from penstock.graph.steps import (
    EventTime,
    GraphView,
    Reads,
    StepNode,
    StepSpec,
    need_event_time,
    need_sink,
    refuse_late_streams,
)
from penstock.graph.timeouts import Timeout, idle_micros
from penstock.graph.window_functions import WindowFunction, window_function
from penstock.graph.windowed import Windowed

__all__ = ["LATE_OUTLET", "Time", "TupleWindow", "TupleWindows", "WindowedTuples"]

LATE_OUTLET = "late"
_NO_LAG = seconds(0)


class Time(Enum):
    """The time of the rows of a TupleWindow."""

    PROCESSING = "processing"
    """Each row has the time of its batch."""
    EVENT = "event"


@dataclass(frozen=True, slots=True, init=False)
class TupleWindow:
    """The last rows of a key, evaluated after so many rows or every so often (SEMANTICS 5.1).

    A row of the window ending at `end` is later than `end - length`, and not later than `end`.
    """

    length: Count | Duration
    slide: Count | Duration
    time: Time
    lag: int
    """The microseconds by which the watermark of the windows is less than that of the step."""
    late_to: str | None
    idle: int | None
    """The TTL of a key without rows, in microseconds of batch time."""
    unbounded: bool

    def __init__(
        self,
        length: Count | Duration,
        slide: Count | Duration | None = None,
        *,
        time: Time = Time.PROCESSING,
        lag: Duration = _NO_LAG,
        late_to: str | None = None,
        ttl: Timeout | Duration | None = None,
        unbounded: bool = False,
    ) -> None:
        """Describe the windows.

        Args:
            length: The rows of a window: the last so many, or those of the last so long.
            slide: After how many rows a window is evaluated, or at the multiples of which duration. They count from the
                zero time of the job, in event time from 1970. Without a slide each row evaluates one.
            time: The time of rows. With `Time.EVENT` the watermark evaluates windows.
            lag: With `Time.EVENT`, how much later than the watermark of the step windows are evaluated.
            late_to: With `Time.EVENT`, the side stream of late rows. Without it they are dropped and counted.
            ttl: How long a key without rows is kept, in batch time: `idle(hours(1))` or `hours(1)`. Windows of keyed
                streams need it, unless `unbounded` is True.
            unbounded: Whether keys are kept for ever.

        Raises:
            JobError: An argument is unfit.
        """
        slide = Count(1) if slide is None else slide
        if not isinstance(time, Time):
            raise job_error(f"time= of TupleWindow is {time!r}; write Time.PROCESSING or Time.EVENT")
        wait = duration_micros(lag, "lag= of TupleWindow")
        if time is Time.PROCESSING and (wait or late_to is not None):
            raise job_error("lag= and late_to= of TupleWindow are for time=Time.EVENT: in batch time no row is late")
        for name, value in (
            ("length", _checked(length, "the length")),
            ("slide", _checked(slide, "the slide")),
            ("time", time),
            ("lag", wait),
            ("late_to", None if late_to is None else checked_name(late_to, "a late stream")),
            ("idle", None if ttl is None else idle_micros(ttl, "ttl= of TupleWindow")),
            ("unbounded", unbounded),
        ):
            object.__setattr__(self, name, value)
        if not isinstance(unbounded, bool) or (unbounded and ttl is not None):
            raise job_error("unbounded= of TupleWindow is True or False, and True only without ttl=")

    @classmethod
    def tumbling(cls, length: Count | Duration, **settings: Any) -> Self:
        """Return windows that follow each other, as with `slide=length`. The settings are the other arguments."""
        return cls(length, length, **settings)

    def __str__(self) -> str:
        """Return length, slide and time in words."""
        every = "tumbling" if self.length == self.slide else f"every {_words(self.slide)}"
        return f"{_words(self.length)}, {every}, {self.time.value} time"


def _checked(value: object, what: str) -> Count | Duration:
    if isinstance(value, Count):
        return value
    if not isinstance(value, Duration):
        raise job_error(f"{what} of TupleWindow is {value!r}, which has no unit: write count(3) or seconds(3)")
    duration_micros(value, f"{what} of TupleWindow", least=1)
    return value


def _words(value: Count | Duration) -> str:
    if isinstance(value, Duration):
        return f"{value}"
    return f"{value.rows:,} row{'s' if value.rows > 1 else ''}"


@dataclass(frozen=True, eq=False, kw_only=True)
class TupleWindows(StepSpec):
    """Aggregate the rows of each window, or call a function with them: one of the two."""

    window: TupleWindow
    aggregates: Mapping[str, Aggregate] | None = None
    function: WindowFunction | None = None

    operator: ClassVar[str] = "penstock.operators.tuple_windows.tuple_step"
    kind: ClassVar[str] = "window"
    counts: ClassVar[tuple[str, ...]] = ("rows", "late", "in_no_window", "fired", "expired")
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {"rows": ("late", "in_no_window", "merged")}
    before_shuffle: ClassVar[frozenset[str]] = frozenset({LATE_OUTLET})

    @property
    def event_time_of_output(self) -> EventTime:
        """Return that a window has the event time of its end, and none in batch time."""
        return EventTime.OWN if self.window.time is Time.EVENT else EventTime.UNKNOWN

    @property
    def lag_of_output(self) -> int:
        """Return the lag, for which windows wait."""
        return self.window.lag

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return that panes count as rows of their own, where none contains another."""
        return None if panes is Accumulation.ACCUMULATING else "revisions are rows of their own"

    def reads(self, side: int) -> Reads:
        """Return what aggregates read; a function and a side stream of late rows get all columns."""
        read = (a.expression for a in (self.aggregates or {}).values() if a.expression is not None)
        rows = self.function is not None or self.window.late_to is not None
        return Reads(tuple(dict.fromkeys(read)), rows=rows)

    def side_streams(self, step: str) -> Mapping[str, tuple[type[SideNode], str]]:
        """Return the stream of the late rows."""
        return {} if self.window.late_to is None else {LATE_OUTLET: (LateNode, self.window.late_to)}

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise JobError without event time that is needed, and MissingSink for rows that nobody writes."""
        what = f"window {node.name!r}"
        if self.window.time is Time.EVENT:
            need_event_time(graph, node, what)
            refuse_late_streams(graph, node, what)
        need_sink(graph, node, what)
        if self.window.late_to is not None:
            stream = graph.side_of(node, LATE_OUTLET)
            if stream is None or not graph.reaches_sink(stream):
                raise MissingSink(
                    f"late rows of {node.name!r} go to {self.window.late_to!r}, which has no sink", where=str(node.site)
                )

    def settings(self) -> Mapping[str, str]:
        """Return the lag, the TTL, and what becomes of late rows."""
        window = self.window
        ttl = {} if window.idle is None else {"ttl": f"{Duration(window.idle)}"}
        late = "dropped" if window.late_to is None else f"to {window.late_to}"
        return {"lag": f"{Duration(window.lag)}", "late data": late, **ttl}

    def words(self, node: StepNode, keys: str) -> str:
        """Return the window, keys, what bounds the state, and what is computed."""
        window, made = self.window, ", ".join(f"{name} = {a}" for name, a in (self.aggregates or {}).items())
        late = "dropped and counted" if window.late_to is None else f"to {window.late_to}"
        event = f", with a lag of {Duration(window.lag)}, late rows {late}" * (window.time is Time.EVENT)
        return (
            f"window {node.name}: {window}, {keys}{event}; {self._bound(keyed=bool(node.keys[0]))}; "
            f"{made or self.function}"
        )

    def _bound(self, *, keyed: bool) -> str:
        """Return in words what bounds the state."""
        if isinstance(self.window.length, Duration) and isinstance(self.window.slide, Duration):
            return "rows forgotten by time"
        if not keyed:
            return "rows forgotten with their windows"
        idle = self.window.idle
        return "keys kept for ever" if idle is None else f"keys forgotten after {Duration(idle)} without a row"


class WindowedTuples(Windowed[Stream, TupleWindow]):
    """Windows of rows of which nothing is computed yet: `aggregate` or `apply` says what."""

    takes: ClassVar[type] = TupleWindow
    hint: ClassVar[str] = ".aggregate(n=agg.count())"

    def checked(self) -> Self:
        """Return the same; raises UnboundedState for windows of keys that nothing forgets."""
        if self._keys and self._spec.idle is None and not self._spec.unbounded:
            raise job_error(f"nothing bounds the keys of window {self._name!r}", UnboundedState)
        return self

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """Compute one row for each window that is not empty: the keys, window_start, window_end, and these columns.

        Where the length is a count both bounds are null.
        """
        checked = self._checked_aggregates(aggregates, "window_start", "window_end")
        return self._step(TupleWindows(window=self._spec, aggregates=checked))

    def apply(self, fn: Any, *, output: str) -> Stream:
        """Call `fn(key, view)` for each window that is not empty, with a view of `current`, `new` and `expired` rows.

        `expired` are the rows that left since the window evaluated just before. An object with a method
        `on_expired(key, rows)` gets the rows that leave, before the window that they have left.

        Args:
            fn: The function. It returns a pyarrow Table, a list of dicts, or None for no rows.
            output: Spark DDL of what it returns.
        """
        self.mark_used()
        function = window_function(fn, output, f"window {self._name!r}")
        return self._step(TupleWindows(window=self._spec, function=function))
