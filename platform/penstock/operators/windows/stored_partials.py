"""Read partials that were stored for other aggregates than the step has now (schema evolution on restart).

All state is read as if each change of the aggregates had rewritten it. Dropped aggregates are gone, also where files
still have them. New aggregates begin without rows, and count later ones. Each change of the aggregates has a
generation, a growing number that segments carry. For each older generation that may still have rows, the facts name the
columns that give today's partials.

They are of the same values, or of the uncast ones. All partials of an aggregate have sources, or none has. With a sum
of new rows only, and a count of all rows, the mean would be wrong.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.graph.windows import PANE, REVISION
from penstock.operators.aggregates import ROWS, AggregatePlan
from penstock.operators.aggregates.cells import Cell, as_arrow
from penstock.operators.aggregates.edges import Edge
from penstock.operators.aggregates.naming import (
    PARTS,
    aggregates_in,
    cast_of,
    cell_of,
    names_of,
    partial_name,
    shared_places,
)
from penstock.operators.aggregates.wide import Wide
from penstock.operators.columns import column_array
from penstock.operators.windows.partials import FROM, NEW_ROWS, SLICE_START, WINDOW_END
from penstock.state.row_layout import GROUP, HASH

__all__ = ["GENERATION", "OLDER", "HasPartials", "StoredPartials"]

GENERATION, OLDER = "generation", "older"
"""The facts that number the partials a state has, and say how those of older numbers are read."""
_LIMITS = np.iinfo(np.int64)
_BESIDE = (FROM, SLICE_START, WINDOW_END, PANE, REVISION, NEW_ROWS)
"""Columns that may follow the partials, and stay as they are."""

Sources = Mapping[str, tuple[str, ...]]
"""For partials the stored columns that give them: one, or the two of a sum of integers. A missing partial is new."""

_WHOLE = ("sum", "carry")
_WAYS: Mapping[str, tuple[tuple[tuple[str, ...], ...], ...]] = {
    "count": ((("n",),), (("summed",),), (("decimals",),), (("doubles",),), (("mn",),)),
    "integer": ((("n",), ("sum",), ("carry",)),),
    "decimal": ((("n",), ("decimal",)),),
    "double": ((("n",), ("double",)), (("decimals",), ("decimal",)), (("n",), ("decimal",))),
}
"""By cell the sources of its parts beside themselves. `n` beside a sum is of older checkpoints."""
_OF_INTEGERS = (((("summed",), _WHOLE)), ((("n",), _WHOLE)))
"""The sources of a sum of the same numbers in another type."""


class _Older(NamedTuple):
    """How rows of an older generation are read, and the batch from which on there are none; None is the next."""

    until: int | None
    sources: Sources


class HasPartials(Protocol):
    """A layout of rows with keys and partials."""

    @property
    def plan(self) -> AggregatePlan:
        """The aggregates whose partials there are."""

    @property
    def keys(self) -> pa.Schema:
        """The key columns."""


@dataclass(frozen=True, slots=True)
class StoredPartials:
    """Reads tables of partials, of state or of a snapshot, as a layout has them; `old` names those by place.

    `generation` is that of the layout. `sources` names the columns of the newest stored generation that give its
    partials. `beside` are columns that may follow the partials, and stay as they are.
    """

    layout: HasPartials
    sources: Sources
    generation: int = 0
    older: Mapping[int, _Older] = field(default_factory=dict)
    old: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = _BESIDE

    @classmethod
    def of_state(
        cls,
        layout: HasPartials,
        facts: Mapping[str, Any],
        aggregates: str | None,
        old: Mapping[str, str],
        *,
        beside: tuple[str, ...] = _BESIDE,
    ) -> StoredPartials:
        """Return what reads state with these facts, whose aggregates were these in words; None where there is none."""
        generation: int = facts.get(GENERATION, 0)
        older = {
            int(number): _Older(until, {name: tuple(columns) for name, columns in sources.items()})
            for number, (until, sources) in facts.get(OLDER, {}).items()
        }
        now = {f.name for f in layout.plan.fields}
        before = now
        if aggregates is not None:
            before = {ROWS} | names_of(aggregates_in(aggregates), old=GENERATION not in facts)
        sources = _sources_of(layout.plan, before)
        if before != now:
            older = {number: _Older(until, _through(sources, was)) for number, (until, was) in older.items()}
            older[generation] = _Older(None, sources)
            generation += 1
        return cls(layout, sources, generation, older, old, beside)

    @classmethod
    def of_table(
        cls, layout: HasPartials, names: Iterable[str], old: Mapping[str, str], *, beside: tuple[str, ...] = _BESIDE
    ) -> StoredPartials:
        """Return what reads a table of its own with these columns."""
        sources = _sources_of(layout.plan, {old.get(name, name) for name in names})
        return cls(layout, sources, 1, {0: _Older(None, sources)}, old, beside)

    def __call__(self, table: pa.Table, generation: int = 0) -> pa.Table:
        """Return a table of a generation with the partials of the layout; its other columns are as they are."""
        fields = self.layout.plan.fields
        if generation == self.generation:
            if not self.old and self._same(table):
                return table
            sources: Sources = {f.name: (f.name,) for f in fields}
        elif generation in self.older:
            sources = self.older[generation].sources
        else:
            raise StateError(f"rows of generation {generation}, which the manifest does not tell how to read")
        stored = self._stored(table)
        first = [name for name in (GROUP, HASH, *self.layout.keys.names) if name in table.column_names]
        last = [name for name in self.beside if name in table.column_names]
        arrays = {f.name: self._partial(f, sources.get(f.name, ()), stored, table.num_rows) for f in fields}
        columns = {name: table[name] for name in first} | arrays | {name: table[name] for name in last}
        return pa.table(columns)

    @property
    def new(self) -> set[str]:
        """Return the partials of the layout that have no source in the newest stored generation."""
        return {f.name for f in self.layout.plan.fields} - self.sources.keys()

    def facts(self, batch: int, oldest: int) -> dict[str, Any]:
        """Return the facts that a batch leaves; `oldest` is the batch of the oldest file that the state refers to."""
        ends = {number: (batch if until is None else until, sources) for number, (until, sources) in self.older.items()}
        older = {
            str(number): [until, {name: list(columns) for name, columns in sources.items()}]
            for number, (until, sources) in ends.items()
            if oldest < until
        }
        return {GENERATION: self.generation} | ({OLDER: older} if older else {})

    # --- inside ------------------------------------------------------------------------------
    def _same(self, table: pa.Table) -> bool:
        names = [f.name for f in self.layout.plan.fields]
        others = {GROUP, HASH, *self.beside, *self.layout.keys.names}
        kept = [f for f in table.schema if f.name not in others]
        return [f.name for f in kept] == names and [f.type for f in kept] == [f.type for f in self.layout.plan.fields]

    def _stored(self, table: pa.Table) -> dict[str, pa.ChunkedArray]:
        columns: dict[str, pa.ChunkedArray] = {}
        for name in table.column_names:
            columns.setdefault(self.old.get(name, name), table[name])
        return columns

    def _partial(
        self, wanted: pa.Field, sources: tuple[str, ...], stored: Mapping[str, pa.ChunkedArray], rows: int
    ) -> pa.ChunkedArray:
        if not sources:
            return pa.chunked_array([self._neutral(wanted, rows)])
        if missing := [name for name in sources if name not in stored]:
            raise StateError(f"rows of state have no column {missing[0]!r}, which tells {wanted.name!r}")
        try:
            if len(sources) == 1:
                return stored[sources[0]].cast(wanted.type)
            return pa.chunked_array([_summed(stored[sources[0]], stored[sources[1]], wanted.type)])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            problem = f"state column {wanted.name!r} does not fit {wanted.type}: {error}"
            raise StateError(problem, column=wanted.name) from error

    def _neutral(self, wanted: pa.Field, rows: int) -> pa.Array:
        """Return partials of no rows."""
        for cell in self.layout.plan.cells:
            if wanted.name not in [f.name for f in cell.fields]:
                continue
            if isinstance(cell, Cell) and cell.nothing_is_null:
                return pa.nulls(rows, wanted.type)
            if isinstance(cell, Edge):
                if wanted.name in [edge.column for edge in cell.inputs]:
                    return pa.nulls(rows, wanted.type)
                return pa.array(np.full(rows, _LIMITS.min if cell.last else _LIMITS.max))
        return pa.array(np.zeros(rows, dtype=np.int64)).cast(wanted.type)


def _summed(low: pa.ChunkedArray, carry: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return sums of integers, which are kept in 128 bits, in another type."""
    table = pa.table({"low": low, "carry": carry})
    numbers = Wide.from_carry(column_array(table, "low").to_numpy(), column_array(table, "carry").to_numpy())
    return as_arrow(numbers.to_decimals(pa.decimal128(38, 0))).cast(kind)


def _sources_of(plan: AggregatePlan, stored: Container[str]) -> dict[str, tuple[str, ...]]:
    """Return the sources of a plan's partials, of columns in `stored`."""
    sources: dict[str, tuple[str, ...]] = {ROWS: (ROWS,)}
    for aggregate in plan.aggregates:
        if aggregate.expression is None:
            continue
        cell = cell_of(aggregate.kind, str(aggregate.result))
        label = aggregate.label or aggregate.expression
        names = [partial_name(part, label) for part in PARTS[cell]]
        for way in _ways(cell, label):
            if all(name in stored for names_of_part in way for name in names_of_part):
                sources |= dict(zip(names, way, strict=True))
                break
    return sources


def _through(sources: Sources, older: Sources) -> dict[str, tuple[str, ...]]:
    """Return the sources of partials in an older generation, where `older` has the sources of their sources."""
    return {
        name: tuple(column for source in names for column in older[source])
        for name, names in sources.items()
        if all(source in older for source in names)
    }


def _ways(cell: str, expression: str) -> list[list[tuple[str, ...]]]:
    """Return, best first, the columns that may give each part of a cell."""

    def named(label: str, way: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
        return [tuple(partial_name(part, label) for part in parts) for parts in way]

    itself = tuple((part,) for part in PARTS[cell])
    ways = [named(expression, way) for way in (itself, *_WAYS.get(cell, ()))]
    if cell in ("first", "last"):
        value = partial_name(PARTS[cell][-1], expression)
        ways.append([*((place,) for place in shared_places(cell)), (value,)])
    of_integers = _OF_INTEGERS if cell in ("decimal", "double") else ()
    ways += [named(expression, way) for way in of_integers]
    inner = cast_of(expression)
    if inner is not None:
        exact = (itself, *_WAYS[cell]) if cell in ("count", "double") else ()
        ways += [named(inner, way) for way in (*exact, *of_integers)]
    return ways
