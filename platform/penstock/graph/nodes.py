"""Hold the steps of a job as frozen values linked by their parents; none knows how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.graph.aggregates import Aggregate
from penstock.graph.policies import OnError, OnFail
from penstock.graph.source_location import SourceLocation, user_site
from penstock.graph.timeouts import NEVER, Timeout
from penstock.graph.windows import TimeWindow

__all__ = [
    "CheckNode",
    "FilterNode",
    "Form",
    "FunctionNode",
    "LateNode",
    "Node",
    "QuarantineNode",
    "SelectNode",
    "SideNode",
    "SinkNode",
    "SnapshotNode",
    "SourceNode",
    "StatefulNode",
    "TransformNode",
    "UnionNode",
    "WindowNode",
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
class StatefulNode(_OneParent):
    """Keep state for each key, in so many partitions; `name` is where it lives."""

    name: str
    keys: tuple[str, ...]
    partitions: int


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowNode(StatefulNode):
    """Aggregate the rows of each key and time window."""

    spec: TimeWindow
    aggregates: Mapping[str, Aggregate]


class Form(Enum):
    """Say how a state function is called: for each row, for the rows of a partition, or for each key."""

    ROWS = "map_with_state"
    ARROW = "map_with_state_arrow"
    UPDATE = "update_state_by_key"


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionNode(StatefulNode):
    """Let a function of the user's keep state for each key (SEMANTICS 7.1, 7.5).

    `state` and `output` are Spark DDL; `output` is None where the rows put out are the keys and their state.
    `initial` is the name of a table, or a function that returns a DataFrame, of keys and states.
    `on_error` says what becomes of the rows that the function raises for.
    `event_time`, a Spark SQL expression over the output, and `same_rows` are for the form ARROW: they say what event
    time the rows put out have, and which row each stands for. `value`, `touched_only` and `with_key_time` are for the
    form UPDATE.
    """

    form: Form
    fn: Callable[..., Any]
    state: str
    output: str | None = None
    timeout: Timeout = NEVER
    initial: str | Callable[[], Any] | None = None
    on_error: OnError = OnError.FAIL
    event_time: str | None = None
    same_rows: bool = False
    value: str | None = None
    touched_only: bool = False
    with_key_time: bool = False

    @property
    def every_batch(self) -> bool:
        """Return whether every batch calls for every key that has state."""
        return self.form is Form.UPDATE and not self.touched_only


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
