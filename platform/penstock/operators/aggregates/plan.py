"""Plan the aggregates of a step: which columns hold partials, how they merge, and what comes out."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import UserFunctionError
from penstock.graph.aggregates import Aggregate, AggregateKind, CustomFunctions
from penstock.operators.aggregates import results
from penstock.operators.aggregates.cells import (
    DIGITS,
    Cell,
    Column,
    DecimalSum,
    FloatSum,
    IntegerSum,
    InvertibleCell,
    Moments,
    Partials,
    Rows,
    ValueCount,
    as_arrow,
)
from penstock.operators.aggregates.custom import Custom, CustomTypes, computed, custom_types
from penstock.operators.aggregates.edges import Edge, EdgeInput
from penstock.operators.aggregates.items import Items, TopItems, all_nullable, values_of_items
from penstock.operators.aggregates.kinds import ONE_CELL
from penstock.operators.aggregates.naming import PARTS, cell_of, partial_name, plain_sql
from penstock.operators.aggregates.tallies import Buckets, quantile
from penstock.operators.columns import column_array
from penstock.state.keys import Ints

__all__ = ["AGGREGATES", "ROWS", "AggregatePlan", "BoundAggregate"]

AGGREGATES = "aggregates"
"""The fact of a partition's state that says how its slices are merged."""

ROWS = "_rows"
"""The partial that every plan has: how many rows were aggregated, so that a key without rows is known."""
_CELLS: Mapping[str, Callable[[tuple[str, ...], str, pa.DataType], Cell]] = {
    "count": ValueCount,
    "integer": IntegerSum,
    "decimal": DecimalSum,
    "double": FloatSum,
    "moments": Moments,
    "approx_quantile": Buckets,
}


_TALLIED = (AggregateKind.COUNT, AggregateKind.APPROX_QUANTILE)
_AS_THEY_ARE = (AggregateKind.COUNT, AggregateKind.FIRST, AggregateKind.LAST)
"""What has its result in one partial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundAggregate:
    """One aggregate whose input type is known.

    `source` is the input it reads (None for a count of rows), `columns` are the partials that give its result.
    """

    name: str
    kind: AggregateKind
    expression: str | None
    source: str | None
    given: pa.DataType | None
    result: pa.DataType
    columns: tuple[str, ...]
    share: float | None = None
    size: int | None = None
    label: str | None = None
    """The expression, with what else tells its partials apart."""
    custom: CustomFunctions | None = None
    kept: pa.DataType | None = None
    """The type of the state of CUSTOM."""
    shown: str = ""

    @property
    def exact_inverse(self) -> bool:
        """Return whether rows can leave without a trace (SEMANTICS 3.3): counts, tallies, exact sums."""
        exact = self.given is not None and not pa.types.is_floating(self.given)
        if self.custom is not None:
            return self.custom.subtract is not None
        if self.kind in ONE_CELL:
            return ONE_CELL[self.kind].exact_inverse
        return self.kind in _TALLIED or (self.kind is AggregateKind.SUM and exact)

    @property
    def values_kept(self) -> str | None:
        """Return in words what the partials keep of the values; None where the type of the result says it."""
        told = None if self.kind not in ONE_CELL else ONE_CELL[self.kind].kept
        if told is not None:
            return told.format(self.given)
        return None if self.kept is None else str(self.kept)

    def compute(self, partials: Partials) -> pa.Array:
        """Compute the results, one a group."""
        columns = [partials[column] for column in self.columns]
        label = f"{self.name} = {self.shown}"
        if self.custom is not None:
            return computed(columns[0], self.result, self.custom, label)
        if self.size is not None:
            top = self.kind is AggregateKind.TOP_K
            return values_of_items(columns[0], self.result, self.size, top=top, what=label)
        if self.kind in ONE_CELL:
            return ONE_CELL[self.kind].compute(columns[0])
        return as_arrow(columns[0]) if self.kind in _AS_THEY_ARE else self._number(columns, label)

    def _number(self, columns: Sequence[Column], label: str) -> pa.Array:
        match self.kind:
            case AggregateKind.SUM if pa.types.is_decimal(self.result):
                return results.sum_of_decimals(columns[0], columns[1], self.result, what=label)
            case AggregateKind.SUM if pa.types.is_integer(self.result):
                return results.sum_of_integers(columns[0], columns[1], columns[2], what=label)
            case AggregateKind.SUM:
                return results.sum_of_doubles(*columns)
            case AggregateKind.MEAN if pa.types.is_decimal(self.result):
                return results.mean_of_decimals(columns[0], columns[1], self.result, what=label)
            case AggregateKind.MEAN:
                return results.mean_of_doubles(*columns)
            case AggregateKind.APPROX_QUANTILE:
                assert self.share is not None
                return quantile(columns[0], self.share)
        return results.variance(self.kind, *columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatePlan:
    """The aggregates of a step, their inputs and their partials; a plain value that can be pickled.

    `fields` are the columns of the partials, `_rows` first.
    Partials are shared: a mean and a sum of one double are computed from the same columns.
    """

    aggregates: tuple[BoundAggregate, ...]
    cells: tuple[Cell | Edge, ...]
    fields: tuple[pa.Field, ...]

    @classmethod
    def build(cls, aggregates: Mapping[str, Aggregate], input_types: Mapping[str, pa.DataType | None]) -> AggregatePlan:
        """Plan aggregates by name, given the Arrow type of each one's expression (None for a count of rows).

        Raises BadExpression where a type has no such aggregate.
        """
        return _Planner().plan(aggregates, input_types)

    def described(self) -> list[list[str | None]]:
        """Return name, kind, expression and input type of each aggregate, from which `read` makes the same plan."""
        return [
            [a.name, a.kind.value, a.expression, _type_text(a.given), *([] if a.size is None else [str(a.size)])]
            for a in self.aggregates
        ]

    @classmethod
    def read(cls, described: Sequence[Sequence[str | None]]) -> AggregatePlan:
        """Return the plan that `described` gave; raises ValueError and the like for anything else."""
        aggregates: dict[str, Aggregate] = {}
        types: dict[str, pa.DataType | None] = {}
        for name, kind, expression, text, *sizes in described:
            if kind == AggregateKind.CUSTOM.value:
                raise UserFunctionError(f"only the job has the functions that merge the state of aggregate {name!r}")
            size = int(sizes[0]) if sizes and sizes[0] is not None else None
            aggregates[str(name)] = Aggregate(AggregateKind(kind), expression, size=size)
            types[str(name)] = _type_of(text)
        return cls.build(aggregates, types)

    @property
    def result_fields(self) -> tuple[pa.Field, ...]:
        """Return the columns of the results, in the order in which the job names them."""
        return tuple(pa.field(a.name, a.result) for a in self.aggregates)

    @property
    def exact_inverse(self) -> bool:
        """Return whether every aggregate has an exact inverse."""
        return all(a.exact_inverse for a in self.aggregates)

    @property
    def keeps_rows(self) -> bool:
        """Return whether all rows of a window are kept, for a function over windows."""
        return any(a.kind is AggregateKind.ROWS for a in self.aggregates)

    @property
    def needs_order(self) -> bool:
        """Return whether rows must come with their arrival order (first, last, collect, top_k)."""
        return any(isinstance(cell, Edge | Items) for cell in self.cells)

    @property
    def positions(self) -> tuple[str, ...]:
        """Return the partials that tell the order of rows of one batch, last in `ORDER`."""
        return tuple(edge.places[-1] for cell in self.cells if isinstance(cell, Edge) for edge in cell.inputs)

    @property
    def item_lists(self) -> tuple[str, ...]:
        """Return the partials that are lists of items, each with its place."""
        return tuple(column for cell in self.cells if isinstance(cell, Items) for column in cell.columns)

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Aggregate rows into one partial a group; every group has a row.

        `ids` is the group of each row, int64 from 0 to `groups` - 1.
        """
        merged: Partials = {}
        for cell in self.cells:
            merged |= cell.reduce(rows, ids, groups)
        return merged

    def merge(self, partials: Partials, ids: Ints, groups: int, sign: Ints | None = None) -> Partials:
        """Merge partials into one a group; every group has one.

        `sign` (1 or -1, int64) subtracts some of them, where the plan has an exact inverse.
        Sums of integers never overflow here: they are kept in 128 bits.
        """
        merged: Partials = {}
        for cell in self.cells:
            if sign is None:
                merged |= cell.merge(partials, ids, groups)
            elif isinstance(cell, InvertibleCell):
                merged |= cell.merge(partials, ids, groups, sign)
            else:
                raise ValueError(f"{type(cell).__name__} has no exact inverse")
        return merged

    def results(self, partials: Partials) -> list[pa.Array]:
        """Compute the results of each group, in the order of `result_fields`.

        Raises IntegerOverflow where a sum over the group's rows does not fit its type, as Spark's ANSI mode does.
        """
        return [a.compute(partials) for a in self.aggregates]

    def partials_of(self, table: pa.Table) -> Partials:
        """Read the partials of a table that has the columns of `fields`; no copy where a column is one chunk."""
        return {field.name: _column(table, field.name, field.type) for field in self.fields}

    def arrays_of(self, partials: Partials) -> list[pa.Array]:
        """Write partials as Arrow arrays, in the order of `fields`."""
        return [as_arrow(partials[field.name]) for field in self.fields]


def _column(table: pa.Table, name: str, kind: pa.DataType) -> Column:
    array = column_array(table, name)
    return array.to_numpy() if kind in (pa.int64(), pa.float64()) and not array.null_count else array


class _Planner:
    """Collect inputs and cells, each once."""

    def __init__(self) -> None:
        self.inputs: dict[str, str] = {}
        self.cells: dict[tuple[str, ...], Cell] = {(): ValueCount((ROWS,), None, pa.int64())}
        self.edges: dict[AggregateKind, dict[str, EdgeInput]] = {}

    def plan(self, aggregates: Mapping[str, Aggregate], input_types: Mapping[str, pa.DataType | None]) -> AggregatePlan:
        bound = tuple(self._bind(name, aggregate, input_types.get(name)) for name, aggregate in aggregates.items())
        edges = (Edge(tuple(kept.values()), kind is AggregateKind.LAST) for kind, kept in self.edges.items())
        cells: tuple[Cell | Edge, ...] = (*self.cells.values(), *edges)
        fields = tuple(field for cell in cells for field in cell.fields)
        return AggregatePlan(aggregates=bound, cells=cells, fields=fields)

    def _bind(self, name: str, aggregate: Aggregate, input_type: pa.DataType | None) -> BoundAggregate:
        what, types = f"{name} = {aggregate}", None
        if aggregate.custom is not None:
            types = custom_types(aggregate.custom, what)
        result = results.result_type(aggregate.kind, input_type, what=what) if types is None else types.result
        label = aggregate.label(name)
        source = None if aggregate.expression is None else self._input(aggregate.expression)
        return BoundAggregate(
            name=name,
            kind=aggregate.kind,
            expression=aggregate.expression,
            source=source,
            given=input_type,
            result=result,
            share=aggregate.share,
            size=aggregate.size,
            label=label,
            custom=aggregate.custom,
            kept=None if types is None else types.state,
            shown=str(aggregate),
            columns=(ROWS,)
            if source is None
            else self._columns(aggregate, source, input_type, result, label or "", types, what),
        )

    def _input(self, expression: str) -> str:
        for column, known in self.inputs.items():
            if plain_sql(known) == plain_sql(expression):
                return column
        column = f"_in{len(self.inputs)}"
        self.inputs[column] = expression
        return column

    def _columns(
        self,
        aggregate: Aggregate,
        source: str,
        input_type: pa.DataType,
        result: pa.DataType,
        label: str,
        types: CustomTypes | None,
        what: str,
    ) -> tuple[str, ...]:
        """Return the partials that an aggregate needs, and add the missing cells."""
        kind = aggregate.kind
        cell = cell_of(kind, str(result))
        names = tuple(partial_name(part, label) for part in PARTS[cell])
        if aggregate.custom is not None and types is not None:
            self.cells[*names, source] = Custom(names, source, types.state, aggregate.custom, what)
            return names
        if aggregate.size is not None:
            self._keep_items(aggregate, TopItems if kind is AggregateKind.TOP_K else Items, names, source, input_type)
            return names
        if kind in ONE_CELL:
            self.cells.setdefault((cell, source), ONE_CELL[kind].cell(names, source, input_type))
            return names
        if cell in ("first", "last"):
            edge = EdgeInput(source, input_type, names[:-1], names[-1])
            self.edges.setdefault(kind, {}).setdefault(source, edge)
            return names[-1:]
        own, given = names, input_type
        if cell in ("integer", "decimal", "double"):  # beside a sum it is counted how many values were added
            self.cells.setdefault((cell, source, "count"), ValueCount(names[:1], source, pa.int64()))
            own = names[1:]
        if cell == "decimal":
            given = pa.decimal128(DIGITS, input_type.scale)
        elif cell == "approx_quantile":
            given = pa.int32()
        self.cells.setdefault((cell, source), _CELLS[cell](own, source, given))
        return names[::2] if cell == "moments" else names  # a variance needs no mean

    def _keep_items(
        self, aggregate: Aggregate, made: type[Items], names: tuple[str, ...], source: str, kind: pa.DataType
    ) -> None:
        """Add the cell that keeps rows; of two limits of one expression the greater one bounds it."""
        assert aggregate.size is not None
        known = self.cells.get((*names, source))
        most = max(aggregate.size, known.most if isinstance(known, Items) else 0)
        self.cells[*names, source] = made(names, source, all_nullable(kind), most)


def _type_text(kind: pa.DataType | None) -> str | None:
    return None if kind is None else base64.b64encode(pa.schema([("c", kind)]).serialize()).decode()


def _type_of(text: str | None) -> pa.DataType | None:
    return None if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field("c").type
