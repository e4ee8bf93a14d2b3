"""Describe which step of a job reads which, as JSON values, for a driver's record: pages load no job."""

from __future__ import annotations

from typing import Any

from penstock.graph.graph import JobGraph
from penstock.graph.steps import StepNode

__all__ = ["shape_of"]


def shape_of(graph: JobGraph) -> list[dict[str, Any]]:
    """Return the `kind` of each step in graph order, its `name`, empty for none, and what it `reads` by place."""
    places = {id(node): place for place, node in enumerate(graph.nodes)}
    return [
        {
            "kind": node.spec.kind if isinstance(node, StepNode) else type(node).__name__.removesuffix("Node").lower(),
            "name": str(getattr(node, "name", "")),
            "reads": sorted({places[id(above)] for above in (*node.parents, *graph.feeders(node))}),
        }
        for node in graph.nodes
    ]
