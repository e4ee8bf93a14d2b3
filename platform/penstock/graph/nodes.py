"""The steps of a job as frozen values linked by their parents; none knows how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.graph.policies import OnFail
from penstock.graph.source_location import SourceLocation, user_site

__all__ = [
    "CheckNode",
    "FilterNode",
    "LateNode",
    "Node",
    "OneParent",
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
    """A step of a job, at a line of the user's. Two steps are equal only if they are the same object."""

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
    align: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class OneParent(Node):
    """A step that reads one other."""

    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        """Return the one step this one reads from."""
        return (self.parent,)


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterNode(OneParent):
    """Keep the rows where a Spark SQL predicate is true; `name` is where they are counted."""

    predicate: str
    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectNode(OneParent):
    """Keep only these Spark SQL expressions, each a column or `expression AS name`."""

    expressions: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class WithColumnsNode(OneParent):
    """Add or replace columns, each a name and a Spark SQL expression."""

    columns: Mapping[str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class TransformNode(OneParent):
    """Apply a function from DataFrame to DataFrame: once, when the plan is made, or with `per_batch` in every batch."""

    name: str
    fn: Callable[..., Any]
    per_batch: bool = False


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
class CheckNode(OneParent):
    """Judge rows by a Great Expectations suite before anything reads them (SEMANTICS 11)."""

    name: str
    suite: str | Mapping[str, Any]
    on_fail: OnFail
    on_table_fail: OnFail | None


@dataclass(frozen=True, eq=False, kw_only=True)
class SinkNode(OneParent):
    """Write the rows of a stream."""

    name: str
    sink: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class SideNode(Node):
    """A side output of a step, under a name that both know; one subclass for each kind."""

    name: str

    kind: ClassVar[str]
    """The word before its name in the names of its ports; logs hold it."""
    title: ClassVar[str]
    """What the stream is, for `explain`; `{name}` is its name."""
    unknown: ClassVar[str]
    """What is wrong where nothing fills it; `{name}` is its name, quoted."""
    behind_watermark: ClassVar[bool] = False
    """Whether its rows may be late for every watermark, so that no step of event time can read it."""
    own_time: ClassVar[bool] = False
    """Whether its rows have the event time of their batch, and not that of rows of the step."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LateNode(SideNode):
    """The late data of the windows that name this side output."""

    kind: ClassVar[str] = "late"
    title: ClassVar[str] = "late rows {name}"
    unknown: ClassVar[str] = "no step sends late rows to {name}"
    behind_watermark: ClassVar[bool] = True


@dataclass(frozen=True, eq=False, kw_only=True)
class QuarantineNode(SideNode):
    """The rows that the check, source or state function of this name quarantined."""

    kind: ClassVar[str] = "quarantine"
    title: ClassVar[str] = "quarantine of {name}"
    unknown: ClassVar[str] = "{name} is no check, source or state function"
    behind_watermark: ClassVar[bool] = True


@dataclass(frozen=True, eq=False, kw_only=True)
class SnapshotNode(SideNode):
    """The whole state of the step of this name, after each batch (SEMANTICS 7.4)."""

    kind: ClassVar[str] = "snapshots"
    title: ClassVar[str] = "snapshots of {name}: its whole state after each batch, which costs a read of all of it"
    unknown: ClassVar[str] = "{name} is no step with snapshots"
    own_time: ClassVar[bool] = True
