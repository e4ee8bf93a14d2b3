"""The steps that keep state: one node for all operators, and the specification of each operator in the graph.

An operator is one module in `graph/specs/` and one in `operators/`, which the first names (decision 90). The first is
all that the graph, the planner, `explain` and the tests of a job know of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol

from penstock.errors import JobError, MissingSink, NoEventTime
from penstock.graph.nodes import Node, QuarantineNode, SideNode, SourceNode
from penstock.graph.policies import Accumulation
from penstock.graph.source_location import SourceLocation

__all__ = [
    "MAIN_OUTLET",
    "EventTime",
    "GraphView",
    "Reads",
    "StepNode",
    "StepSpec",
    "Unit",
    "Untimed",
    "need_event_time",
    "need_quarantine",
    "need_sink",
    "refuse_late_streams",
]

MAIN_OUTLET = ""
"""The outlet whose rows are the stream that the method of the operator returns."""


class EventTime(Enum):
    """The source of the event time of a step's output."""

    OWN = "own"
    """The step gives each row one, or an expression of the job does."""
    ROWS = "rows"
    """They keep that of the rows that the step made them of."""
    UNKNOWN = "unknown"
    """Nobody knows it; no step of event time can read the output."""


class Unit(Enum):
    """The unit that a check of a step's output judges (SEMANTICS 11.1)."""

    BATCH = "batch"
    WINDOW = "window"
    """The rows of one event time, which is the end of a window less a microsecond (2.1)."""


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads of a step from an input beside its keys: Spark SQL expressions, or with `rows` all visible columns."""

    expressions: tuple[str, ...] = ()
    rows: bool = False


class Untimed(Protocol):
    """A step whose output has no event time that is known."""

    @property
    def name(self) -> str:
        """The name that the job gave it."""

    @property
    def method(self) -> str:
        """The method of streams that made it."""

    @property
    def site(self) -> SourceLocation:
        """The user's line."""


class GraphView(Protocol):
    """The questions that a spec may ask of the graph of its step."""

    @property
    def interval(self) -> int | None:
        """The microseconds between batches that the job's code says, None where it leaves that to the runner."""

    def upstream(self, node: Node) -> Iterator[Node]:
        """Yield the step and everything before it."""

    def sources_of(self, node: Node) -> tuple[SourceNode, ...]:
        """Return the sources upstream of a step."""

    def untimed_above(self, step: StepNode) -> Untimed | None:
        """Return the step before this one whose output has no event time that is known, None where there is none."""

    def side_of(self, step: StepNode, outlet: str) -> SideNode | None:
        """Return the side stream that the rows of an outlet are, None where the job does not use it."""

    def reaches_sink(self, node: Node) -> bool:
        """Return whether rows of this step are written."""


class StepSpec(ABC):
    """The specification of one operator in the graph. A subclass is a frozen value with the settings of the step.

    Asked while a job is built, planned, explained and compared with its checkpoint, and by the driver in every batch.
    No task asks it.
    """

    operator: ClassVar[str]
    """The module that runs it, with the two functions of `operators.protocol.Operator`; imported when a job starts."""
    kind: ClassVar[str]
    """The operator's word: in names of ports, in the accounting of the log (`kind:name`), and in errors."""
    sent: ClassVar[str] = "rows"
    """What goes through the shuffle, in a word for `explain`."""
    sums: ClassVar[Mapping[str, tuple[str, ...]]]
    """The sums of its accounting (SEMANTICS 2.10). Each count is the sum of the counts named here.

    `merged` are the rows that the state partitions took. Counts that are in no sum are in `counts`.
    """
    counts: ClassVar[tuple[str, ...]] = ("rows",)
    """What the map side counts. The accounting of every batch has each of them, also without rows."""
    before_shuffle: ClassVar[frozenset[str]] = frozenset()
    """The outlets that the map side fills."""
    passes_revisions: ClassVar[bool] = False
    """Whether its output are rows of its input, so that revisions among them are revisions still."""
    moves_windows: ClassVar[bool] = False
    """Whether a revision may have another window than the rows that it replaces."""
    unit: ClassVar[Unit] = Unit.BATCH
    """What a check of the step's output judges."""
    needs_ticks: ClassVar[bool] = False
    """Whether it goes by batch times, which then are at ticks of an interval that never adapts (SEMANTICS 4.1)."""

    @property
    def method(self) -> str:
        """Return the name of the method of streams that says it."""
        return self.kind

    @property
    def initial(self) -> str | Callable[[], Any] | None:
        """Return the table, or the function that returns a DataFrame, of keys and states to begin with."""
        return None

    @property
    def every_batch(self) -> bool:
        """Return whether every batch calls for every key that has state."""
        return False

    @property
    def early_every(self) -> int | None:
        """Return the period of batch time, in microseconds, at whose multiples it emits what waits; None for never."""
        return None

    @property
    def revises(self) -> Accumulation | None:
        """Return the content of rows that revise others that the step has emitted, None where it never revises."""
        return None

    @property
    def revises_for(self) -> int:
        """Return how far the watermark may pass the end of a window whose row it revises, in microseconds."""
        return 0

    @property
    def drops_after(self) -> int | None:
        """Return by how much a row is older than the watermark, in microseconds, when it is dropped as late.

        None where revisions are never dropped so. Asked of steps that pass revisions on.
        """
        return None

    @property
    def passes_times(self) -> bool:
        """Return whether its output has the event times of its input, also those older than the watermark."""
        return self.passes_revisions

    @property
    def window_columns(self) -> frozenset[str]:
        """Return the columns of its output of which each tells its windows apart; none where it makes no windows."""
        return frozenset()

    @property
    def lag_of_output(self) -> int:
        """Return how much older its output may be than its watermark, in microseconds.

        The watermark of downstream steps is lower by as much.
        """
        return 0

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return in words what it makes of revisions that it reads; None refuses the graph."""
        return None

    @property
    def event_time_of_output(self) -> EventTime:
        """Return where its rows have their event time from."""
        return EventTime.ROWS

    @property
    def timed_by(self) -> str | None:
        """Return the Spark SQL expression over its output that is its event time, None where the step gives it."""
        return None

    def reads(self, side: int) -> Reads:
        """Return what it reads of an input."""
        return Reads(rows=True)

    def side_streams(self, step: str) -> Mapping[str, tuple[type[SideNode], str]]:
        """Return, for each outlet but the main one, the kind and name of its stream, where the job may ask for it."""
        return {}

    def check(self, node: StepNode, graph: GraphView) -> None:  # noqa: B027 - most have nothing to check
        """Raise what the step's place in the whole graph forbids; asked once all nodes are there."""

    def check_interval(self, node: StepNode, interval: int | None) -> None:  # noqa: B027 - as above
        """Raise what the microseconds between batches forbid, None for as fast as possible; asked before a start."""

    def settings(self) -> Mapping[str, str] | None:
        """Return, in words, the settings that may change while the state stays; None for none (F51)."""
        return None

    @abstractmethod
    def words(self, node: StepNode, keys: str) -> str:
        """Return the step in words; `keys` are those for its keys and partitions."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StepNode(Node):
    """Keep state for each key, in so many partitions; `name` is where it lives.

    `inputs` are the steps it reads, and `keys` for each of them the key columns, as many of each and of equal types.
    """

    name: str
    inputs: tuple[Node, ...]
    keys: tuple[tuple[str, ...], ...]
    partitions: int
    spec: StepSpec

    @property
    def parents(self) -> tuple[Node, ...]:
        """Return the steps it reads."""
        return self.inputs

    @property
    def method(self) -> str:
        """Return the name of the method of streams that made it."""
        return self.spec.method

    @property
    def counted_as(self) -> str:
        """Return the name that the step's rows have in accounting."""
        return f"{self.spec.kind}:{self.name}"


def need_event_time(graph: GraphView, step: StepNode, what: str) -> None:
    """Raise JobError where a step reads rows of which nobody knows the event time; `what` names it."""
    for source in graph.sources_of(step):
        if source.event_time is None:
            raise JobError(f"{what} needs event time, and source {source.name!r} has none", where=str(step.site))
    untimed = graph.untimed_above(step)
    if untimed is not None:
        raise NoEventTime(
            f"{what} needs event time, and {untimed.method} {untimed.name!r} at {untimed.site} does not "
            "say which its output has",
            where=str(step.site),
        )


def refuse_late_streams(graph: GraphView, step: StepNode, what: str) -> None:
    """Raise JobError where a step that drops late rows reads a side stream of rows that are; `what` names it."""
    if any(isinstance(above, SideNode) and above.behind_watermark for above in graph.upstream(step)):
        raise JobError(f"{what} reads a side stream, whose rows are late for every watermark", where=str(step.site))


def need_sink(graph: GraphView, step: StepNode, what: str, *outlets: str) -> None:
    """Raise MissingSink where neither the rows of a step nor those of these outlets are written; `what` names it."""
    streams: Sequence[Node | None] = (step, *(graph.side_of(step, outlet) for outlet in outlets))
    if not any(graph.reaches_sink(stream) for stream in streams if stream is not None):
        raise MissingSink(f"{what} is computed and never written", where=str(step.site))


def need_quarantine(graph: GraphView, node: Node, name: str, stream: SideNode | None, kind: str) -> None:
    """Raise MissingSink where nobody writes the rows that a step or check puts in quarantine."""
    assert stream is None or isinstance(stream, QuarantineNode)
    if stream is None or not graph.reaches_sink(stream):
        raise MissingSink(
            f"{kind} {name!r} puts rows in quarantine, but job.quarantine({name!r}) has no sink", where=str(node.site)
        )
