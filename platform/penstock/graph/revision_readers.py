"""Follow revisions of windows downstream: what reads them must say what it makes of them (SEMANTICS 2.6).

A window that revises emits a key more than once. A step that took each row for a new one would count rows twice. So
each step either says what it does, which `explain` shows, or the graph is refused.

A revision of a session may have another window than the rows that it replaces. A sink that keeps the newest row of a
key and window would keep these as well. So it gets a row for each that is taken back, which tells it to delete that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.errors import RetractionsLost, RevisionsMisread
from penstock.graph.nodes import CheckNode, FilterNode, Node, SelectNode, SinkNode, UnionNode, WithColumnsNode
from penstock.graph.policies import Accumulation
from penstock.graph.steps import StepNode
from penstock.graph.windows import PANE, REVISION

__all__ = ["needs_retractions", "refuse_misread_revisions", "revising_above", "use_of_revisions"]


def revising_above(node: Node) -> Iterator[StepNode]:
    """Yield the steps whose revisions a node reads; each once."""
    seen: set[int] = set()
    todo = [*node.parents]
    while todo:
        above = todo.pop()
        if id(above) in seen:
            continue
        seen.add(id(above))
        if isinstance(above, StepNode) and above.spec.revises is not None:
            yield above
        elif not isinstance(above, StepNode) or above.spec.passes_revisions:
            todo.extend(above.parents)


def needs_retractions(step: StepNode, nodes: Iterable[Node]) -> bool:
    """Return whether a sink keeps rows of a step that a revision with another window replaces."""
    return any(
        isinstance(node, SinkNode) and above is step and _replaces(node, above)
        for node in nodes
        for above in revising_above(node)
    )


def refuse_misread_revisions(nodes: Iterable[Node]) -> None:
    """Raise RevisionsMisread for a step or a sink that would count rows twice, or lose some.

    Raises RetractionsLost for a sink that would keep rows that a step has taken back.
    """
    for node in nodes:
        for above in revising_above(node):
            panes = above.spec.revises
            assert panes is not None
            why = None
            if isinstance(node, StepNode) and node.spec.of_revisions(node, panes) is None:
                why = "would take each of them for a new row"
            elif isinstance(node, SinkNode):
                why = _wrong_keys(node, panes, above.spec.window_columns)
            if why is not None:
                raise RevisionsMisread(
                    f"{_named(node)} reads revisions of window {above.name!r}, {panes.value}, and {why}",
                    where=str(node.site),
                )
            if isinstance(node, SinkNode) and _replaces(node, above) and (lost := _loses_retractions(node)):
                raise RetractionsLost(
                    f"{_named(node)} would keep rows of window {above.name!r} that others have replaced: {lost}",
                    where=str(node.site),
                )


def use_of_revisions(node: Node) -> str | None:
    """Return in words what a node makes of the revisions that it reads, for `explain`; None where it reads none."""
    revising = next(revising_above(node), None)
    panes = None if revising is None else revising.spec.revises
    if panes is None:
        return None
    if isinstance(node, StepNode):
        return node.spec.of_revisions(node, panes)
    if isinstance(node, FilterNode) and panes is Accumulation.ACCUMULATING:
        return "where it drops a revision the one before stays the newest"
    if isinstance(node, CheckNode):
        return "revisions are judged with the rows of their window in the same batch"
    if isinstance(node, SinkNode):
        keys = _keys(node)
        if not keys:
            return f"revisions are rows of their own, with the highest {REVISION} the newest"
        if REVISION in keys:
            return "revisions are rows of their own"
        deletes = "; a row that is taken back is deleted" if revising is not None and _replaces(node, revising) else ""
        return f"the newest revision of a key replaces others{deletes}"
    return None


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
    """Return what between a step and a sink loses a column or rows that tell what is taken back."""
    for above in node.parents:
        if isinstance(above, FilterNode) and (PANE in above.predicate or REVISION in above.predicate):
            return f"filter {above.predicate!r} may drop the rows that say so"
        if isinstance(above, SelectNode) and (lacks := sorted(needed - {*above.expressions})):
            return f"select leaves out or changes {lacks[0]!r}"
        if isinstance(above, WithColumnsNode) and (changes := sorted(needed & {*above.columns})):
            return f"with_columns changes {changes[0]!r}"
        if isinstance(above, StepNode) and above.spec.revises is not None:
            continue
        passes = isinstance(above, FilterNode | SelectNode | WithColumnsNode | CheckNode | UnionNode)
        if not (passes or (isinstance(above, StepNode) and above.spec.passes_revisions)):
            return f"a {type(above).__name__.removesuffix('Node').lower()} may change {PANE!r}"
        if why := _without_panes(above, needed):
            return why
    return None


def _named(node: Node) -> str:
    if isinstance(node, StepNode):
        return f"{node.method} {node.name!r}"
    return f"sink {node.name!r}" if isinstance(node, SinkNode) else type(node).__name__


def _wrong_keys(node: SinkNode, panes: Accumulation, window_columns: frozenset[str]) -> str | None:
    """Return why a sink that replaces rows by their keys would lose some, None where it would not."""
    keys = _keys(node)
    if not keys:
        return None
    if panes is Accumulation.DISCARDING and REVISION not in keys:
        return f"would replace a pane by the rows that came after it; add {REVISION!r} to its keys"
    if window_columns and _named_as_emitted(node) and window_columns.isdisjoint(keys):
        return "would replace a window by a revision of an older one; add 'window_end' to its keys"
    return None


def _named_as_emitted(node: Node) -> bool:
    """Return whether the columns that a node reads are those of the window itself."""
    return all(
        isinstance(above, StepNode)
        or (isinstance(above, FilterNode | CheckNode | UnionNode) and _named_as_emitted(above))
        for above in node.parents
    )


def _keys(node: SinkNode) -> tuple[str, ...]:
    return tuple(getattr(node.sink, "keys", ()))
