"""Send what aggregates of windows of batch time need.

That is a row of partials for each key of a task, or the values of each row where the order of arrival counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.graph.aggregates import Aggregate
from penstock.graph.batch_window import BatchWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.aggregates.cells import Partials, Rows
from penstock.operators.batch_windows.batch_sides import RowSide, tally_of
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import Grouping, group_rows
from penstock.operators.protocol import HASHED, BoundSide, Emit, RowsOfBranch, Send, StepFacts, Tally
from penstock.operators.whole_rows import WholeRows
from penstock.state.keys import Ints

__all__ = ["InputSide", "PartialSide", "aggregate_side"]


def aggregate_side(
    aggregates: Mapping[str, Aggregate], window: BatchWindow, side: BoundSide
) -> PartialSide | InputSide:
    """Return the map side of aggregates; raises BadExpression where a type has no such aggregate."""
    types = {name: None if a.expression is None else side.inputs[a.expression] for name, a in aggregates.items()}
    plan = AggregatePlan.build(aggregates, types)
    if not plan.needs_order:
        return PartialSide(window=window, keys=side.keys, plan=plan)
    inputs = {a.source: a.given for a in plan.aggregates if a.source is not None}
    return InputSide(
        window=window,
        visible=pa.schema([*inputs.items()]),
        keys=side.keys,
        chained=side.chained,
        ways=side.ways,
        plan=plan,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSide:
    """Map side of aggregates that need no order: one row of partials for each key of a task."""

    window: BatchWindow
    keys: pa.Schema
    plan: AggregatePlan

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return none."""
        return {}

    @property
    def sent(self) -> pa.Schema:
        """Return the columns that travel."""
        return pa.schema([(HASHED, pa.int64()), *self.keys, *self.plan.fields])

    def differs(self, other: PartialSide) -> str | None:
        """Return that keys or aggregates have other types."""
        return None if self == other else "other types"

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield the partials of the rows of a batch that a window has."""
        counts, taken = tally_of(self.window, rows, facts)
        yield counts
        if not taken:
            return
        keys = [column_array(rows.table, column) for column in rows.keys.values()]
        hashes = integers(rows.table, rows.hash_column)
        grouping = group_rows(keys, hashes)
        named = {a.source: rows.inputs[a.expression] for a in self.plan.aggregates if a.expression is not None}
        inputs = {source: column_array(rows.table, column) for source, column in named.items() if source is not None}
        given = Rows(inputs=inputs, times=np.zeros(len(hashes), dtype=np.int64))
        yield Send(self.table(keys, hashes, grouping, self.plan.reduce(given, grouping.ids, grouping.groups)))

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the partials of a batch, one row for each key."""
        return self.merged(pa.concat_tables([self.sent.empty_table(), *(table.cast(self.sent) for table in tables)]))

    def merged(self, rows: pa.Table, sign: Ints | None = None) -> pa.Table:
        """Return one row for each key, with the columns of `sent`; rows whose `sign` is -1 are subtracted."""
        keys = [column_array(rows, name) for name in self.keys.names]
        hashes = integers(rows, HASHED)
        grouping = group_rows(keys, hashes)
        partials = self.plan.merge(self.plan.partials_of(rows), grouping.ids, grouping.groups, sign)
        return self.table(keys, hashes, grouping, partials)

    def table(self, keys: Sequence[pa.Array], hashes: Ints, grouping: Grouping, partials: Partials) -> pa.Table:
        """Return partials of groups, each with its key and hash, as they travel."""
        first = pa.array(grouping.first)
        heads = [pa.array(hashes[grouping.first]), *(key.take(first) for key in keys)]
        return pa.table([*heads, *self.plan.arrays_of(partials)], schema=self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSide(RowSide):
    """Map side of aggregates that need the order of arrival; `visible` are the columns that they read.

    They are computed after the shuffle, where the rows of a batch are in order.
    """

    plan: AggregatePlan

    def key(self, name: str) -> str:
        """Return the column by which a key is compared, which is none that the user sees."""
        return f"_penstock_key_{name}"

    @property
    def partials(self) -> PartialSide:
        """Return what merges the partials of these rows."""
        return PartialSide(window=self.window, keys=self.keys, plan=self.plan)

    def _sent(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        read = {a.source: rows.inputs[a.expression] for a in self.plan.aggregates if a.expression is not None}
        # A column of the user's may have the name of an input.
        table = rows.table.drop_columns([name for name in self.visible.names if name in rows.table.column_names])
        for name in self.visible.names:
            table = table.append_column(name, rows.table[read[name]])
        yield from WholeRows.prepare(self, replace(rows, table=table, visible=tuple(self.visible.names)), facts)

    def reduced(self, tables: Sequence[pa.Table], facts: StepFacts) -> pa.Table:
        """Return the partials of a batch, one row for each key, with the columns of `partials.sent`.

        A row has the time of its batch, so first and last go by arrival.
        """
        rows = self.received(tables)
        keys = [column_array(self.key_table(rows), name) for name in self.keys.names]
        hashes, n = integers(rows, HASHED), rows.num_rows
        grouping = group_rows(keys, hashes)
        none = np.zeros(n, dtype=np.int64)
        given = Rows(
            inputs={name: column_array(rows, name) for name in self.visible.names},
            times=np.full(n, facts.time, dtype=np.int64),
            order=(np.full(n, facts.batch, dtype=np.int64), none, none, np.arange(n)),
        )
        partials = self.plan.reduce(given, grouping.ids, grouping.groups)
        return self.partials.table(keys, hashes, grouping, partials)
