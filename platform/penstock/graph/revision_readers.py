"""Follow revisions of windows downstream: what reads them must say what it makes of them (SEMANTICS 2.6).

A window that revises emits a key more than once. A step that took each row for a new one would count rows twice. So
each step either says what it does, which `explain` shows, or the graph is refused.

A revision of a session may have another window than the rows that it replaces. A sink that keeps the newest row of a
key and window would keep these as well. So it gets a row for each that is taken back, which tells it to delete that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from penstock.errors import RetractionsLost, RevisionsMisread
from penstock.graph.durations import Duration
from penstock.graph.join_arguments import JoinKind
from penstock.graph.join_static import StaticJoinNode
from penstock.graph.map_batches import MapBatchesNode
from penstock.graph.nodes import (
    CheckNode,
    FilterNode,
    Node,
    SelectNode,
    SideNode,
    SinkNode,
    UnionNode,
    WithColumnsNode,
)
from penstock.graph.policies import Accumulation
from penstock.graph.steps import StepNode
from penstock.graph.windows import PANE, REVISION

_ALIAS = re.compile(r"(?P<of>.*[\s)`])(?:as\s*)?`?(?P<name>\w+)`?", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"\w+")
_DROPPED = "where it drops a revision the one before stays the newest"

__all__ = [
    "deletes_retracted",
    "needs_retractions",
    "refuse_misread_revisions",
    "revising_above",
    "use_of_revisions",
]


def revising_above(node: Node, *, times: bool = False) -> Iterator[StepNode]:
    """Yield the steps whose revisions a node reads, or with `times` rows of their event times; each once."""
    seen: set[int] = set()
    todo = [*node.parents]
    while todo:
        above = todo.pop()
        if id(above) in seen:
            continue
        seen.add(id(above))
        if isinstance(above, StepNode) and above.spec.revises is not None:
            yield above
        elif not isinstance(above, StepNode) or above.spec.passes_revisions or (times and above.spec.passes_times):
            todo.extend(above.parents)


def needs_retractions(step: StepNode, nodes: Iterable[Node]) -> bool:
    """Return whether a sink keeps rows of a step that a revision with another window replaces."""
    return any(
        isinstance(node, SinkNode) and above is step and _replaces(node, above)
        for node in nodes
        for above in revising_above(node)
    )


def deletes_retracted(node: SinkNode) -> bool:
    """Return whether a sink deletes the rows that a step above it takes back."""
    return any(_replaces(node, above) for above in revising_above(node))


def refuse_misread_revisions(nodes: Iterable[Node]) -> None:
    """Raise RevisionsMisread for a step or a sink that would count rows twice, or lose some.

    Raises RetractionsLost for a sink that would keep rows that a step has taken back.
    """
    for node in nodes:
        for above in revising_above(node):
            panes = above.spec.revises
            assert panes is not None
            if isinstance(node, SinkNode) and _replaces(node, above) and (lost := _loses_retractions(node)):
                raise RetractionsLost(
                    f"{_named(node)} would keep rows of window {above.name!r} that others have replaced: {lost}",
                    where=str(node.site),
                )
            why = None
            if isinstance(node, StepNode) and node.spec.of_revisions(node, panes) is None:
                why = "would take each of them for a new row"
            elif isinstance(node, SinkNode):
                why = _wrong_keys(node, panes, above)
            if why is not None:
                raise RevisionsMisread(
                    f"{_named(node)} reads revisions of window {above.name!r}, {panes.value}, and {why}",
                    where=str(node.site),
                )
        if isinstance(node, StepNode):
            _refuse_dropped_revisions(node)


def use_of_revisions(node: Node) -> str | None:
    """Return in words what a node makes of the revisions that it reads, for `explain`; None where it reads none."""
    revising = next(revising_above(node), None)
    panes = None if revising is None else revising.spec.revises
    if panes is None or isinstance(node, SideNode):
        return None
    match node:
        case StepNode():
            return node.spec.of_revisions(node, panes)
        case CheckNode():
            return "revisions are judged with the rows of their window in the same batch"
        case SinkNode():
            return _kept(node, revising)
        case MapBatchesNode():
            return "the function gets revisions as rows of their own"
        case StaticJoinNode():
            return _joined(node, panes)
        case FilterNode() if panes is Accumulation.ACCUMULATING:
            return f"revisions are rows of their own, and {_DROPPED}"
    return "revisions are rows of their own"


def _kept(node: SinkNode, revising: StepNode | None) -> str:
    keys = _keys(node)
    if not keys:
        return f"revisions are rows of their own, with the highest {REVISION} the newest"
    if REVISION in keys:
        return "revisions are rows of their own"
    deletes = "; a row that is taken back is deleted" if revising is not None and _replaces(node, revising) else ""
    return f"the newest revision of a key replaces others{deletes}"


def _joined(node: StaticJoinNode, panes: Accumulation) -> str:
    said = "revisions are rows of their own, each joined with the version of the table in its batch"
    drops = node.how is JoinKind.INNER and panes is Accumulation.ACCUMULATING
    return f"{said}, and {_DROPPED}" if drops else said


def _replaces(node: SinkNode, above: StepNode) -> bool:
    """Return whether a sink keeps the newest row of each window of a step whose revisions may have other windows."""
    keys = _keys(node)
    return bool(keys) and REVISION not in keys and above.spec.moves_windows


def _loses_retractions(node: SinkNode) -> str | None:
    """Return why a sink would not delete what is taken back, None where it would."""
    if not getattr(node.sink, "retracts", False):
        return f"{type(node.sink).__name__} deletes no rows"
    return _without_panes(node, {PANE, *_keys(node)})


def _without_panes(node: Node, needed: set[str]) -> str | None:
    """Return what between a step and a sink loses a column or rows that tell what is taken back.

    Spark replaces and reads columns in any case. A `select` that changes the case gives another name to what follows.
    """
    for above in node.parents:
        if isinstance(above, FilterNode) and any(name in above.predicate.lower() for name in (PANE, REVISION)):
            return f"filter {above.predicate!r} may drop the rows that say so"
        if isinstance(above, SelectNode) and (lacks := sorted(needed - {*above.expressions})):
            return f"select leaves out or changes {lacks[0]!r}"
        if isinstance(above, WithColumnsNode) and (changes := sorted(_lower(needed) & _lower(above.columns))):
            return f"with_columns changes {changes[0]!r}"
        if isinstance(above, StepNode) and above.spec.revises is not None:
            continue
        if isinstance(above, StepNode) and above.spec.passes_revisions and PANE not in above.keys[0]:
            return f"{above.method} {above.name!r} drops the rows that say so; add {PANE!r} to its keys"
        passes = isinstance(above, FilterNode | SelectNode | WithColumnsNode | CheckNode | UnionNode)
        if not (passes or (isinstance(above, StepNode) and above.spec.passes_revisions)):
            return f"a {type(above).__name__.removesuffix('Node').lower()} may change {PANE!r}"
        if why := _without_panes(above, needed):
            return why
    return None


def _refuse_dropped_revisions(node: StepNode) -> None:
    """Raise RevisionsMisread for a step that would drop revisions, or what a function makes of them, as late rows."""
    drops_after = node.spec.drops_after
    for above in () if drops_after is None else revising_above(node, times=True):
        lateness = above.spec.revises_for
        # A revision is a microsecond older than its window's end. A watermark of end + lateness still holds a session.
        if drops_after is not None and drops_after <= lateness + 1:
            raise RevisionsMisread(
                f"{_named(node)} would drop revisions of window {above.name!r} as late, because within= is "
                f"{Duration(drops_after)} and they come until {Duration(lateness)} after the end of a window; choose "
                "a longer within=",
                where=str(node.site),
            )


def _named(node: Node) -> str:
    if isinstance(node, StepNode):
        return f"{node.method} {node.name!r}"
    return f"sink {node.name!r}" if isinstance(node, SinkNode) else type(node).__name__


def _wrong_keys(node: SinkNode, panes: Accumulation, revising: StepNode) -> str | None:
    """Return why a sink that replaces rows by their keys would lose some, None where it would not."""
    keys = _keys(node)
    if not keys:
        return None
    if panes is Accumulation.DISCARDING and REVISION not in keys:
        return f"would replace a pane by the rows that came after it; add {REVISION!r} to its keys"
    if revising.spec.window_columns and _mixes_windows(node, revising, _lower(keys)):
        return "would replace a window by a revision of an older one; add 'window_end' to its keys"
    return None


def _mixes_windows(node: Node, revising: StepNode, names: set[str]) -> bool:
    """Return whether no window column of a step reaches the keys, on a way without functions of the user's.

    `names` has the columns that make the keys, as `node` reads them, in lower case.
    """
    for above in node.parents:
        if above is revising:
            if revising.spec.window_columns.isdisjoint(names):
                return True
            continue
        read = names
        if isinstance(above, SelectNode):
            read = _read_by_select(above, names)
        elif isinstance(above, WithColumnsNode):
            made = {name.lower(): expression for name, expression in above.columns.items()}
            read = names.difference(made).union(*(_words(made[name]) for name in names & {*made}))
        elif not (
            isinstance(above, FilterNode | CheckNode | UnionNode)
            or (isinstance(above, StepNode) and above.spec.passes_revisions)
        ):
            continue
        if _mixes_windows(above, revising, read):
            return True
    return False


def _read_by_select(node: SelectNode, names: set[str]) -> set[str]:
    """Return the words of the expressions that make columns; any may be among those of a star."""
    read: set[str] = set()
    for expression in node.expressions:
        made = _ALIAS.fullmatch(expression.strip())
        name = made["name"] if made else expression.strip().strip("`")
        if name.endswith("*"):
            read |= names | _words(expression)
        elif name.lower() in names or name.rpartition(".")[2].lower() in names:
            read |= _words(made["of"] if made else expression)
    return read


def _words(expression: str) -> set[str]:
    return {*_WORD.findall(expression.lower())}


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _keys(node: SinkNode) -> tuple[str, ...]:
    return tuple(getattr(node.sink, "keys", ()))
