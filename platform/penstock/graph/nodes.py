"""Hold the steps of a job as frozen values linked by their parents; none knows how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.graph.policies import OnFail
from penstock.graph.source_location import SourceLocation, user_site

__all__ = [
    "CheckNode",
    "FilterNode",
    "LateNode",
    "Node",
    "QuarantineNode",
    "SelectNode",
    "SideNode",
    "SinkNode",
    "SnapshotNode",
    "SourceNode",
    "TransformNode",
    "UnionNode",
    "WithColumnsNode",
]


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """Hold what every step has: the user's line. Two steps are equal only if they are the same object."""

    site: SourceLocation = field(default_factory=user_site)

    @property
    def parents(self) -> tuple[Node, ...]:
        """Return the steps this one reads from, in order."""
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceNode(Node):
    """Read rows; `order` is the source's place in the graph, durations are microseconds."""

    name: str
    source: Any
    order: int
    event_time: str | None = None
    max_out_of_order: int = 0
    idle_after: int | None = None
    max_future: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class _OneParent(Node):
    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        """Return the one step this one reads from."""
        return (self.parent,)


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterNode(_OneParent):
    """Keep the rows where a Spark SQL predicate is true; `name` is where they are counted."""

    predicate: str
    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectNode(_OneParent):
    """Keep only these Spark SQL expressions, each a column or `expression AS name`."""

    expressions: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class WithColumnsNode(_OneParent):
    """Add or replace columns, each a name and a Spark SQL expression."""

    columns: Mapping[str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class TransformNode(_OneParent):
    """Apply a function from DataFrame to DataFrame, once, when the plan is made."""

    name: str
    fn: Callable[[Any], Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class UnionNode(Node):
    """Put two streams with the same columns together."""

    left: Node
    right: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        """Return both streams, left first."""
        return (self.left, self.right)


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckNode(_OneParent):
    """Judge rows by a Great Expectations suite before anything reads them (SEMANTICS 11)."""

    name: str
    suite: str | Mapping[str, Any]
    on_fail: OnFail
    on_table_fail: OnFail | None


@dataclass(frozen=True, eq=False, kw_only=True)
class SinkNode(_OneParent):
    """Write the rows of a stream."""

    name: str
    sink: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class SideNode(Node):
    """Stand for rows that a step puts out beside its own, under a name that both know."""

    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class LateNode(SideNode):
    """Stand for the rows that came too late for the windows that name this stream."""


@dataclass(frozen=True, eq=False, kw_only=True)
class QuarantineNode(SideNode):
    """Stand for the rows that the check, source or state function of this name put aside."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SnapshotNode(SideNode):
    """Stand for the whole state of the step of this name, after each batch (SEMANTICS 7.4)."""
