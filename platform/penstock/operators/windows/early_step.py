"""Make an operator of time windows that are emitted before they close, by batch time or by rows (SEMANTICS 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import JobError, StateError
from penstock.operators.aggregates.naming import PARTIALS
from penstock.operators.columns import integers
from penstock.operators.protocol import HASHED, MAIN, Due, Rebuilt, StateView, StepFacts, Tally
from penstock.operators.schema_evolution import Evolution
from penstock.operators.windows.early_panes import DUE, EVERY, EarlyBatch, floors_of
from penstock.operators.windows.pane_store import WAITING, PaneStore, newest
from penstock.operators.windows.panes import PANE_FIELDS
from penstock.operators.windows.partials import NEW_ROWS, WINDOW_END
from penstock.operators.windows.revisions import panes_readable
from penstock.operators.windows.slice_state import PANES
from penstock.operators.windows.stored_partials import GENERATION
from penstock.operators.windows.time_windows import CLOSED_TO
from penstock.operators.windows.window_evolution import changed_windows
from penstock.operators.windows.window_step import WindowStepWork
from penstock.state.parts import Part
from penstock.state.reader import Adapters
from penstock.state.row_layout import GROUP, HASH, conform
from penstock.state.writer import Change
from penstock.time.triggers import multiple_from

__all__ = ["EarlyWindowStep"]

_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyWindowStep(WindowStepWork):
    """A step of windows with early panes, after the shuffle."""

    def __post_init__(self) -> None:
        """Raise JobError for names that are taken."""
        WindowStepWork.__post_init__(self)
        if NEW_ROWS in self.keys.names:
            raise JobError(f"a key column has the name {NEW_ROWS!r}, which Penstock uses for itself")

    @property
    def explained(self) -> Mapping[str, str]:
        """Return that each window has a value of its own."""
        return {"How windows are made": "early panes: a value for each key and open window, to which rows are added"}

    def adapters(self, facts: Mapping[str, Any]) -> Adapters:
        """Return what reads partials of other aggregates as those of today."""
        read = self._reads(facts)
        return Adapters({PANES: read}, read.generation)

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return values of keys and windows, which tables show, and those that wait for a multiple of `emit_every`."""
        return PaneStore.parts(self.layout)

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs; it accepts other aggregates, and refuses other keys, windows and panes."""
        return changed_windows(state.written_as, self.layout_name, self._reads(state.facts), state.stored(PANES))

    def made(
        self, state: StateView, deltas: Sequence[pa.Table], facts: StepFacts
    ) -> Iterator[pa.Table | Tally | Due | Change]:
        """Yield panes as the output has them, and what else a batch does."""
        return EarlyBatch(state, self, facts).run(deltas)

    # --- what is shown --------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, partials, `window_end`, the newest pane and its number, and the rows that no pane has had."""
        own = [pa.field(WINDOW_END, _UTC), *PANE_FIELDS, pa.field(NEW_ROWS, pa.int64())]
        return {MAIN: pa.schema([*self.keys, *self.plan.fields, *own])}

    @property
    def may_lack(self) -> frozenset[str]:
        """Return nothing."""
        return frozenset()

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each key and window."""
        return conform(panes_readable(rows), self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return state with these values, all windows closed that the moment's watermark had closed.

        Raises StateError for rows without a window or number of new rows, for one that ends where no window does, and
        for a key and window with several rows.
        """
        rows = tables[MAIN]
        for name in (WINDOW_END, NEW_ROWS):
            if none := rows[name].null_count:
                raise StateError(f"the state given has {none:,} rows without {name}")
        placed = rows.append_column(GROUP, rows[WINDOW_END].cast(pa.int64())).append_column(HASH, rows[HASHED])
        schema = PaneStore.schema_of(self.layout)
        entries = placed.select(schema.names).cast(schema)
        ends, new_rows = integers(entries, GROUP), integers(entries, NEW_ROWS)
        if len(odd := ends[(ends - self.window.offset - self.window.size) % self.window.every != 0]):
            raise StateError(f"no window ends at {int(odd[0])} us", window_end=int(odd[0]))
        if entries.num_rows and (more := entries.num_rows - newest([entries], self.layout).num_rows):
            raise StateError(f"the state given has {more:,} more rows than keys and windows; each has one")
        floors, every = floors_of(moment.watermark, self), self.window.early_every
        is_open = ends >= floors[WAITING]
        waiting = entries.filter(pa.array(is_open & (new_rows > 0))).select([GROUP, HASH, *self.keys.names])
        # A multiple at the moment itself has emitted what was there.
        due = multiple_from(moment.time + 1, every, moment.zero) if every is not None and waiting.num_rows else None
        append = {PANES: entries, WAITING: waiting} if entries.num_rows else {}
        facts: dict[str, Any] = {CLOSED_TO: moment.watermark, EVERY: every, DUE: due, PARTIALS: {}, GENERATION: 0}
        change = Change(append=append, floors=floors, facts=facts)
        next_end = int(ends[is_open].min()) if is_open.any() else None
        return Rebuilt(change=change, due=next_end, due_time=due)
