"""Lay out sessions: their columns in the state and in the output, and the times at which their keys are due."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.graph.policies import Accumulation, Pane
from penstock.graph.windows import REVISION
from penstock.operators.aggregates import ROWS, AggregatePlan
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import Grouping, group_rows
from penstock.operators.windows.panes import PANE_FIELDS
from penstock.operators.windows.partials import NEW_ROWS
from penstock.operators.windows.window_rows import WINDOW_END, WINDOW_START
from penstock.state.keys import Bools, Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, GROUP, HASH

__all__ = [
    "BOUNDS",
    "CLOSED",
    "DEADLINES",
    "EARLY",
    "LATENESS",
    "NEVER",
    "SESSIONS",
    "STANDING",
    "SessionLayout",
    "deadlines",
    "entries",
    "grouped",
    "least",
    "micros_of",
]

SESSIONS, DEADLINES, LATENESS, EARLY = "sessions", "deadlines", "lateness", "early"
"""The parts of the state.

In LATENESS are keys by the watermark that forgets their earliest closed session. In EARLY they are by the batch time at
which their open sessions have a pane.
"""
SESSION_START, SESSION_END, CLOSED, STANDING = "session_start", "session_end", "_closed", "_standing"
_UTC = pa.timestamp("us", tz="UTC")
BOUNDS = pa.schema([(SESSION_START, _UTC), (SESSION_END, _UTC)])
_OF_PANES = pa.schema([(REVISION, pa.int64()), (CLOSED, pa.bool_())])
"""The columns of sessions that may be emitted again: number of the newest row, and whether it closed them as they are.

The first is null before a row was emitted.
"""
_OF_EARLY = pa.schema([(NEW_ROWS, pa.int64())])
"""Beside them where there are early panes: how many rows no pane has had."""
_OF_STANDING = pa.schema([(STANDING, pa.bool_())])
"""Beside them where such panes have all rows: whether the row is no session, but a pane that a table has of one."""
NEVER = 2**63 - 1
_PANES = pa.array([pane.value for pane in Pane], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLayout:
    """The columns of sessions, in the state and in the output; a plain value that can be pickled.

    `lateness` is how long a closed session is kept, in microseconds, and `retracts` says whether rows that another
    session replaces are taken back. `early` says whether open sessions have panes.
    """

    plan: AggregatePlan
    keys: pa.Schema
    lateness: int = 0
    accumulation: Accumulation = Accumulation.ACCUMULATING
    retracts: bool = False
    early: bool = False

    @property
    def has_panes(self) -> bool:
        """Return whether a session may be emitted more than once."""
        return self.lateness > 0 or self.early

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the output: keys, window_start, window_end, results, panes (SEMANTICS 3.1, 3.2)."""
        bounds = [pa.field(WINDOW_START, _UTC), pa.field(WINDOW_END, _UTC)]
        return pa.schema([*self.keys, *bounds, *self.plan.result_fields, *(PANE_FIELDS if self.has_panes else ())])

    @property
    def shown(self) -> pa.Schema:
        """Return the columns of the main table."""
        return pa.schema([*self.keys, *BOUNDS, *self.plan.fields, *self._of_panes])

    @property
    def of_panes(self) -> frozenset[str]:
        """Return the columns that say what was emitted of a session."""
        return frozenset(self._of_panes.names)

    @property
    def _of_panes(self) -> pa.Schema:
        fields = [*(_OF_PANES if self.has_panes else ()), *(_OF_EARLY if self.early else ())]
        return pa.schema([*fields, *(_OF_STANDING if self.stands else ())])

    @property
    def stands(self) -> bool:
        """Return whether a pane of an open session may stand in a table until another replaces it."""
        return self.early and self.accumulation is Accumulation.ACCUMULATING

    @property
    def stored(self) -> pa.Schema:
        """Return the columns of the part `sessions`."""
        return pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.shown, (DELETED, pa.bool_())])

    @property
    def parts(self) -> dict[str, Part]:
        """Return that the newest row of a key and number hides the older; tables show sessions, the others follow."""
        shown: dict[str, str | None] = {SESSIONS: "", DEADLINES: None}
        shown |= {LATENESS: None} if self.lateness else {}
        shown |= {EARLY: None} if self.early else {}
        keys = tuple(self.keys.names)
        return by_name(Part(name=n, identity=keys, merge=Merge.LATEST, table=table) for n, table in shown.items())

    def rows(self, hashes: Ints, rows: pa.Table, starts: Ints, ends: Ints) -> pa.Table:
        """Return rows of the part `sessions` without a number; keys and partials are those of `rows`."""
        none = np.zeros(len(hashes), dtype=np.int64)
        own = {
            GROUP: pa.array(none),
            HASH: pa.array(hashes),
            SESSION_START: pa.array(starts).cast(_UTC),
            SESSION_END: pa.array(ends).cast(_UTC),
            REVISION: pa.nulls(len(hashes), pa.int64()),
            CLOSED: pa.array(none.astype(np.bool_)),
            NEW_ROWS: pa.array(none),
            STANDING: pa.array(none.astype(np.bool_)),
            DELETED: pa.array(none.astype(np.bool_)),
        }
        schema = self.stored
        columns = [own[f.name] if f.name in own else rows[f.name].cast(f.type) for f in schema]
        return pa.table(columns, schema=schema)

    def marked(self, rows: pa.Table, *, slots: Ints, revisions: Ints, closed: Bools, new_rows: Ints) -> pa.Table:
        """Return sessions with their numbers among those of the key, and with what was emitted of them."""
        rows = _replaced(rows, GROUP, pa.array(slots))
        if self.has_panes:
            rows = _replaced(rows, REVISION, pa.array(revisions, mask=revisions < 0))
            rows = _replaced(rows, CLOSED, pa.array(closed))
        if self.early:
            rows = _replaced(rows, NEW_ROWS, pa.array(new_rows))
        return rows

    def standing(self, rows: pa.Table, slots: Ints) -> pa.Table:
        """Return sessions that are as their newest pane has them, as standing panes with these numbers."""
        rows = _replaced(rows, GROUP, pa.array(slots))
        if not rows.num_rows:
            return rows
        return _replaced(rows, STANDING, pa.array(np.ones(rows.num_rows, dtype=np.bool_)))

    def deleted(self, rows: pa.Table) -> pa.Table:
        """Return the tombstones of sessions."""
        return _replaced(rows, DELETED, pa.array(np.ones(rows.num_rows, dtype=np.bool_)))

    def revisions_of(self, rows: pa.Table) -> Ints:
        """Return the number of the newest row of each session, -1 for none."""
        if not self.has_panes:
            return np.full(rows.num_rows, -1, dtype=np.int64)
        numbers: Ints = column_array(rows, REVISION).fill_null(-1).to_numpy()
        return numbers

    def closed_of(self, rows: pa.Table) -> Bools:
        """Return which sessions have closed as they are."""
        if not self.has_panes:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        closed: Bools = column_array(rows, CLOSED).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        return closed

    def new_rows_of(self, rows: pa.Table) -> Ints:
        """Return how many rows no pane has had; 0 where there are no early panes, which alone ask for it."""
        if not self.early:
            return np.zeros(rows.num_rows, dtype=np.int64)
        new = column_array(rows, NEW_ROWS)
        counted: Ints = np.where(new.is_null(), integers(rows, ROWS), new.fill_null(0))
        return counted

    def standing_of(self, rows: pa.Table) -> Bools:
        """Return which rows are standing panes, and no sessions."""
        if not self.stands or STANDING not in rows.column_names:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        standing: Bools = column_array(rows, STANDING).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        return standing

    def finished(self, rows: pa.Table, panes: Ints, revisions: Ints) -> pa.Table:
        """Return sessions with the columns of `stored` as output; `panes` are places in the list of panes."""
        bounds = [rows[name] for name in BOUNDS.names]
        results = self.plan.results(self.plan.partials_of(rows))
        of_panes = [_PANES.take(pa.array(panes)), pa.array(revisions)] if self.has_panes else []
        columns = [*(rows[name] for name in self.keys.names), *bounds, *results, *of_panes]
        return pa.table(columns, schema=self.output)


def _replaced(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)


def least(owners: Ints, ends: Ints, total: int) -> Ints:
    """Return the least end of each owner, the end of time where it has none."""
    earliest = np.full(total, NEVER, dtype=np.int64)
    np.minimum.at(earliest, owners, ends)
    return earliest


def deadlines(ends: Ints, lateness: int = 0) -> Ints:
    """Return the watermarks that close sessions with these ends, or that forget them: the first that are past them."""
    return np.minimum(ends, NEVER - 2 - lateness) + (1 + lateness)


def entries(hashes: Ints, keys: pa.Table, groups: Ints) -> pa.Table:
    """Return rows of the parts `deadlines` and `lateness`."""
    hidden = [pa.field(GROUP, pa.int64()), pa.field(HASH, pa.int64())]
    return pa.table([pa.array(groups), pa.array(hashes), *keys.columns], schema=pa.schema([*hidden, *keys.schema]))


def micros_of(rows: pa.Table, name: str) -> Ints:
    """Return a column of moments without nulls, as microseconds."""
    times: Ints = column_array(rows, name).cast(pa.int64()).to_numpy()
    return times


def grouped(keys: pa.Table, hashes: Ints) -> Grouping:
    """Number the keys of rows in the order of their hashes."""
    return group_rows([column_array(keys, name) for name in keys.column_names], hashes)
