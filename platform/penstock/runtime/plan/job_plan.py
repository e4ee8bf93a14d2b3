"""Turn a graph into the stages of one Spark job: ingest branches, shuffles with state work, and hops.

The plan is a pure value; `penstock explain` prints it and `runtime.plan.frame_builder` builds it.

A *port* is a stream that Python work produces: a source, the output of a stateful step, or a side stream.
A *branch* leads from a port through steps without state (filter, select, with_columns, functions, caches) to leaves; a
source's branch without an expression needs no Spark (`plain_rows`).
A *fork* holds the branches of a source that are computed side by side in one pass, because no function parts them.
A *leaf* is Python work again: the map side of a stateful step, or the staging of sinks, guarded by a check or not.
A *hop* runs one branch of a port that lies inside the job, without a shuffle.
A *shuffle* brings the rows of stateful steps, or partials of them, to the tasks that own their state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile

from penstock.errors import JobError
from penstock.graph.cache import CacheNode
from penstock.graph.graph import JobGraph
from penstock.graph.join_static import StaticJoinNode
from penstock.graph.map_batches import MapBatchesNode
from penstock.graph.nodes import (
    CheckNode,
    FilterNode,
    Node,
    SideNode,
    SinkNode,
    SourceNode,
    TransformNode,
    UnionNode,
)
from penstock.graph.steps import StepNode

__all__ = [
    "SEVERAL_BEHIND_STEP",
    "Branch",
    "Fork",
    "Hop",
    "JobPlan",
    "Leaf",
    "Shuffle",
    "SinkLeaf",
    "StepLeaf",
    "plan_job",
    "port_name",
]

SEVERAL_BEHIND_STEP = (
    "map_with_state('words', fn, state='none boolean', output='k string, word string', unbounded=True), whose "
    "fn(time, key, row, state) returns a list of rows and keeps no state"
)
"""What makes several rows of one after a step with state; they keep the place of their row (SEMANTICS 1.6)."""


@dataclass(frozen=True, slots=True)
class StepLeaf:
    """Make rows ready for the input `side` of a stateful step, before the shuffle: a window's are pre-aggregated."""

    step: StepNode
    side: int


@dataclass(frozen=True, slots=True)
class SinkLeaf:
    """Stage rows for sinks; with a check, measured and split by the rules they fail."""

    sinks: tuple[SinkNode, ...]
    check: CheckNode | None = None


Leaf = StepLeaf | SinkLeaf


@dataclass(frozen=True, slots=True)
class Branch:
    """The way from a port to leaves that read the same columns."""

    port: Node
    chain: tuple[Node, ...]
    leaves: tuple[Leaf, ...]
    accounts: bool
    """Whether this branch counts the rows of its source: one branch a source does."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The branches of a source that are computed in one pass over its rows.

    `stem` are the steps that all of them begin with, transforms included.
    """

    source: SourceNode
    stem: tuple[Node, ...]
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """Run one branch of a port inside the job.

    `lane` is the name its rows travel by: a port that several hops read sends its rows to each.
    """

    branch: Branch
    lane: str


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Bring rows and partials to their state partitions and run the state work of these steps."""

    steps: tuple[StepNode, ...]

    @property
    def partitions(self) -> int:
        """Return the number of tasks: the largest number of partitions of its steps."""
        return max(step.partitions for step in self.steps)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The whole plan of a job's batches."""

    graph: JobGraph
    ingest: tuple[Fork, ...]
    """How the rows of sources come in: several forks of one share what one reading of it gives."""
    stages: tuple[Hop | Shuffle, ...]
    direct: dict[str, tuple[SinkNode, ...]] = field(default_factory=dict)
    """For each port inside the job the sinks that take its rows as they are, staged where the rows appear."""

    def branches(self) -> Iterator[Branch]:
        """Yield every branch, ingest first."""
        for fork in self.ingest:
            yield from fork.branches
        for stage in self.stages:
            if isinstance(stage, Hop):
                yield stage.branch

    def kept(self, cache: CacheNode) -> bool:
        """Return whether a cache has anything to keep: several forks read the rows, each for itself."""
        return sum(any(node is cache for node in fork.stem) for fork in self.ingest) > 1

    def lanes(self, port: str) -> tuple[str, ...]:
        """Return the lanes of the hops that read a port."""
        return tuple(s.lane for s in self.stages if isinstance(s, Hop) and port_name(s.branch.port) == port)


def port_name(node: Node) -> str:
    """Return the name under which a port's rows travel."""
    match node:
        case SourceNode(name=name):
            return f"source:{name}"
        case StepNode():
            return node.counted_as
        case SideNode(name=name):
            return f"{node.kind}:{name}"
    raise TypeError(f"{type(node).__name__} is not a port")


def plan_job(graph: JobGraph) -> JobPlan:
    """Plan the Spark job of a batch: every leaf is reached, and nothing is read before it was produced."""
    _refuse_unsupported(graph)
    ingest = [fork for source in graph.sources for fork in _forks(source, _branches(graph, source))]
    ports = [n for n in graph.nodes if isinstance(n, StepNode | SideNode)]
    direct = {port_name(p): tuple(_direct_sinks(graph, p)) for p in ports}
    stages: list[Hop | Shuffle] = []
    waiting = [Hop(b, f"{port_name(p)}#{i}") for p in ports for i, b in enumerate(_branches(graph, p))]
    todo = list(graph.steps)
    while waiting or todo:
        hop = next((h for h in waiting if _complete(graph, h.branch.port, todo, waiting)), None)
        if hop is not None:
            waiting.remove(hop)
            stages.append(hop)
            continue
        ready = tuple(w for w in todo if not _inputs_missing(graph, w, todo, waiting))
        if not ready:
            raise JobError(f"job {graph.name!r} feeds a step from its own output")
        todo = [w for w in todo if not any(w is r for r in ready)]
        stages.append(Shuffle(ready))
    return JobPlan(graph, tuple(ingest), tuple(stages), direct)


def _direct_sinks(graph: JobGraph, node: Node) -> Iterator[SinkNode]:
    """Yield the sinks that read a stream as it is, also where it was put together with others."""
    for child in graph.children(node):
        if isinstance(child, SinkNode):
            yield child
        elif isinstance(child, UnionNode):
            yield from _direct_sinks(graph, child)


def _branches(graph: JobGraph, port: Node) -> list[Branch]:
    """Return the branches of a port; leaves after the same chain share one."""
    by_chain: dict[tuple[int, ...], tuple[tuple[Node, ...], list[Leaf]]] = {}

    def walk(node: Node, chain: tuple[Node, ...]) -> None:
        sinks: list[SinkNode] = []
        for child, place in graph.readers(node):
            match child:
                case SinkNode():
                    sinks.append(child)
                case StepNode():
                    leaves(chain).append(StepLeaf(child, place))
                case CheckNode():
                    guarded = tuple(c for c in graph.children(child) if isinstance(c, SinkNode))
                    leaves(chain).append(SinkLeaf(guarded, child))
                case UnionNode():
                    walk(child, chain)
                case _:
                    walk(child, (*chain, child))
        if sinks:
            leaves(chain).append(SinkLeaf(tuple(sinks)))

    def leaves(chain: tuple[Node, ...]) -> list[Leaf]:
        return by_chain.setdefault(tuple(id(n) for n in chain), (chain, []))[1]

    walk(port, ())
    inside = not isinstance(port, SourceNode)
    if inside and () in by_chain:
        # Sinks that take the rows of a port as they are need no hop: its rows are staged where they appear.
        guarded = [leaf for leaf in by_chain[()][1] if isinstance(leaf, StepLeaf) or leaf.check is not None]
        by_chain[()] = ((), guarded)
    by_chain = {key: branch for key, branch in by_chain.items() if branch[1]}
    branches = [Branch(port, chain, tuple(leaves), accounts=False) for chain, leaves in by_chain.values()]
    return branches if inside else _with_accounting(port, branches)


def _with_accounting(source: Node, branches: list[Branch]) -> list[Branch]:
    """Return a source's branches with one of them counting its rows, and each filter counted by at least one.

    A transform may drop rows or make more of them, so a branch that ends before it counts the filters before it.
    """
    counted = {id(node) for branch in branches for node in _behind_transforms(branch.chain)}
    ends: dict[tuple[int, ...], tuple[Node, ...]] = {}
    for branch in branches:
        for place, node in enumerate(branch.chain):
            before = branch.chain[:place]
            filters = [n for n in _behind_transforms(before) if isinstance(n, FilterNode)]
            if isinstance(node, TransformNode) and any(id(n) not in counted for n in filters):
                ends[tuple(id(n) for n in before)] = before
    made = [*(Branch(source, chain, (), accounts=False) for chain in ends.values()), *branches]
    for place, branch in enumerate(made):
        if not any(isinstance(n, TransformNode) for n in branch.chain):
            made[place] = replace(branch, accounts=True)
            return made
    return [Branch(source, (), (), accounts=True), *made]


def _forks(source: SourceNode, branches: list[Branch]) -> Iterator[Fork]:
    """Yield the branches of a source by the functions on their way, of which nobody knows which rows they give."""
    by_transforms: dict[tuple[int, ...], list[Branch]] = {}
    for branch in branches:
        last = max((place for place, node in enumerate(branch.chain, 1) if _makes_rows(node)), default=0)
        changed = branch.chain[:last]
        by_transforms.setdefault(tuple(id(node) for node in changed), []).append(branch)
    for together in by_transforms.values():
        same = takewhile(
            lambda nodes: len({id(n) for n in nodes}) == 1, zip(*(b.chain for b in together), strict=False)
        )
        yield Fork(source, tuple(nodes[0] for nodes in same), tuple(together))


def _makes_rows(node: Node) -> bool:
    return isinstance(node, TransformNode | MapBatchesNode | StaticJoinNode)


def _behind_transforms(chain: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the steps after the last transform: the ones whose rows a branch can still count."""
    last = max((place for place, node in enumerate(chain) if isinstance(node, TransformNode)), default=-1)
    return chain[last + 1 :]


def _complete(graph: JobGraph, port: Node, todo: list[StepNode], waiting: list[Hop]) -> bool:
    """Return whether everything that adds rows to the port has run."""
    if isinstance(port, StepNode):
        return not any(port is w for w in todo)
    for feeder in graph.feeders(port):
        # Rows that the map side of a step emits leave before its state work, all others after it.
        ahead = feeder if isinstance(feeder, StepNode) and _leaves_early(port, feeder) else None
        inside = [n for n in graph.upstream(feeder) if isinstance(n, StepNode) and n is not ahead]
        if any(any(n is w for w in todo) for n in inside):
            return False
        if any(_leads_to(hop.branch, feeder) for hop in waiting):
            return False
    return True


def _leaves_early(port: Node, step: StepNode) -> bool:
    streams = step.spec.side_streams(step.name)
    outlets = [outlet for outlet, (kind, name) in streams.items() if isinstance(port, kind) and port.name == name]
    return step.spec.before_shuffle.issuperset(outlets)


def _leads_to(branch: Branch, node: Node) -> bool:
    return any(
        (isinstance(leaf, StepLeaf) and leaf.step is node) or (isinstance(leaf, SinkLeaf) and leaf.check is node)
        for leaf in branch.leaves
    )


def _inputs_missing(graph: JobGraph, step: StepNode, todo: list[StepNode], waiting: list[Hop]) -> bool:
    above = [n for n in graph.upstream(step) if isinstance(n, StepNode) and n is not step]
    return any(any(n is w for w in todo) for n in above) or any(_leads_to(h.branch, step) for h in waiting)


def _refuse_unsupported(graph: JobGraph) -> None:
    for check in graph.checks:
        other = [c for c in graph.children(check) if not isinstance(c, SinkNode)]
        if other:
            raise JobError(
                f"check {check.name!r} is followed by another step; its verdict is known only when the whole unit "
                "was seen, so write its rows first and check last",
                where=str(other[0].site),
            )
    for branch in (b for n in graph.nodes if isinstance(n, StepNode | SideNode) for b in _branches(graph, n)):
        late = next((n for n in branch.chain if isinstance(n, TransformNode)), None)
        if late is not None:
            raise JobError(
                f"transform {late.name!r} follows a stateful step, whose state work a DataFrame function would run "
                "twice. Transform before the window or in the reader of the sink; for several rows of one use "
                + SEVERAL_BEHIND_STEP,
                where=str(late.site),
            )
        unknown = next((n for n in branch.chain if isinstance(n, MapBatchesNode) and not n.same_rows), None)
        if unknown is not None:
            raise JobError(
                f"map_batches {unknown.name!r} follows a stateful step without same_rows=True. Its rows would have no "
                "place among those of other tasks (SEMANTICS 1.6). Return a row for each, and filter after it; for "
                "several rows of one use " + SEVERAL_BEHIND_STEP,
                where=str(unknown.site),
            )
