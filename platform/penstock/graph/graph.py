"""Check a finished graph as a whole and answer questions about its shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import JobError, MissingSink, NoEventTime, UnknownName
from penstock.graph.nodes import (
    CheckNode,
    Form,
    FunctionNode,
    LateNode,
    Node,
    QuarantineNode,
    SideNode,
    SinkNode,
    SnapshotNode,
    SourceNode,
    StatefulNode,
    WindowNode,
)
from penstock.graph.policies import OnError, OnFail
from penstock.graph.schedules import Schedule
from penstock.graph.windows import LateTo

__all__ = ["JobGraph", "checked_graph"]


@dataclass(frozen=True, eq=False)
class JobGraph:
    """Hold a job whose names, windows and policies were checked; `nodes` stand in the order they were added.

    `checkpoints` is how often the job's code wants data checkpoints, None where it does not say.
    """

    name: str
    nodes: tuple[Node, ...]
    interval: int | None
    checkpoints: Schedule | None = None

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """Return the sources in graph order."""
        return tuple(n for n in self.nodes if isinstance(n, SourceNode))

    @property
    def windows(self) -> tuple[WindowNode, ...]:
        """Return the window steps; a step stands after those it reads from."""
        return tuple(n for n in self.nodes if isinstance(n, WindowNode))

    @property
    def functions(self) -> tuple[FunctionNode, ...]:
        """Return the steps in which a function of the user's keeps state."""
        return tuple(n for n in self.nodes if isinstance(n, FunctionNode))

    @property
    def steps(self) -> tuple[StatefulNode, ...]:
        """Return the steps that keep state; each stands after those it reads from."""
        return tuple(n for n in self.nodes if isinstance(n, StatefulNode))

    @property
    def checks(self) -> tuple[CheckNode, ...]:
        """Return the checks."""
        return tuple(n for n in self.nodes if isinstance(n, CheckNode))

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        """Return the sinks."""
        return tuple(n for n in self.nodes if isinstance(n, SinkNode))

    def children(self, node: Node) -> tuple[Node, ...]:
        """Return the steps that read from this one, in graph order; a union of it with itself stands there twice."""
        return tuple(n for n in self.nodes for p in n.parents if p is node)

    def upstream(self, node: Node) -> Iterator[Node]:
        """Yield the step and everything before it; side streams lead to the steps that feed them."""
        seen: set[int] = set()
        todo = [node]
        while todo:
            current = todo.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            yield current
            todo.extend(current.parents)
            todo.extend(self.feeders(current))

    def feeders(self, node: Node) -> tuple[Node, ...]:
        """Return the steps whose side stream this is: windows for late rows, the step of its name for the others."""
        if isinstance(node, LateNode):
            return tuple(n for n in self.windows if isinstance(n.spec.late, LateTo) and n.spec.late.stream == node.name)
        if isinstance(node, QuarantineNode):
            sides: tuple[CheckNode | SourceNode | FunctionNode, ...] = (*self.checks, *self.sources, *self.functions)
            return tuple(n for n in sides if n.name == node.name)
        if isinstance(node, SnapshotNode):
            return tuple(n for n in self.functions if n.name == node.name)
        return ()

    def late_stream(self, window: WindowNode) -> LateNode | None:
        """Return the side stream of a window's late rows, None where they are dropped."""
        if not isinstance(window.spec.late, LateTo):
            return None
        name = window.spec.late.stream
        return next((n for n in self.nodes if isinstance(n, LateNode) and n.name == name), None)

    def quarantine_stream(self, name: str) -> QuarantineNode | None:
        """Return the quarantine stream of a check, source or function, None where the job does not use it."""
        return next((n for n in self.nodes if isinstance(n, QuarantineNode) and n.name == name), None)

    def snapshot_stream(self, name: str) -> SnapshotNode | None:
        """Return the stream of a step's whole state, None where the job does not use it."""
        return next((n for n in self.nodes if isinstance(n, SnapshotNode) and n.name == name), None)

    def untimed_above(self, step: StatefulNode) -> FunctionNode | None:
        """Return the vectorised step whose output, of which nobody knows the event time, this one reads; or None."""
        seen: set[int] = set()
        todo = list(step.parents)
        while todo:
            node = todo.pop()
            if id(node) in seen or isinstance(node, WindowNode | SnapshotNode):
                continue
            seen.add(id(node))
            if isinstance(node, FunctionNode) and node.form is not Form.ROWS:
                if node.form is Form.UPDATE or node.event_time is not None:
                    continue
                if not node.same_rows:
                    return node
            todo.extend((*node.parents, *self.feeders(node)))
        return None

    def sources_of(self, node: Node) -> tuple[SourceNode, ...]:
        """Return the sources upstream of a step, in graph order."""
        above = {id(n) for n in self.upstream(node)}
        return tuple(s for s in self.sources if id(s) in above)


def checked_graph(
    name: str, nodes: tuple[Node, ...], *, interval: int | None, checkpoints: Schedule | None = None
) -> JobGraph:
    """Return the graph after the checks that need all of it."""
    graph = JobGraph(name, nodes, interval, checkpoints)
    if not graph.sinks:
        raise MissingSink(f"job {name!r} writes nothing")
    for side in nodes:
        if isinstance(side, SideNode) and not graph.feeders(side):
            _refuse_unknown_side(graph, side)
    for window in graph.windows:
        _check_window(graph, window)
    for step in graph.functions:
        _check_function(graph, step)
    for check in graph.checks:
        if not _reaches_sink(graph, check):
            raise MissingSink(f"check {check.name!r} guards nothing: no sink reads its rows", where=str(check.site))
        if check.on_fail is OnFail.QUARANTINE:
            _need_quarantine(graph, check, "check")
    return graph


def _need_quarantine(graph: JobGraph, node: CheckNode | FunctionNode, kind: str) -> None:
    stream = graph.quarantine_stream(node.name)
    if stream is None or not _reaches_sink(graph, stream):
        raise MissingSink(
            f"{kind} {node.name!r} puts rows in quarantine, but job.quarantine({node.name!r}) has no sink",
            where=str(node.site),
        )


def _need_event_time(graph: JobGraph, step: StatefulNode, what: str) -> None:
    for source in graph.sources_of(step):
        if source.event_time is None:
            raise JobError(f"{what} needs event time, and source {source.name!r} has none", where=str(step.site))
    untimed = graph.untimed_above(step)
    if untimed is not None:
        raise NoEventTime(
            f"{what} needs event time, and map_with_state_arrow {untimed.name!r} at {untimed.site} does not say which "
            "its output has",
            where=str(step.site),
        )


def _check_function(graph: JobGraph, step: FunctionNode) -> None:
    if step.timeout.event_time:
        _need_event_time(graph, step, f"step {step.name!r}, which has the timeout event_time(),")
    if not any(_reaches_sink(graph, node) for node in (step, graph.snapshot_stream(step.name)) if node is not None):
        raise MissingSink(f"step {step.name!r} is computed and never written", where=str(step.site))
    if step.on_error is OnError.QUARANTINE:
        _need_quarantine(graph, step, "step")


def _check_window(graph: JobGraph, window: WindowNode) -> None:
    _need_event_time(graph, window, f"window {window.name!r}")
    if not _reaches_sink(graph, window):
        raise MissingSink(f"window {window.name!r} is computed and never written", where=str(window.site))
    if isinstance(window.spec.late, LateTo):
        stream = graph.late_stream(window)
        if stream is None or not _reaches_sink(graph, stream):
            raise MissingSink(
                f"late rows of {window.name!r} go to {window.spec.late.stream!r}, which has no sink",
                where=str(window.site),
            )


def _reaches_sink(graph: JobGraph, node: Node) -> bool:
    """Return whether rows of this step are written; each step is looked at once, whatever ways lead to it."""
    seen: set[int] = set()
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, SinkNode):
            return True
        if id(current) not in seen:
            seen.add(id(current))
            todo.extend(graph.children(current))
    return False


def _refuse_unknown_side(graph: JobGraph, side: SideNode) -> None:
    if isinstance(side, LateNode):
        known = [n.spec.late.stream for n in graph.windows if isinstance(n.spec.late, LateTo)]
        raise UnknownName(f"no window sends late rows to {side.name!r}; there is {known}", where=str(side.site))
    known = [*(n.name for n in graph.checks), *(n.name for n in graph.sources), *(n.name for n in graph.functions)]
    raise UnknownName(f"{side.name!r} is no check, source or state function; there is {known}", where=str(side.site))
