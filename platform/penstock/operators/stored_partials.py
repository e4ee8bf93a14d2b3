"""Read partials that were stored for other aggregates than the step has now (schema evolution on restart).

What a step has now is found by the names of its partials. A sum of integers serves for the sum of the same numbers cast
to decimal or double. What was not aggregated then is as if no row had come: it counts the rows from now on.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.operators.aggregates.cells import as_arrow
from penstock.operators.aggregates.edges import Edge
from penstock.operators.aggregates.extremes import Extreme
from penstock.operators.aggregates.naming import cast_of, partial_name
from penstock.operators.aggregates.wide import Wide
from penstock.operators.partial_tables import FROM, GROUP, HASH, SLICE_START, PartialTables, column_array

__all__ = ["StoredPartials"]

_LIMITS = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class StoredPartials:
    """Reads tables of partials, of state or of a snapshot, as a layout has them; `old` names those by place."""

    layout: PartialTables
    old: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the table with the partials of the layout; its other columns are as they are."""
        fields = self.layout.plan.fields
        if not self.old and {f.name for f in fields} <= set(table.column_names) and self._same(table):
            return table
        stored = self._stored(table)
        first = [name for name in (GROUP, HASH, *self.layout.keys.names) if name in table.column_names]
        last = [name for name in (FROM, SLICE_START) if name in table.column_names]
        arrays = {f.name: self._partial(f, stored, table.num_rows) for f in fields}
        columns = {name: table[name] for name in first} | arrays | {name: table[name] for name in last}
        return pa.table(columns)

    def missing(self, names: Sequence[str]) -> set[str]:
        """Return the partials of the layout that columns of these names do not tell."""
        there = {self.old.get(name, name) for name in names}
        plan = self.layout.plan
        return {f.name for f in plan.fields if f.name not in there and not self._source(f.name, there)}

    # --- inside ------------------------------------------------------------------------------
    def _same(self, table: pa.Table) -> bool:
        names = [f.name for f in self.layout.plan.fields]
        others = {GROUP, HASH, FROM, SLICE_START, *self.layout.keys.names}
        kept = [f for f in table.schema if f.name not in others]
        return [f.name for f in kept] == names and [f.type for f in kept] == [f.type for f in self.layout.plan.fields]

    def _stored(self, table: pa.Table) -> dict[str, pa.ChunkedArray]:
        found: dict[str, pa.ChunkedArray] = {}
        for name in table.column_names:
            found.setdefault(self.old.get(name, name), table[name])
        return found

    def _partial(self, wanted: pa.Field, stored: Mapping[str, pa.ChunkedArray], rows: int) -> pa.ChunkedArray:
        try:
            if wanted.name in stored:
                return stored[wanted.name].cast(wanted.type)
            source = self._source(wanted.name, stored.keys())
            if not source:
                return pa.chunked_array([self._neutral(wanted, rows)])
            if len(source) == 1:
                return stored[source[0]].cast(wanted.type)
            return pa.chunked_array([_summed(stored[source[0]], stored[source[1]], wanted.type)])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            what = f"state column {wanted.name!r} does not fit {wanted.type}: {error}"
            raise StateError(what, column=wanted.name) from error

    def _source(self, name: str, there: Container[str]) -> tuple[str, ...]:
        """Return the partials that tell one which is not there; none where nothing does."""
        part, expression = self.layout.plan.partials().get(name, ("", ""))
        for label in filter(None, (cast_of(expression), expression)):
            for names in _sources(part, label):
                if all(one in there for one in names):
                    return names
        return ()

    def _neutral(self, wanted: pa.Field, rows: int) -> pa.Array:
        """Return partials of no rows."""
        for cell in self.layout.plan.cells:
            if wanted.name not in [f.name for f in cell.fields]:
                continue
            if isinstance(cell, Extreme) or (isinstance(cell, Edge) and wanted.name not in cell.places):
                return pa.nulls(rows, wanted.type)
            if isinstance(cell, Edge):
                return pa.array(np.full(rows, _LIMITS.min if cell.last else _LIMITS.max))
        return pa.array(np.zeros(rows, dtype=np.int64)).cast(wanted.type)


def _sources(part: str, expression: str) -> Iterator[tuple[str, ...]]:
    """Yield what a partial can be told from, of the same numbers under this expression."""
    whole = (partial_name("sum", expression), partial_name("carry", expression))
    if part in ("n", "double"):
        yield (partial_name(part, expression),)
    if part in ("decimal", "double"):
        yield whole
    if part == "double":
        yield (partial_name("decimal", expression),)


def _summed(low: pa.ChunkedArray, carry: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return sums of integers, which are kept in 128 bits, in another type."""
    table = pa.table({"low": low, "carry": carry})
    numbers = Wide.from_carry(column_array(table, "low").to_numpy(), column_array(table, "carry").to_numpy())
    return as_arrow(numbers.to_decimals(pa.decimal128(38, 0))).cast(kind)
