"""Keep the rows of a source that no SQL expression reads within one Python task on their way to a step.

Spark evaluates expressions in Java; a branch that has none but names of columns has nothing to do there. Its rows would
cross into Java and back unchanged. That took a fifth of a batch of 100,000 rows, and its analysis and planning a fifth
of a restart (decision 48). `plain_rows` decides which branches these are. What it is not sure of goes through SQL,
where the same names mean the same, and which reports what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.graph.nodes import Node, SelectNode, SourceNode
from penstock.operators.columns import arrow_schema
from penstock.operators.protocol import TIME
from penstock.runtime.plan.job_plan import Branch, Leaf, SinkLeaf
from penstock.runtime.tasks.plain_columns import PlainColumns
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.state.hashing import can_hash

__all__ = ["ArrowBranch", "PlainProjection", "plain_rows"]

_VALUES = {"case", "cast", "exists", "false", "interval", "not", "null", "true"}
"""Words that SQL does not read as the name of a column."""


@dataclass(frozen=True, kw_only=True)
class ArrowBranch:
    """The columns of a source's rows that a branch sees; takes the place of a `BranchFrame`."""

    columns: pa.Schema
    """All columns of the source; each can be null."""
    visible: tuple[str, ...]
    event_time: str | None
    bounded_ahead: bool
    filters: tuple[str, ...] = ()
    made: tuple[int, ...] = ()

    def types(self) -> Mapping[str, Any]:
        """Return the Spark type of each visible column."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return {f.name: f.dataType for f in from_arrow_schema(self.columns) if f.name in self.visible}

    def followed(self, node: Node) -> ArrowBranch:
        """Return what a step of the branch leaves of the rows."""
        assert isinstance(node, SelectNode)
        return replace(self, visible=node.expressions)


def plain_rows(branch: Branch, columns: pa.Schema, *, aside: bool) -> ArrowBranch | None:
    """Return the rows that a branch of a source begins with if it reads them as they are, None for any other branch.

    `aside` says that bad rows go somewhere: Spark writes those as JSON.
    """
    source = branch.port
    assert isinstance(source, SourceNode)
    if aside or not _tells_apart(columns.names) or not all(_is_common(kind) for kind in columns.types):
        return None
    start = ArrowBranch(
        columns=_as_spark_has_it(columns),
        visible=tuple(columns.names),
        event_time=source.event_time,
        bounded_ahead=source.max_future is not None,
    )
    if start.columns.types != columns.types:
        return None
    time, instant = start.event_time, pa.timestamp("us", tz="UTC")
    if time is not None and not (_names(start, time) and start.columns.field(time).type == instant):
        return None
    rows = start
    for node in branch.chain:
        if not isinstance(node, SelectNode) or not all(_names(rows, text) for text in node.expressions):
            return None
        rows = rows.followed(node)
        if not _tells_apart(rows.visible):
            return None
    return start if all(_reads_plainly(leaf, rows) for leaf in branch.leaves) else None


def _is_common(kind: pa.DataType) -> bool:
    """Return whether Spark takes a type for what it is."""
    if pa.types.is_decimal128(kind):
        return bool(kind.scale >= 0)
    if pa.types.is_list(kind):
        return _is_common(kind.value_type)
    if pa.types.is_map(kind):
        return _is_common(kind.key_type) and _is_common(kind.item_type)
    if pa.types.is_struct(kind):
        return all(_is_common(field.type) for field in kind)
    return can_hash(kind)


def _as_spark_has_it(columns: pa.Schema) -> pa.Schema:
    """Return the columns as Spark would hand them on: without metadata, and with its names for the items of lists."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return arrow_schema(from_arrow_schema(columns))


def _tells_apart(names: Sequence[str]) -> bool:
    """Return whether names are there and no two the same to Spark, which does not tell upper case from lower."""
    return "" not in names and len({name.lower() for name in names}) == len(names)


def _names(rows: ArrowBranch, text: str) -> bool:
    """Return whether an expression is the name of a column, and nothing else to SQL."""
    return text in rows.visible and text.isidentifier() and text.isascii() and text.lower() not in _VALUES


def _reads_plainly(leaf: Leaf, rows: ArrowBranch) -> bool:
    if isinstance(leaf, SinkLeaf):
        return leaf.check is None
    keys = leaf.step.keys[leaf.side]
    if not all(key in rows.visible and can_hash(rows.columns.field(key).type) for key in keys):
        return False
    return all(_names(rows, expression) for expression in leaf.step.spec.reads(leaf.side).expressions)


class PlainProjection:
    """Collect the columns that the leaves of a branch need of rows that Spark never sees; as `Projection` does."""

    def __init__(self, chain: ArrowBranch) -> None:
        self.chain = chain
        self.columns = PlainColumns(chain.event_time, bounded_ahead=chain.bounded_ahead)
        """What tasks make of the rows."""

    def beside(self, chain: ArrowBranch) -> PlainProjection:
        """Return what collects for another branch of the fork, into the same columns: none has two meanings."""
        other = copy(self)
        other.chain = chain
        return other

    def hide(self, *names: str) -> None:
        """Add columns that the user does not see; those of time and fate are made for every row."""
        self.columns.kept |= dict.fromkeys(name for name in names if name not in (TIME, ROW_STATUS))

    def keep_visible(self) -> None:
        """Add every column that the user sees."""
        self.columns.kept |= dict.fromkeys(self.chain.visible)

    def add_key(self, name: str, key: str) -> str:
        """Add a key column, and return the name of what is compared: one of floats under this other name."""
        if not pa.types.is_floating(self.chain.columns.field(key).type):
            self.columns.kept[key] = None
            return key
        self.columns.even[name] = key
        return name

    def add_hash(self, name: str, columns: Sequence[str]) -> str:
        """Add the hash of columns that were added."""
        self.columns.hashes[name] = tuple(columns)
        return name

    def add_inputs(self, names: Mapping[str, str]) -> Mapping[str, str]:
        """Add what aggregates read, and return the column of each."""
        self.columns.kept |= dict.fromkeys(names)
        return {text: text for text in names}

    def type_of(self, expression: str) -> pa.DataType:
        """Return the type of what an aggregate reads."""
        return self.schema((expression,)).field(0).type

    def schema(self, names: tuple[str, ...]) -> pa.Schema:
        """Return the types of columns of the branch."""
        return pa.schema([self.chain.columns.field(name) for name in names])
