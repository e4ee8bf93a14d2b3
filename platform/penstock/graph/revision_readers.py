"""Follow revisions of windows downstream: what reads them must say what it makes of them (SEMANTICS 2.6).

A window that revises emits a key more than once. A step that took each row for a new one would count rows twice. So
each step either says what it does, which `explain` shows, or the graph is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.errors import RevisionsMisread
from penstock.graph.nodes import CheckNode, FilterNode, Node, SinkNode, UnionNode
from penstock.graph.policies import Accumulation
from penstock.graph.steps import StepNode
from penstock.graph.windows import REVISION

__all__ = ["refuse_misread_revisions", "revising_above", "use_of_revisions"]


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


def refuse_misread_revisions(nodes: Iterable[Node]) -> None:
    """Raise RevisionsMisread for a step or a sink that would count rows twice, or lose some."""
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
        return "revisions are rows of their own" if REVISION in keys else "the newest revision of a key replaces others"
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
    if _named_as_emitted(node) and window_columns.isdisjoint(keys):
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
