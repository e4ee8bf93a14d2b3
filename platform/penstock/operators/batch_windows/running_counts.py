"""Count the rows of each key, or key and value, of a window by what enters and leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.operators.batch_windows.batch_sides import COUNTED, CountSide
from penstock.operators.batch_windows.window_forms import Made, RunningForm, entry
from penstock.operators.columns import column_array, integers
from penstock.operators.protocol import HASHED
from penstock.state.row_layout import HASH

__all__ = ["CountForm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountForm(RunningForm):
    """The number of rows of each key, or of each key and value, as `count`.

    Of a stream without keys the count stays, and is 0 for a window without rows.
    """

    side: CountSide

    @property
    def identity(self) -> pa.Schema:
        """Return the columns of which each combination is counted."""
        return pa.schema([*self.side.keys, *self.side.values])

    @property
    def stored(self) -> pa.Schema:
        """Return what is counted, and the number: one row for each in a batch."""
        return pa.schema([*self.identity, (COUNTED, pa.int64())])

    @property
    def made(self) -> pa.Schema:
        """Return what is counted, and `count`."""
        return pa.schema([*self.identity, ("count", pa.int64())])

    @property
    def leading(self) -> int:
        """Return that the bounds follow the keys."""
        return len(self.side.keys)

    @property
    def stays(self) -> bool:
        """Return that the count of a stream without keys stays."""
        return not len(self.identity)

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the counts of a batch."""
        rows = self.side.received(tables)
        return entry(rows[HASHED], rows.select(self.stored.names))

    def moved(self, running: pa.Table, left: pa.Table, entered: pa.Table) -> tuple[pa.Table, Made]:
        """Return the counts of a window from those of the one before, and what it emits."""
        names = [HASH, *self.stored.names]
        rows = pa.concat_tables([part.select(names) for part in (running, left, entered)]).combine_chunks()
        numbers = integers(rows, COUNTED).copy()
        numbers[running.num_rows : running.num_rows + left.num_rows] *= -1
        columns = [column_array(rows, name) for name in self.identity.names]
        sums = self.side.summed(columns, integers(rows, HASH), numbers)
        if len(self.identity):
            sums = sums.filter(pa.array(integers(sums, COUNTED) != 0))
        counted = entry(sums[HASHED], sums.select(self.stored.names))
        hashes = np.ascontiguousarray(integers(counted, HASH))
        return counted, Made(counted.select(self.stored.names).rename_columns(self.made.names), hashes)
