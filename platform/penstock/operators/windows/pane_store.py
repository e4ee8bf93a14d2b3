"""Keep a value for each key and window that is open, of windows with early panes (SEMANTICS 3.2).

A row of the part PANES has the window's end as `_group`, hash and keys, the partials, and three columns:

`_pane`, `_revision`: the newest pane and its number, EARLY or LATE. Null where there is none. The closing of a window
is not written here: it follows from the watermark.
`_new_rows`: the rows that no pane has had. Always 0 after a LATE pane, which has all of them.

The partials are those of all rows when accumulating. When discarding they are those of the new rows, and of the newest
pane where there are none.
The part WAITING has the keys and windows that became such with new rows since the last multiple of `emit_every`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.policies import Pane
from penstock.graph.windows import PANE, REVISION
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import MAIN, StateView
from penstock.operators.windows.panes import PANE_FIELDS
from penstock.operators.windows.partials import NEW_ROWS, PartialLayout
from penstock.operators.windows.slice_state import PANES
from penstock.state.keys import Bools, Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import GROUP, HASH

__all__ = ["WAITING", "Known", "PaneStore", "newest"]

WAITING = "waiting"
_NONE = -1


class Known(NamedTuple):
    """The entries of some keys and windows: rows of PANES, and for each key and window the place of its row, or -1."""

    rows: pa.Table
    at: Ints

    @property
    def held(self) -> Bools:
        """Return which keys and windows have an entry."""
        known: Bools = self.at >= 0
        return known

    @property
    def revisions(self) -> Ints:
        """Return the numbers of the newest panes, -1 where there is none."""
        return self._of(pc.fill_null(column_array(self.rows, REVISION), _NONE).to_numpy(), _NONE)

    @property
    def new_rows(self) -> Ints:
        """Return how many rows no pane has had."""
        return self._of(integers(self.rows, NEW_ROWS), 0)

    @property
    def late(self) -> Bools:
        """Return which have been emitted after their window had closed."""
        is_late = pc.fill_null(pc.equal(column_array(self.rows, PANE), Pane.LATE.value), False)  # noqa: FBT003
        return self._of(is_late.to_numpy(zero_copy_only=False), 0).astype(np.bool_)

    @property
    def panes(self) -> npt.NDArray[np.object_]:
        """Return the names of the newest panes, None where there is none."""
        names = np.full(len(self.at), None, dtype=np.object_)
        names[self.held] = column_array(self.rows, PANE).to_numpy(zero_copy_only=False)[self.at[self.held]]
        return names

    def _of(self, values: npt.NDArray[np.generic], default: int) -> Ints:
        mine = np.full(len(self.at), default, dtype=np.int64)
        mine[self.held] = values[self.at[self.held]]
        return mine


class PaneStore:
    """The parts PANES and WAITING of one partition's state, as the last Commit left them."""

    def __init__(self, state: StateView, layout: PartialLayout) -> None:
        self.state, self.layout = state, layout
        self.pair = [GROUP, HASH, *layout.keys.names]
        self.pairs = pa.schema([layout.schema.field(name) for name in self.pair])
        self.schema = self.schema_of(layout)

    @staticmethod
    def schema_of(layout: PartialLayout) -> pa.Schema:
        """Return the columns of PANES."""
        return pa.schema([*layout.schema, *PANE_FIELDS, pa.field(NEW_ROWS, pa.int64())])

    @staticmethod
    def parts(layout: PartialLayout) -> dict[str, Part]:
        """Return that the newest entry of a key and window hides the older; tables show those of PANES."""
        shown, keys = {PANES: MAIN, WAITING: None}, tuple(layout.keys.names)
        return by_name(Part(name=n, identity=keys, merge=Merge.LATEST, table=table) for n, table in shown.items())

    def known(self, pairs: pa.Table) -> Known:
        """Return the entries of keys and windows, of which none is in `pairs` twice; by window end, then hash."""
        names, n = self.layout.keys.names, pairs.num_rows
        keys = [column_array(pairs, name) for name in names]
        hashes, ends = integers(pairs, HASH), integers(pairs, GROUP)
        each = group_rows(keys, hashes).first
        part, span = self.parts(self.layout)[PANES], (int(ends[0]), int(ends[-1]) + 1)
        _, rows = self.state.rows_of(
            part, hashes[each], pairs.select(names).take(pa.array(each)), span, schema=self.schema
        )
        rows = rows.combine_chunks()
        at = np.full(n, _NONE, dtype=np.int64)
        if rows.num_rows:
            ids = self.ids([pairs, rows])
            place = np.full(int(ids.max()) + 1, _NONE, dtype=np.int64)
            place[ids[n:]] = np.arange(rows.num_rows)
            at = place[ids[:n]]
        return Known(rows, at)

    def ids(self, tables: Sequence[pa.Table]) -> Ints:
        """Return a number for each row of all tables, the same for rows of one key and window."""
        return _ids(pa.concat_tables([table.select(self.pair) for table in tables]), self.layout)

    def merged(self, rows: pa.Table, known: Known, counts: Bools) -> pa.Table:
        """Return the partials of `rows`, with those of the entries that count among them, row by row."""
        plan = self.layout.plan
        mine = np.flatnonzero(counts)
        if not len(mine):
            return rows
        held = self.layout.aligned(known.rows.take(pa.array(known.at[mine])))
        both = pa.concat_tables([rows, held])
        partials = plan.merge(plan.partials_of(both), np.r_[np.arange(rows.num_rows), mine], rows.num_rows)
        keys = [column_array(rows, name) for name in self.layout.keys.names]
        every = np.arange(rows.num_rows)
        return self.layout.table_of(integers(rows, GROUP), integers(rows, HASH), keys, every, partials)

    def entries(self, rows: pa.Table, panes: npt.NDArray[np.object_], revisions: Ints, new_rows: Ints) -> pa.Table:
        """Return partials as rows of PANES; a revision of -1 is none."""
        entries = self.layout.aligned(rows)
        entries = entries.append_column(PANE, pa.array(panes, pa.string()))
        entries = entries.append_column(REVISION, pa.array(revisions, mask=revisions < 0))
        return entries.append_column(NEW_ROWS, pa.array(new_rows)).cast(self.schema)


def newest(tables: Sequence[pa.Table], layout: PartialLayout) -> pa.Table:
    """Return the last row of each key and window, of tables that stand oldest first; by window end, then hash."""
    rows = pa.concat_tables(tables).combine_chunks()
    ids = _ids(rows, layout)
    last = np.zeros(int(ids.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(last, ids, np.arange(len(ids)))
    return rows if len(last) == len(ids) and np.array_equal(last, ids) else rows.take(pa.array(last))


def _ids(rows: pa.Table, layout: PartialLayout) -> Ints:
    keys = [column_array(rows, name) for name in layout.keys.names]
    return group_rows(keys, integers(rows, HASH), integers(rows, GROUP)).ids
