"""Keep the rows of a source within one Python task on their way to a step, where its SQL is simple.

Spark evaluates expressions in Java, and to cross into Java and back takes more than half of a batch of 100,000 rows.
A branch that has none but names of columns has nothing to do there (decision 48). Filters and new columns of integers,
doubles, texts and instants are computed in the task (decision 177). `plain_rows` decides which branches these are. What
it is not sure of goes through SQL, where the same names mean the same, and which reports what is wrong with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.graph.nodes import FilterNode, Node, SelectNode, SourceNode, WithColumnsNode
from penstock.graph.predicates import Predicate, parse_expression
from penstock.operators.columns import arrow_schema
from penstock.operators.expression_types import expression_type
from penstock.operators.protocol import TIME
from penstock.runtime.plan.job_plan import Branch, Leaf, SinkLeaf
from penstock.runtime.tasks.columns import PREFIX
from penstock.runtime.tasks.plain_columns import PlainColumns, RowStep
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.runtime.tasks.transport import ENVELOPE
from penstock.state.hashing import can_hash

__all__ = ["ArrowBranch", "PlainProjection", "plain_rows"]

_VALUES = {"case", "cast", "exists", "false", "interval", "not", "null", "true"}
"""Words that SQL does not read as the name of a column."""


_NAMED = re.compile(r"(.+)\sAS\s+(\w+)", re.IGNORECASE | re.DOTALL | re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ArrowBranch:
    """The columns of a source's rows that a branch sees; takes the place of a `BranchFrame`."""

    columns: pa.Schema
    """All columns of the source; each can be null."""
    rows: pa.Schema
    """The columns that the user sees."""
    event_time: str | None
    bounded_ahead: bool
    filters: tuple[str, ...] = ()
    made: tuple[int, ...] = ()
    steps: tuple[RowStep, ...] = ()
    """What the task does with the rows, in order."""

    @property
    def visible(self) -> tuple[str, ...]:
        """Return the names of the columns that the user sees."""
        return tuple(self.rows.names)

    def types(self) -> Mapping[str, Any]:
        """Return the Spark type of each visible column."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return {f.name: f.dataType for f in from_arrow_schema(self.rows)}

    def followed(self, node: Node) -> ArrowBranch:
        """Return what a step of the branch leaves of the rows."""
        after = self.after(node)
        assert after is not None
        return after

    def after(self, node: Node) -> ArrowBranch | None:
        """Return the same, None for a step that is Spark's to do."""
        match node:
            case FilterNode(predicate=text) if (parsed := self._parsed(text)) and parsed[1] == pa.bool_():
                filters = (*self.filters, node.name)
                step = RowStep(number=len(filters), predicate=parsed[0])
                return replace(self, filters=filters, steps=(*self.steps, step))
            case SelectNode():
                return self._with([named for text in node.expressions for named in self._selected(text)])
            case WithColumnsNode(columns=new):
                # Spark does not tell upper case from lower: it would replace a column of the same letters.
                same = {name.lower() for name in self.visible} & {name.lower() for name in new}
                if same <= {name.lower() for name in new if name in self.visible}:
                    made = {name: (value, kind) for name, value, kind in self._all()}
                    made |= {name: self._value(text) for name, text in new.items()}
                    return self._with([(name, *value) for name, value in made.items()])
        return None

    def _selected(self, text: str) -> Sequence[tuple[str, Predicate | str, pa.DataType | None]]:
        """Return name, value and type of what an expression of a selection makes; no type for what is Spark's."""
        if text.strip() == "*":
            return self._all()
        named = _NAMED.fullmatch(text.strip())
        return [(named[2], *self._value(named[1]))] if named is not None else [(text, *self._value(text, bare=True))]

    def _all(self) -> Sequence[tuple[str, Predicate | str, pa.DataType | None]]:
        return [(field.name, field.name, field.type) for field in self.rows]

    def _value(self, text: str, *, bare: bool = False) -> tuple[Predicate | str, pa.DataType | None]:
        """Return a value and its type; with `bare` only names of columns have one, and Spark names all else."""
        if _is_name(text) and text in self.visible:
            return text, self.rows.field(text).type
        return (None if bare else self._parsed(text)) or (text, None)

    def _parsed(self, text: str) -> tuple[Predicate, pa.DataType] | None:
        with suppress(ValueError):
            parsed = parse_expression(text)
            kind = expression_type(parsed, self.rows, [name for name in self.visible if _is_name(name)])
            return None if kind is None else (parsed, kind)
        return None

    def _with(self, named: Sequence[tuple[str, Predicate | str, pa.DataType | None]]) -> ArrowBranch | None:
        """Return the branch with these columns instead; None where one of them is Spark's to make or refuse."""
        kinds = [
            (name, kind) for name, _, kind in named if kind is not None and (name in self.visible or _is_free(name))
        ]
        names = [name for name, _ in kinds]
        if len(names) < len(named) or not _tells_apart(names):
            return None
        step = RowStep(columns=tuple((name, value) for name, value, _ in named))
        # A selection alone makes nothing: what is left out is not read.
        steps = self.steps if all(name == value for name, value in step.columns) else (*self.steps, step)
        return replace(self, rows=pa.schema(kinds), steps=steps)


def plain_rows(
    branch: Branch, columns: pa.Schema, *, aside: bool, computing: bool = False, stem: int = 0
) -> ArrowBranch | None:
    """Return the rows that a branch of a source begins with if no Java has to see them, None for any other branch.

    Args:
        branch: The branch.
        columns: The columns of the source.
        aside: Whether bad rows go somewhere: Spark writes those as JSON.
        computing: Whether tasks compute what they can: not where they were wrong to, or Spark is not in ANSI mode.
        stem: How many steps all branches of the fork have in common; after them, columns mean the same to all.
    """
    source = branch.port
    assert isinstance(source, SourceNode)
    if aside or not _tells_apart(columns.names) or not all(_is_common(kind) for kind in columns.types):
        return None
    all_columns = _as_spark_has_it(columns)
    start = ArrowBranch(
        columns=all_columns, rows=all_columns, event_time=source.event_time, bounded_ahead=source.max_future is not None
    )
    if start.columns.types != columns.types:
        return None
    time, instant = start.event_time, pa.timestamp("us", tz="UTC")
    if time is not None and not (_is_column(start, time) and start.columns.field(time).type == instant):
        return None
    rows = start
    for place, node in enumerate(branch.chain):
        after = rows.after(node)
        if after is None or (after.steps != rows.steps and not (computing and place < stem)):
            return None
        rows = after
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


def _is_name(text: str) -> bool:
    """Return whether an expression can be the name of a column, and nothing else to SQL."""
    return text.isidentifier() and text.isascii() and text.lower() not in _VALUES


def _is_free(name: str) -> bool:
    """Return whether a new column may have a name."""
    return _is_name(name) and not name.lower().startswith(PREFIX) and name.lower() not in ENVELOPE.names


def _is_column(rows: ArrowBranch, text: str) -> bool:
    return text in rows.visible and _is_name(text)


def _reads_plainly(leaf: Leaf, rows: ArrowBranch) -> bool:
    if isinstance(leaf, SinkLeaf):
        return leaf.check is None
    keys = leaf.step.keys[leaf.side]
    if not all(key in rows.visible and can_hash(rows.rows.field(key).type) for key in keys):
        return False
    return all(_is_column(rows, expression) for expression in leaf.step.spec.reads(leaf.side).expressions)


class PlainProjection:
    """Collect the columns that the leaves of a branch need of rows that Spark never sees; as `Projection` does."""

    def __init__(self, chain: ArrowBranch) -> None:
        self.chain = chain
        self.columns = PlainColumns(chain.event_time, bounded_ahead=chain.bounded_ahead, steps=chain.steps)
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
        if not pa.types.is_floating(self.chain.rows.field(key).type):
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
        return pa.schema([self.chain.rows.field(name) for name in names])
