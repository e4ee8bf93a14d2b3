"""Send rows, values or counts of a batch to the state partitions of windows of batch time.

Rows of a batch that no window has are counted, and stay behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.graph.batch_window import BatchWindow
from penstock.operators.batch_windows.batch_ends import BatchEnds
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import HASHED, Emit, RowsOfBranch, Send, StepFacts, Tally
from penstock.operators.whole_rows import WholeRows
from penstock.state.keys import Ints

__all__ = ["COUNTED", "CountSide", "RowSide", "ValueSide", "tally_of"]

COUNTED = "_rows"
"""int64: of how many rows a row of counts is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide(WholeRows):
    """Map side of rows that are sent whole."""

    window: BatchWindow

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield the rows of a batch that a window has."""
        counts, taken = tally_of(self.window, rows, facts)
        yield counts
        if taken:
            yield from (piece for piece in self._sent(rows, facts) if isinstance(piece, Send))

    def _sent(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        return WholeRows.prepare(self, rows, facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSide(RowSide):
    """Map side of rows of which one value is sent, as the column `column`, beside the keys.

    `expression` is the value in Spark SQL; `visible` has its column alone.
    """

    expression: str
    column: str

    def key(self, name: str) -> str:
        """Return the column by which a key is compared, which is none that the user sees."""
        return f"_penstock_key_{name}"

    def _sent(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        value = rows.table[rows.inputs[self.expression]]
        # The user's column of that name is another where the expression computes something.
        table = rows.table.drop_columns([self.column]) if self.column in rows.table.column_names else rows.table
        table = table.append_column(self.column, value)
        return WholeRows.prepare(self, replace(rows, table=table, visible=(self.column,)), facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSide:
    """Map side of counts: one row for each key, or for each key and value, of a task.

    `keys` are the key columns, and `values` the column of the value, where there is one; `expression` is its text.
    """

    window: BatchWindow
    keys: pa.Schema
    values: pa.Schema
    expression: str | None

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return none."""
        return {}

    @property
    def sent(self) -> pa.Schema:
        """Return the columns that travel."""
        return pa.schema([(HASHED, pa.int64()), *self.keys, *self.values, (COUNTED, pa.int64())])

    def differs(self, other: CountSide) -> str | None:
        """Return that keys or values have other types."""
        return None if self == other else "other types"

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield the counts of the rows of a batch that a window has."""
        counts, taken = tally_of(self.window, rows, facts)
        yield counts
        if not taken:
            return
        columns = [column_array(rows.table, column) for column in rows.keys.values()]
        if self.expression is not None:
            columns.append(column_array(rows.table, rows.inputs[self.expression]))
        numbers = np.ones(rows.table.num_rows, dtype=np.int64)
        yield Send(self.summed(columns, integers(rows.table, rows.hash_column), numbers))

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the counts of a batch, one row for each key, or key and value."""
        rows = pa.concat_tables([self.sent.empty_table(), *(table.cast(self.sent) for table in tables)])
        columns = [column_array(rows, name) for name in (*self.keys.names, *self.values.names)]
        return self.summed(columns, integers(rows, HASHED), integers(rows, COUNTED))

    def summed(self, columns: Sequence[pa.Array], hashes: Ints, numbers: Ints) -> pa.Table:
        """Return one row for each distinct item of the columns, with the sum of their numbers, in order of hashes."""
        grouping = group_rows(columns, hashes)
        sums = np.zeros(grouping.groups, dtype=np.int64)
        np.add.at(sums, grouping.ids, numbers)
        first = pa.array(grouping.first)
        arrays = [pa.array(hashes[grouping.first]), *(column.take(first) for column in columns), pa.array(sums)]
        return pa.table(arrays, schema=self.sent)


def tally_of(window: BatchWindow, rows: RowsOfBranch, facts: StepFacts) -> tuple[Tally, bool]:
    """Return the counts of a task's rows, and whether there are some that a window has."""
    n = rows.table.num_rows
    held = n if BatchEnds.of(window, facts).holds(facts.time) else 0
    return Tally({"rows": n, "counted": held, "in_no_window": n - held}), held > 0
