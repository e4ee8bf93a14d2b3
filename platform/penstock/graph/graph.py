"""Check a finished graph as a whole and answer questions about its shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.errors import MissingSink, UnknownName
from penstock.graph.join_static import StaticJoinNode
from penstock.graph.map_batches import MapBatchesNode
from penstock.graph.nodes import CheckNode, Node, QuarantineNode, SideNode, SinkNode, SourceNode, TransformNode
from penstock.graph.policies import MaxRate, OnFail
from penstock.graph.revision_readers import refuse_misread_revisions
from penstock.graph.schedules import Schedule
from penstock.graph.steps import EventTime, StepNode, Untimed, need_quarantine

__all__ = ["JobGraph", "checked_graph"]


@dataclass(frozen=True, eq=False)
class JobGraph:
    """A job with checked names, windows and policies; `nodes` are in the order in which the job added them.

    `checkpoints` is how often the job's code wants data checkpoints, None where it does not say. `rates` are the limits
    that it sets to sources, by name. `listeners` are the objects that hear of its batches. `estimator` makes the one of
    its rates, None where the configuration says which.
    """

    name: str
    nodes: tuple[Node, ...]
    interval: int | None
    checkpoints: Schedule | None = None
    rates: Mapping[str, MaxRate] = field(default_factory=dict)
    listeners: tuple[Any, ...] = ()
    estimator: Callable[[float], Any] | None = None

    @property
    def task_forms(self) -> dict[str, dict[str, Any]]:
        """Return, by sink, how tasks write its files, as plain JSON; nothing for sinks whose rows are staged."""
        return {node.name: asdict(form) for node in self.sinks if (form := node.sink.task_form()) is not None}

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """Return the sources in graph order."""
        return tuple(n for n in self.nodes if isinstance(n, SourceNode))

    @property
    def steps(self) -> tuple[StepNode, ...]:
        """Return the steps that keep state, each after those it reads from."""
        return tuple(n for n in self.nodes if isinstance(n, StepNode))

    @property
    def functions(self) -> tuple[MapBatchesNode | TransformNode, ...]:
        """Return the steps without state whose functions get the facts of each batch."""
        return tuple(
            n for n in self.nodes if isinstance(n, MapBatchesNode) or (isinstance(n, TransformNode) and n.per_batch)
        )

    @property
    def static_joins(self) -> tuple[StaticJoinNode, ...]:
        """Return the joins with tables."""
        return tuple(n for n in self.nodes if isinstance(n, StaticJoinNode))

    @property
    def checks(self) -> tuple[CheckNode, ...]:
        """Return the checks."""
        return tuple(n for n in self.nodes if isinstance(n, CheckNode))

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        """Return the sinks."""
        return tuple(n for n in self.nodes if isinstance(n, SinkNode))

    def children(self, node: Node) -> tuple[Node, ...]:
        """Return the steps that read from this one, in graph order; a union of it with itself is there twice."""
        return tuple(n for n, _ in self.readers(node))

    def readers(self, node: Node) -> tuple[tuple[Node, int], ...]:
        """Return the same, each with the place of this step among those that it reads."""
        return tuple((n, place) for n in self.nodes for place, parent in enumerate(n.parents) if parent is node)

    def upstream(self, node: Node) -> Iterator[Node]:
        """Yield the step and everything before it; side streams lead to the steps that feed them."""
        return _walk((node,), self._above)

    def feeders(self, node: Node) -> tuple[Node, ...]:
        """Return what fills a side stream: the steps that name it, and the check or source of a quarantine's name."""
        if not isinstance(node, SideNode):
            return ()
        steps: list[Node] = [n for n in self.steps if (type(node), node.name) in n.spec.side_streams(n.name).values()]
        if not isinstance(node, QuarantineNode):
            return tuple(steps)
        return (
            *(n for n in self.checks if n.name == node.name),
            *(n for n in self.sources if n.name == node.name),
            *steps,
        )

    def side_stream(self, kind: type[SideNode], name: str) -> SideNode | None:
        """Return the side stream of this kind and name, None where the job does not use it."""
        return next((n for n in self.nodes if type(n) is kind and isinstance(n, SideNode) and n.name == name), None)

    def side_of(self, step: StepNode, outlet: str) -> SideNode | None:
        """Return the side stream that the rows of an outlet are, None where the job does not use it."""
        named = step.spec.side_streams(step.name).get(outlet)
        return None if named is None else self.side_stream(*named)

    def quarantine_stream(self, name: str) -> SideNode | None:
        """Return the quarantine stream of a check or source, None where the job does not use it."""
        return self.side_stream(QuarantineNode, name)

    def untimed_above(self, step: StepNode) -> Untimed | None:
        """Return the step before this one whose output has no event time that is known, None where there is none."""

        def timed_by(node: Node) -> tuple[Node, ...]:
            """Return what the event time of these rows comes from, nothing where they have their own."""
            if isinstance(node, StepNode):
                return () if node.spec.event_time_of_output is EventTime.OWN else node.parents
            return () if isinstance(node, SideNode) and node.own_time else self._above(node)

        for node in _walk(step.parents, timed_by):
            if isinstance(node, MapBatchesNode) and not node.same_rows:
                return node
            if isinstance(node, StepNode) and node.spec.event_time_of_output is EventTime.UNKNOWN:
                return node
        return None

    def reaches_sink(self, node: Node) -> bool:
        """Return whether rows of this step are written."""
        return any(isinstance(below, SinkNode) for below in _walk((node,), self.children))

    def sources_of(self, node: Node) -> tuple[SourceNode, ...]:
        """Return the sources upstream of a step, in graph order."""
        above = {id(n) for n in self.upstream(node)}
        return tuple(s for s in self.sources if id(s) in above)

    def lag_above(self, node: Node) -> int:
        """Return by how much what a step reads may be older than the watermark of its sources."""
        return sum(n.spec.lag_of_output for n in self.upstream(node) if isinstance(n, StepNode) and n is not node)

    def shape(self) -> list[dict[str, Any]]:
        """Return which step reads which, as JSON values, for a driver's record: pages load no job.

        For each step, in graph order, its `kind`, its `name`, empty for none, and the places of those that it `reads`.
        """
        places = {id(node): place for place, node in enumerate(self.nodes)}
        return [
            {
                "kind": node.spec.kind
                if isinstance(node, StepNode)
                else getattr(node, "method", type(node).__name__.removesuffix("Node").lower()),
                "name": str(getattr(node, "name", "")),
                "reads": sorted({places[id(above)] for above in self._above(node)}),
            }
            for node in self.nodes
        ]

    def _above(self, node: Node) -> tuple[Node, ...]:
        return (*node.parents, *self.feeders(node))


def _walk(starts: Iterable[Node], onward: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """Yield these nodes and what leads on from each; each node once, whatever ways lead to it."""
    seen: set[int] = set()
    todo = list(starts)
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.extend(onward(node))


def checked_graph(
    name: str,
    nodes: tuple[Node, ...],
    *,
    interval: int | None,
    checkpoints: Schedule | None = None,
    rates: Mapping[str, MaxRate] | None = None,
    listeners: tuple[Any, ...] = (),
    estimator: Callable[[float], Any] | None = None,
) -> JobGraph:
    """Return the graph after the checks that need all of it."""
    graph = JobGraph(name, nodes, interval, checkpoints, rates or {}, listeners, estimator)
    if not graph.sinks:
        raise MissingSink(f"job {name!r} writes nothing")
    for side in nodes:
        if isinstance(side, SideNode) and not graph.feeders(side):
            _refuse_unknown_side(graph, side)
    for step in graph.steps:
        step.spec.check(step, graph)
    refuse_misread_revisions(nodes)
    for check in graph.checks:
        if not graph.reaches_sink(check):
            raise MissingSink(f"check {check.name!r} guards nothing: no sink reads its rows", where=str(check.site))
        if check.on_fail is OnFail.QUARANTINE:
            need_quarantine(graph, check, check.name, graph.quarantine_stream(check.name), "check")
    return graph


def _refuse_unknown_side(graph: JobGraph, side: SideNode) -> None:
    known = [name for n in graph.steps for kind, name in n.spec.side_streams(n.name).values() if isinstance(side, kind)]
    if isinstance(side, QuarantineNode):
        known = [*(n.name for n in graph.checks), *(n.name for n in graph.sources), *known]
    raise UnknownName(f"{side.unknown.format(name=repr(side.name))}; there is {known}", where=str(side.site))
