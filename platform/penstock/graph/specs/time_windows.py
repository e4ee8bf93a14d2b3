"""The steps that aggregate the rows of each key by windows of event time, and that of time windows (SEMANTICS 3).

`WindowSpec` is what all of them have in common. Each kind of window has its own in a module of its own, listed in
`graph.keyed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from penstock.errors import MissingLatePolicy, MissingSink
from penstock.graph.aggregates import EVERY_ROW, MOST_ITEMS, Aggregate, AggregateKind
from penstock.graph.durations import Duration
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
    Unit,
    need_event_time,
    need_sink,
    refuse_late_streams,
)
from penstock.graph.window_functions import WindowFunction, window_function
from penstock.graph.windowed import Windowed
from penstock.graph.windows import PANE, REVISION, EventWindow, Extent, LateTo, TimeWindow

__all__ = ["KEPT_ROWS", "LATE_OUTLET", "TimeWindows", "WindowSpec", "WindowedStream"]

LATE_OUTLET = "late"
KEPT_ROWS = "_penstock_rows"
"""The column of a window's rows, where a function takes them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowSpec(StepSpec):
    """Aggregate the rows of each key and window; `aggregates` are the columns that are computed.

    With a `function` these are all rows, from which it makes the output.
    """

    window: EventWindow
    aggregates: Mapping[str, Aggregate]
    function: WindowFunction | None = None

    takes: ClassVar[type[EventWindow]]
    """The kind of window that it makes."""
    kind: ClassVar[str] = "window"
    unit: ClassVar[Unit] = Unit.WINDOW

    @property
    def event_time_of_output(self) -> EventTime:
        """Return that a window has the event time of its end."""
        return EventTime.OWN

    @property
    def early_every(self) -> int | None:
        """Return the period of early panes."""
        return self.window.early_every

    @property
    def revises(self) -> Accumulation | None:
        """Return the content of its panes, None where each window is emitted once."""
        return self.window.accumulation if self.window.has_panes else None

    @property
    def revises_for(self) -> int:
        """Return the allowed lateness."""
        return self.window.allowed_lateness

    @property
    def window_columns(self) -> frozenset[str]:
        """Return both bounds, of which either is that of one window only; none where a function makes the columns."""
        return frozenset({"window_start", "window_end"} if self.function is None else ())

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return that panes add up; those that contain the one before do not, and are refused."""
        if panes is Accumulation.ACCUMULATING:
            return None
        return "revisions are rows of their own, late where they come after the allowed lateness of this step"

    def reads(self, side: int) -> Reads:
        """Return what the aggregates read; a function, and a side stream of late rows, take whole rows."""
        read = (a.expression for a in self.aggregates.values() if a.kind is not AggregateKind.ROWS)
        rows = isinstance(self.window.late, LateTo) or self.function is not None
        return Reads(tuple(dict.fromkeys(sql for sql in read if sql is not None)), rows=rows)

    def side_streams(self, step: str) -> Mapping[str, tuple[type[SideNode], str]]:
        """Return the stream of the late rows."""
        late = self.window.late
        return {LATE_OUTLET: (LateNode, late.stream)} if isinstance(late, LateTo) else {}

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise JobError without event time and over a side stream, and MissingSink for rows that nobody writes."""
        need_event_time(graph, node, f"window {node.name!r}")
        need_sink(graph, node, f"window {node.name!r}")
        if isinstance(self.window.late, LateTo):
            stream = graph.side_of(node, LATE_OUTLET)
            if stream is None or not graph.reaches_sink(stream):
                raise MissingSink(
                    f"late rows of {node.name!r} go to {self.window.late.stream!r}, which has no sink",
                    where=str(node.site),
                )
        refuse_late_streams(graph, node, f"window {node.name!r}")

    @property
    def _early(self) -> str:
        """Return in words when an open window is emitted."""
        window = self.window
        every = [] if window.early_every is None else [f"every {Duration(window.early_every)}"]
        rows = [] if window.early_rows is None else [f"after {window.early_rows:,} new rows"]
        return " and ".join([*every, *rows])

    @property
    def made(self) -> str:
        """Return the aggregates, or the function, in words."""
        if self.function is not None:
            return f"apply {self.function}, state of all rows, at most {MOST_ITEMS:,} of a key and window"
        return ", ".join(f"{name} = {a}" for name, a in self.aggregates.items())


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeWindows(WindowSpec):
    """Aggregate by windows whose bounds follow from the clock."""

    window: TimeWindow

    takes: ClassVar[type[EventWindow]] = TimeWindow
    operator: ClassVar[str] = "penstock.operators.windows.window_operator"
    sent: ClassVar[str] = "slices"
    counts: ClassVar[tuple[str, ...]] = ("rows", "counted", "late", "partly_late", "in_no_window")
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rows": ("counted", "late", "in_no_window"),
        "counted": ("merged",),
    }
    before_shuffle: ClassVar[frozenset[str]] = frozenset({LATE_OUTLET})

    @property
    def window_columns(self) -> frozenset[str]:
        """Return both bounds, or the end alone where windows of one start grow."""
        growing = self.window.extent is Extent.GROWING
        return super().window_columns - ({"window_start"} if growing else frozenset())

    def settings(self) -> Mapping[str, str]:
        """Return what becomes of late rows, and which rows are."""
        late = f"to {self.window.late.stream}" if isinstance(self.window.late, LateTo) else "dropped"
        panes = {"panes": self.window.accumulation.value} if self.window.has_panes else {}
        early = {"early panes": self._early} if self.window.has_early else {}
        return {"late data": late, "lateness rule": self.window.rule.value, **panes, **early}

    def words(self, node: StepNode, keys: str) -> str:
        """Return windows, keys, what becomes of late rows, and the aggregates."""
        window = self.window
        size = f"{Duration(window.size)}"
        if window.extent is Extent.GROWING:
            size = f"up to {size} by {Duration(window.every)}"
        elif window.size != window.every:
            size = f"{size} every {Duration(window.every)}"
        late = (
            f"late rows to {window.late.stream}" if isinstance(window.late, LateTo) else "late rows dropped and counted"
        )
        if window.allowed_lateness:
            panes = "all rows of the window" if window.accumulation is Accumulation.ACCUMULATING else "the late rows"
            late = f"revised within {Duration(window.allowed_lateness)} of the end by {panes}, later rows {late[10:]}"
        if window.has_early:
            whole = window.accumulation is Accumulation.ACCUMULATING
            late = f"early panes {self._early} of {'all rows so far' if whole else 'the new rows'}, {late}"
        return f"window {node.name}: {size}, {keys}, {late}; {self.made}"


class WindowedStream(Windowed[Stream, EventWindow]):
    """Windows of event time without aggregates: `aggregate` and `apply` say what to compute."""

    takes: ClassVar[type] = EventWindow
    steps: ClassVar[tuple[type[WindowSpec], ...]]
    """The kinds of windows: which step makes each."""
    hint: ClassVar[str] = ".aggregate(n=agg.count())"

    def checked(self) -> Self:
        """Return the same; raises JobError for windows that do not say what happens to late rows, or twice."""
        if self._spec.late is None:
            raise job_error(f"window {self._name!r} does not say what happens to late rows", MissingLatePolicy)
        if not self._spec.has_panes:
            # The one pane of a window has all its rows either way: no state may depend on what was said.
            self._spec = self._spec.accumulating()
        return self

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """Compute one row for each key and window: the keys, window_start, window_end, and these columns."""
        panes = (PANE, REVISION) if self._spec.has_panes else ()
        checked = self._checked_aggregates(aggregates, "window_start", "window_end", *panes)
        return self._step(self._kind(window=self._spec, aggregates=checked))

    def apply(self, fn: Callable[..., Any], *, output: str) -> Stream:
        """Call `fn(key, view) -> pa.Table | list[dict] | None` for each key and window, once it closes.

        The function gets:

        - `key`: the value of the key column, a named tuple of several, () without `key_by`.
        - `view`: a `WindowView` with the bounds of the window, and all its rows as a table in the order of arrival.

        An object with `open(info)` and `close()` is opened once in each task. A revision calls the function again, with
        all rows or only the late ones. Its rows get the columns `_pane` and `_revision`.

        The state keeps all rows until the window is forgotten. More than 1,000,000 rows of a key in one window stop the
        job with AccumulatorTooLarge, and nothing is committed.

        Args:
            fn: Returns the rows of the output, None for none.
            output: The columns of the output, as Spark DDL such as "user string, visits long". There are no others:
                return the key and the bounds where they are wanted. Each row has the event time window end - 1 us.

        Raises:
            JobError: `fn` is no function.
            BadExpression: `output` is no text. Text that is no DDL is refused when the job starts.
        """
        self.mark_used()
        function = window_function(fn, output, f"window {self._name!r}")
        return self._step(self._kind(window=self._spec, aggregates={KEPT_ROWS: EVERY_ROW}, function=function))

    @property
    def _kind(self) -> type[WindowSpec]:
        """Return which step makes these windows."""
        return next(known for known in self.steps if isinstance(self._spec, known.takes))
