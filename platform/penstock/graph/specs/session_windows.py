"""The step that aggregates the rows of each key by sessions: windows that end with a gap (SEMANTICS 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.graph.durations import Duration, duration_micros
from penstock.graph.nodes import QuarantineNode, SideNode
from penstock.graph.policies import Accumulation
from penstock.graph.source_location import job_error
from penstock.graph.specs.time_windows import WindowSpec
from penstock.graph.steps import GraphView, Reads, StepNode, need_quarantine
from penstock.graph.windows import EventWindow, LateTo

__all__ = ["ASIDE_OUTLET", "LONGEST_GAP", "Session", "SessionWindow", "SessionWindows"]

ASIDE_OUTLET = "quarantine"
LONGEST_GAP = 2**61
"""In microseconds: event times are within 2**62 of 1970, and the end of a session must fit into 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindow(EventWindow):
    """Windows [first, last + gap) over rows of which each comes at most `gap` after another.

    `gap` is in microseconds, or a Spark SQL expression that gives each row its own.
    """

    gap: int | str

    def __post_init__(self) -> None:
        """Raise JobError for a gap that reaches beyond time."""
        EventWindow.__post_init__(self)
        if isinstance(self.gap, int) and self.gap > LONGEST_GAP:
            raise job_error(
                f"the gap of a session is {Duration(self.gap)}, and its end would be beyond time: the longest is "
                f"{Duration(LONGEST_GAP)}"
            )


def Session(gap: Duration | str) -> SessionWindow:
    """Put rows of a key together until no row comes for `gap`.

    A row at t stands for [t, t + gap], and rows whose spans touch are in one session. So a row may join two sessions.

    Args:
        gap: A duration, or a column or Spark SQL expression with the gap of each row: a day-time interval, or whole
            microseconds. The session then ends with the latest t + gap. A row whose gap is null or not above 0 goes to
            `job.quarantine(step)`.
    """
    if isinstance(gap, str):
        if not gap.strip():
            raise job_error("the gap of a session is an empty expression")
        return SessionWindow(gap=gap)
    return SessionWindow(gap=duration_micros(gap, "the gap of a session", least=1))


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionWindows(WindowSpec):
    """Aggregate by sessions."""

    window: SessionWindow

    takes: ClassVar[type[EventWindow]] = SessionWindow
    operator: ClassVar[str] = "penstock.operators.sessions.session_step"
    sent: ClassVar[str] = "sessions"
    counts: ClassVar[tuple[str, ...]] = ("rows", "counted", "late", "in_no_window", "quarantined")
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rows": ("counted", "late", "in_no_window", "quarantined"),
        "sent": ("merged",),
        "merged": ("counted", "late"),
    }
    before_shuffle: ClassVar[frozenset[str]] = frozenset({ASIDE_OUTLET})
    moves_windows: ClassVar[bool] = True

    @property
    def window_columns(self) -> frozenset[str]:
        """Return the end: a session may begin where one did that was forgotten."""
        return super().window_columns & {"window_end"}

    def reads(self, side: int) -> Reads:
        """Return what the aggregates read, and the gap; rows that may go to a side stream keep their columns."""
        read = WindowSpec.reads(self, side)
        if isinstance(self.window.gap, int):
            return read
        return Reads(tuple(dict.fromkeys((*read.expressions, self.window.gap))), rows=True)

    def side_streams(self, step: str) -> Mapping[str, tuple[type[SideNode], str]]:
        """Return the stream of the late rows, and the quarantine of rows without a gap."""
        aside = {} if isinstance(self.window.gap, int) else {ASIDE_OUTLET: (QuarantineNode, step)}
        return {**WindowSpec.side_streams(self, step), **aside}

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise what every window does, and MissingSink where nobody writes the rows without a gap."""
        WindowSpec.check(self, node, graph)
        if isinstance(self.window.gap, str):
            need_quarantine(graph, node, node.name, graph.side_of(node, ASIDE_OUTLET), "window")

    def settings(self) -> Mapping[str, str]:
        """Return the gap, what becomes of late rows, and which rows are."""
        late = f"to {self.window.late.stream}" if isinstance(self.window.late, LateTo) else "dropped"
        panes = {"panes": self.window.accumulation.value} if self.window.has_panes else {}
        early = {"early panes": self._early} if self.window.has_early else {}
        return {"gap": self._gap, "late data": late, "lateness rule": self.window.rule.value, **panes, **early}

    def words(self, node: StepNode, keys: str) -> str:
        """Return the gap, keys, what becomes of late rows, and the aggregates."""
        late = f"to {self.window.late.stream}" if isinstance(self.window.late, LateTo) else "dropped and counted"
        late = f"late rows {late}"
        whole = self.window.accumulation is Accumulation.ACCUMULATING
        if self.window.allowed_lateness:
            panes = "all rows of the session, whose bounds may move" if whole else "the late rows"
            within = Duration(self.window.allowed_lateness)
            late = f"revised within {within} of the end by {panes}, rows that join none {late[10:]}"
        if self.window.has_early:
            late = f"early panes {self._early} of {'all rows so far' if whole else 'the new rows'}, {late}"
        return f"window {node.name}: sessions with a gap of {self._gap}, {keys}, {late}; {self.made}"

    @property
    def _gap(self) -> str:
        return f"{Duration(self.window.gap)}" if isinstance(self.window.gap, int) else self.window.gap
