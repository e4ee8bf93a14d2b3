"""The step of global windows: one window for each key, which a trigger emits (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from penstock.errors import MissingSink, UnboundedWindow
from penstock.graph.aggregates import Aggregate
from penstock.graph.durations import Duration
from penstock.graph.names import checked_name
from penstock.graph.nodes import LateNode, SideNode
from penstock.graph.policies import Accumulation
from penstock.graph.source_location import job_error
from penstock.graph.stateful import Stream
from penstock.graph.steps import EventTime, GraphView, Reads, StepNode, StepSpec, need_event_time, need_sink
from penstock.graph.timeouts import Timeout, idle_micros
from penstock.graph.trigger_protocol import AnyTrigger, Trigger, checked_trigger, fires, trigger_words, walk
from penstock.graph.window_evictors import (
    Evictor,
    ReadyEvictor,
    checked_evictor,
    evictor_words,
)
from penstock.graph.window_functions import WindowFunction, window_function
from penstock.graph.windowed import Windowed
from penstock.graph.windows import DropLate, LateTo

__all__ = ["FINISHED_OUTLET", "GlobalWindow", "GlobalWindowStream", "GlobalWindows"]

FINISHED_OUTLET = "late"
"""The rows that came after the trigger of their window had finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalWindow:
    """One window for each key, without bounds in time: `GlobalWindow().trigger(t).evict(e)`.

    A trigger says when the window is emitted, an evictor which of its rows leave it before.

    Args:
        ttl: How long a key without rows is remembered, in batch time: `hours(1)` or `idle(hours(1))`. A key is
            forgotten in the first batch whose time is later than that of its last row's batch + `ttl`; its rows are
            counted as `expired`.
        unbounded: Whether the state may grow with the rows, where neither trigger nor evictor nor `ttl` bounds it.
    """

    ttl: Timeout | Duration | None = None
    unbounded: bool = False
    fires_by: AnyTrigger | None = None
    evicts_by: Evictor | None = None
    late: DropLate | LateTo = DropLate()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        """Raise JobError for a `ttl` that is no duration above 0."""
        if self.ttl is not None:
            object.__setattr__(self, "ttl", Duration(idle_micros(self.ttl, "ttl= of GlobalWindow")))

    @property
    def idle(self) -> Duration | None:
        """Return the `ttl`, however it was written."""
        return self.ttl if isinstance(self.ttl, Duration) else None

    def trigger(self, trigger: AnyTrigger) -> Self:
        """Return the same window, emitted when this trigger fires: one of `penstock.triggers`, or of the user's."""
        if self.fires_by is not None:
            raise job_error("a global window has one trigger, and this one has it already: compose them")
        return replace(self, fires_by=checked_trigger(trigger, "trigger"))

    def evict(self, evictor: Evictor) -> Self:
        """Return the same window; this evictor removes rows for good before the function.

        It is one of `penstock.evictors`, or of the user's.
        """
        if self.evicts_by is not None:
            raise job_error("a global window has one evictor, and this one has it already")
        return replace(self, evicts_by=checked_evictor(evictor))

    def drop_late(self) -> Self:
        """Return the same window; rows that come after the trigger has finished are dropped, as without saying so."""
        return replace(self, late=DropLate())

    def late_to(self, name: str) -> Self:
        """Return the same window; rows that come after the trigger has finished go to `job.late(name)`."""
        return replace(self, late=LateTo(checked_name(name, "a late stream")))


@dataclass(frozen=True, eq=False, kw_only=True)
class GlobalWindows(StepSpec):
    """Keep the rows of each key, and emit what aggregates or a function make of them when the trigger fires."""

    window: GlobalWindow
    aggregates: Mapping[str, Aggregate] | None = None
    function: WindowFunction | None = None

    operator: ClassVar[str] = "penstock.operators.triggers.global_step"
    kind: ClassVar[str] = "window"
    counts: ClassVar[tuple[str, ...]] = ("rows", "counted", "late", "fired", "evicted", "expired")
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {"rows": ("merged",), "merged": ("counted", "late")}

    @property
    def trigger(self) -> AnyTrigger:
        """Return the trigger."""
        assert self.window.fires_by is not None  # `checked` has seen to it
        return self.window.fires_by

    @property
    def event_time_of_output(self) -> EventTime:
        """Return that a window has the event time at which it was emitted."""
        return EventTime.OWN

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return that panes add up; those that contain the one before do not, and are refused."""
        return "revisions are rows of their own" if panes is Accumulation.DISCARDING else None

    @property
    def read_by_trigger(self) -> tuple[str, ...]:
        """Return the expressions that the trigger reads of the rows of a batch."""
        parts = (part for part in walk(self.trigger) if isinstance(part, Trigger))
        return tuple(dict.fromkeys(sql for part in parts if not part.parts for sql in part.reads))

    @property
    def read_by_evictor(self) -> tuple[str, ...]:
        """Return the expressions that the evictor reads of all rows."""
        evictor = self.window.evicts_by
        return evictor.reads if isinstance(evictor, ReadyEvictor) else ()

    @property
    def read_by_aggregates(self) -> tuple[str, ...]:
        """Return the expressions that the aggregates read."""
        read = (a.expression for a in (self.aggregates or {}).values() if a.expression is not None)
        return tuple(dict.fromkeys(read))

    @property
    def keeps_rows(self) -> bool:
        """Return whether the state needs all columns of rows: a function, or an evictor of the user's, sees them."""
        own = not isinstance(self.window.evicts_by, ReadyEvictor | None)
        return self.function is not None or own

    def reads(self, side: int) -> Reads:
        """Return what trigger, evictor and aggregates read.

        A function, triggers and evictors of the user's, and the stream of late rows read whole rows.
        """
        read = (*self.read_by_trigger, *self.read_by_evictor, *self.read_by_aggregates)
        whole = any(not isinstance(part, Trigger) for part in walk(self.trigger))
        whole = whole or self.keeps_rows or isinstance(self.window.late, LateTo)
        return Reads(tuple(dict.fromkeys(read)), rows=whole)

    def side_streams(self, step: str) -> Mapping[str, tuple[type[SideNode], str]]:
        """Return the stream of the rows that came after the finish."""
        late = self.window.late
        return {FINISHED_OUTLET: (LateNode, late.stream)} if isinstance(late, LateTo) else {}

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise JobError without event time that is needed, and MissingSink for rows that nobody writes."""
        what = f"window {node.name!r}"
        by_event = any(isinstance(part, Trigger) and not part.parts and part.event for part in walk(self.trigger))
        evictor = self.window.evicts_by
        if by_event or (isinstance(evictor, ReadyEvictor) and evictor.by_event_time):
            need_event_time(graph, node, what)
        need_sink(graph, node, what)
        if isinstance(self.window.late, LateTo):
            stream = graph.side_of(node, FINISHED_OUTLET)
            if stream is None or not graph.reaches_sink(stream):
                raise MissingSink(
                    f"late rows of {node.name!r} go to {self.window.late.stream!r}, which has no sink",
                    where=str(node.site),
                )

    def settings(self) -> Mapping[str, str]:
        """Return trigger, evictor, TTL, and what becomes of rows after the finish."""
        window = self.window
        late = f"to {window.late.stream}" if isinstance(window.late, LateTo) else "dropped"
        return {
            "trigger": trigger_words(self.trigger),
            "evictor": "none" if window.evicts_by is None else evictor_words(window.evicts_by),
            "ttl": "none" if window.ttl is None else str(window.ttl),
            "rows after the finish": late,
        }

    def words(self, node: StepNode, keys: str) -> str:
        """Return trigger, evictor, keys, what bounds the state, and what is made of the rows."""
        window = self.window
        evicted = "" if window.evicts_by is None else f", {evictor_words(window.evicts_by)}"
        kept = f"forgotten after {window.ttl} without a row" if window.ttl is not None else self._kept
        return f"window {node.name}: global, {trigger_words(self.trigger)}{evicted}, {keys}, {kept}; {self.made}"

    @property
    def _kept(self) -> str:
        if self.function is None and self.window.evicts_by is None:
            stays = "until the window is purged" if bounded(self.window) else "for ever"
            return f"one row of partials a key, kept {stays}"
        return "rows kept until they are purged or evicted" if bounded(self.window) else "all rows kept for ever"

    @property
    def made(self) -> str:
        """Return the function, or the aggregates, in words."""
        if self.function is not None:
            return str(self.function)
        return ", ".join(f"{name} = {a}" for name, a in (self.aggregates or {}).items())


class GlobalWindowStream(Windowed[Stream, GlobalWindow]):
    """Global windows of which nothing is computed yet: `aggregate` and `apply` say what."""

    takes: ClassVar[type] = GlobalWindow
    hint: ClassVar[str] = ".aggregate(n=agg.count())"

    def checked(self) -> Self:
        """Return the same; raises JobError without a trigger, UnboundedWindow where rows would stay for ever."""
        if self._spec.fires_by is None:
            raise job_error(f"global window {self._name!r} has no trigger: add .trigger(Every(count(100))) or the like")
        if not fires(self._spec.fires_by) and not self._spec.unbounded and self._spec.ttl is None:
            words = trigger_words(self._spec.fires_by)
            what = f"the trigger of window {self._name!r}, {words}, never fires before the end of time"
            raise job_error(what, UnboundedWindow)
        return self

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """Compute one row for each key whenever the trigger fires: the keys, and these columns.

        A global window has no bounds, so there are no columns of bounds. Without an evictor the state has partial
        aggregates in the place of rows.
        """
        checked = self._checked_aggregates(aggregates)
        if self._spec.evicts_by is not None:
            self._need_bound()
        return self._step(GlobalWindows(window=self._spec, aggregates=checked))

    def apply(self, fn: Callable[..., Any], *, output: str) -> Stream:
        """Call `fn(key, view)` for each key whenever the trigger fires, and emit the rows that it returns.

        Args:
            fn: Gets the key and a `WindowView`, whose `current` has the rows of the window in the order of arrival. Its
                bounds are None. It returns a pa.Table, a list of dicts, or None for no rows.
            output: The columns that it returns, as DDL.

        Raises:
            UnboundedWindow: Neither trigger, evictor nor `ttl` bounds the rows, and `unbounded=True` is not set.
        """
        self.mark_used()
        function = window_function(fn, output, f"window {self._name!r}")
        self._need_bound()
        return self._step(GlobalWindows(window=self._spec, function=function))

    def _need_bound(self) -> None:
        if not bounded(self._spec) and self._spec.ttl is None and not self._spec.unbounded:
            assert self._spec.fires_by is not None
            raise job_error(
                f"nothing bounds the rows of window {self._name!r}: {trigger_words(self._spec.fires_by)} fires and "
                "leaves them there",
                UnboundedWindow,
            )


def bounded(window: GlobalWindow) -> bool:
    """Return whether trigger or evictor empty a window, or bound it, whenever it is emitted."""
    trigger = window.fires_by
    empties = isinstance(trigger, Trigger) and trigger.empties
    return empties or (isinstance(window.evicts_by, ReadyEvictor) and window.evicts_by.bounds)
