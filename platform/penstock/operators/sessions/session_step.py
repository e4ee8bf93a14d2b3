"""Run session windows: rows become sessions before the shuffle, which join those that are held after it (SEMANTICS 3).

The state of a partition has these parts, all with `_hash` and the key columns:

- `sessions`: a row for each key and session that is held, with bounds and partial aggregates. `_group` numbers the
  sessions of a key from 0, and stays as long as a session is held. The newest row of a key and number hides the older.
  With allowed lateness it has the number of the newest row that was emitted of the session, and whether it is closed.
  With early panes it also has the number of rows that no pane has had.
- `deadlines`: for each key an entry at or before the watermark that closes its earliest session, as `_group`.
- `lateness`: with allowed lateness the same for the watermark that forgets its earliest closed session.
- `early`: with early panes an entry at the multiple of `emit_every` at which the key's open sessions have one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import JobError, StateError
from penstock.graph.policies import Accumulation
from penstock.graph.specs.session_windows import SessionWindows
from penstock.graph.specs.time_windows import LATE_OUTLET
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.aggregates import AGGREGATES
from penstock.operators.columns import integers
from penstock.operators.protocol import (
    HASHED,
    LAYOUT,
    MAIN,
    BoundSide,
    Due,
    Emit,
    Rebuilt,
    StateView,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution
from penstock.operators.sessions.session_batch import SessionBatch
from penstock.operators.sessions.session_evolution import changed_sessions, layout_text, reads, reads_table
from penstock.operators.sessions.session_layout import (
    BOUNDS,
    DEADLINES,
    EARLY,
    LATENESS,
    NEVER,
    SESSIONS,
    SessionLayout,
    deadlines,
    entries,
    grouped,
    least,
    micros_of,
)
from penstock.operators.sessions.session_rows import SessionSide
from penstock.operators.sessions.session_spans import free_slots, merged_spans
from penstock.operators.whole_rows import WholeRowsStep
from penstock.operators.windows.applied_windows import AppliedFunction, emitting
from penstock.operators.windows.arrival_places import ranked_together
from penstock.operators.windows.early_panes import EVERY
from penstock.operators.windows.stored_partials import GENERATION, StoredPartials
from penstock.operators.windows.window_rows import LATE_COLUMNS
from penstock.state.parts import Part
from penstock.state.reader import Adapters
from penstock.state.references import batch_of
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH, conform
from penstock.state.writer import Change
from penstock.time.triggers import multiple_from

__all__ = ["SessionStep", "bind", "bind_side"]

_OWN = frozenset({GROUP, HASH, EXPIRES, DELETED, "_state_partition", *BOUNDS.names})


def bind_side(spec: SessionWindows, side: BoundSide) -> SessionSide:
    """Return the map side; raises JobError for a taken name, and BadExpression for a gap that is none."""
    return SessionSide.of(spec, side)


def bind(spec: SessionWindows, sides: Sequence[SessionSide], context: StepContext) -> SessionStep:
    """Return the step; raises JobError for names that the state takes, and BadExpression for output= that is none."""
    (side,) = sides
    layout = SessionLayout(
        plan=side.plan,
        keys=side.bound.keys,
        lateness=side.window.allowed_lateness,
        accumulation=side.window.accumulation,
        retracts=context.retracts and side.window.accumulation is Accumulation.ACCUMULATING,
        early=side.window.has_early,
    )
    applied = AppliedFunction.of(spec.function, context.name, panes=layout.has_panes)
    return SessionStep(name=context.name, side=side, layout=layout, applied=applied)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStep(WholeRowsStep):
    """The step in the state partitions."""

    name: str
    side: SessionSide
    layout: SessionLayout
    applied: AppliedFunction | None = None

    def __post_init__(self) -> None:
        """Raise JobError for a name that is taken."""
        fields = (f.name for f in self.layout.plan.fields)
        own = {name.lower() for name in (*_OWN, *self.layout.of_panes, *fields)}
        if taken := [name for name in self.keys.names if name.lower() in own]:
            raise JobError(f"a key column has the name {min(taken)!r}, which Penstock uses for itself")
        names = self.layout.output.names
        if twice := {name for name in names if names.count(name) > 1}:
            raise JobError(f"a window step has two columns named {min(twice)!r}")

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.layout.keys

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the sessions that closed, and the late rows."""
        visible = self.side.visible
        late = {} if visible is None else {LATE_OUTLET: pa.schema([*visible, *LATE_COLUMNS])}
        return {MAIN_OUTLET: self.layout.output if self.applied is None else self.applied.output, **late}

    @property
    def explained(self) -> Mapping[str, str]:
        """Return that rows are taken back, where a sink needs it."""
        if not self.layout.retracts:
            return {}
        which = "rows that late rows prolong or join to others"
        if self.layout.early:
            which = "panes of sessions that have grown, and rows that late rows prolong or join to others,"
        return {"What sessions take back": f"{which} come again with RETRACTED"}

    # --- what is kept -------------------------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps; the gap is no part of it, and may change."""
        return layout_text(self.layout)

    @property
    def described(self) -> Mapping[str, Any]:
        """Return what tells others how partials are read that other code has written."""
        return {AGGREGATES: self.layout.plan.described()}

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return sessions, which the main table shows, and deadlines, which follow from them."""
        return self.layout.parts

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs; it accepts other aggregates and lateness, and refuses other keys."""
        read = self._reads(state.facts)
        return changed_sessions(state.written_as, self.layout_name, read, state.stored(SESSIONS))

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        return changed_sessions(layout, self.layout_name, reads_table(self.layout, stored.names), stored)

    def adapters(self, facts: Mapping[str, Any]) -> Adapters:
        """Return what reads partials of other aggregates as those of today."""
        read = self._reads(facts)
        return Adapters({SESSIONS: read}, read.generation)

    def adapted(self, table: str, layout: str) -> Callable[[pa.Table], pa.Table]:
        """Return what does the same to rows of a snapshot."""
        return lambda rows: reads_table(self.layout, rows.column_names)(rows)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, `session_start`, `session_end`, partials, and what was emitted of sessions that are revised."""
        return {MAIN: self.layout.shown}

    @property
    def may_lack(self) -> frozenset[str]:
        """Return the columns that say what was emitted: without them nothing was."""
        return self.layout.of_panes

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each key and session that is held."""
        return conform(rows, self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return these sessions as state; raises StateError for bounds that are none, and for sessions that touch."""
        rows = tables[MAIN]
        for name in BOUNDS.names:
            if none := rows[name].null_count:
                raise StateError(f"the state given to step {self.name!r} has {none:,} rows without {name}")
        if not rows.num_rows:
            return Rebuilt(change=Change(), due=None, due_time=None)
        starts, ends = (micros_of(rows, name) for name in BOUNDS.names)
        keys, hashes = rows.select(self.keys.names).cast(self.keys), integers(rows, HASHED)
        grouping, layout = grouped(keys, hashes), self.layout
        spans = merged_spans(grouping.ids, starts, ends)
        standing = layout.standing_of(rows)
        sessions, panes = np.flatnonzero(~standing), np.flatnonzero(standing)
        if (ends <= starts).any() or len(np.unique(spans.ids[sessions])) < max(len(sessions), spans.total):
            raise StateError(f"the state given to step {self.name!r} has empty sessions, or some of one key that touch")
        # Sessions in the order of their spans, then the panes that tables have of them.
        at = np.concatenate([sessions[np.argsort(spans.ids[sessions])], panes])
        owners, is_pane = grouping.ids[at], standing[at]
        slots, by_owner = np.empty(len(at), dtype=np.int64), np.argsort(owners, kind="stable")
        slots[by_owner] = free_slots(owners[by_owner], np.full(len(at), -1, dtype=np.int64))
        shown = conform(rows.take(pa.array(at)), layout.shown)
        revisions, closed = layout.revisions_of(shown), layout.closed_of(shown) & ~is_pane
        new_rows = np.where(closed | is_pane, 0, layout.new_rows_of(shown))
        written = layout.rows(hashes[at], shown, starts[at], ends[at])
        marked = layout.marked(written, slots=slots, revisions=revisions, closed=closed, new_rows=new_rows)
        held = len(sessions)
        append = {
            SESSIONS: pa.concat_tables([marked.slice(0, held), layout.standing(marked.slice(held), slots[held:])])
        }
        closed, new_rows = closed[:held], new_rows[:held]
        first_hashes, first_keys, due = hashes[grouping.first], keys.take(pa.array(grouping.first)), None
        for part, these in ((DEADLINES, ~closed), (LATENESS, closed)):
            ends = least(spans.owners[these], spans.ends[these], grouping.groups)
            asked = np.flatnonzero(ends < NEVER)
            if not len(asked):
                continue
            groups = deadlines(ends[asked], self.layout.lateness if part == LATENESS else 0)
            append[part] = entries(first_hashes[asked], first_keys.take(pa.array(asked)), groups)
            due = int(groups.min()) if part == DEADLINES else due
        waits, every, due_time = np.unique(spans.owners[new_rows > 0]), self.side.window.early_every, None
        if every is not None and len(waits):
            # A multiple at the moment itself has emitted what was there.
            due_time = multiple_from(moment.time + 1, every, moment.zero)
            groups = np.full(len(waits), due_time, dtype=np.int64)
            append[EARLY] = entries(first_hashes[waits], first_keys.take(pa.array(waits)), groups)
        facts = {GENERATION: 0, **({EVERY: every} if self.layout.early else {})}
        return Rebuilt(change=Change(append=append, facts=facts), due=due, due_time=due_time)

    # --- what a batch does --------------------------------------------------------------------

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Join the batch's sessions to those that are held, and close the ones that are due."""
        batch = SessionBatch(self.layout, state, self._received(inputs[0]), facts, self.side.window)
        # It closes when the watermark is past its end, and so may be late downstream at its last microsecond.
        with emitting(self.applied, self.keys, facts, at_least=facts.judged) as emitted:
            for windows, on_time in batch.closed_sessions():
                yield from emitted(windows, on_time)
        if self.side.visible is not None:
            yield from batch.late_rows(self.side.visible, self.name)
        yield Tally(batch.counts())
        change = batch.change()
        # A batch that changes nothing writes nothing, unless the code is new: then it says how rows are read.
        writes = change.append or change.replace or change.floors
        if writes or state.facts.get(LAYOUT, self.layout_name) != self.layout_name:
            change = replace(change, facts=self._kept(state, facts.batch))
        after = yield change
        assert after is not None
        yield Due(after.first_group(DEADLINES), after.first_group(EARLY) if EARLY in self.layout.parts else None)

    def _received(self, tables: Sequence[pa.Table]) -> pa.Table:
        schema = self.side.sent
        ranked = [table.select(schema.names).cast(schema) for table in ranked_together(tables, self.layout.plan)]
        return pa.concat_tables([schema.empty_table(), *ranked]).combine_chunks()

    def _reads(self, facts: Mapping[str, Any]) -> StoredPartials:
        return reads(self.layout, facts, facts.get(LAYOUT))

    def _kept(self, state: StateView, batch: int) -> dict[str, Any]:
        """Return the facts that say how what the batch leaves is read."""
        written = (number for name in state.manifest.files() if (number := batch_of(name)) is not None)
        early = {EVERY: self.side.window.early_every} if self.layout.early else {}
        return {**self._reads(state.facts).facts(batch, min(written, default=batch)), **early}
