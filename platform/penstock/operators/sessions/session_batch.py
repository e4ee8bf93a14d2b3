"""Join the sessions of a batch to those that a state partition holds, and close the ones that are due (SEMANTICS 3).

Merging is the same in whatever order and by whatever pieces. A batch costs what its rows, the open sessions of their
keys, and the keys that are due cost.

With allowed lateness a closed session is held until it is forgotten, and a row that joins it revises it (2.6). The row
may prolong it, or join it to another. Then the session that comes out has other bounds than the rows that were emitted
before, and replaces them. Its revisions are numbered on from the highest of these.

Open sessions may have early panes (3.2), which are numbered likewise.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.graph.policies import Accumulation, Pane
from penstock.graph.specs.session_windows import SessionWindow
from penstock.graph.specs.time_windows import LATE_OUTLET
from penstock.operators.aggregates import ROWS
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import behind
from penstock.operators.protocol import HASHED, LAYOUT, TIME, Emit, StateView, StepFacts
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
from penstock.operators.sessions.session_rows import END, LATE_ARRIVAL, ROW, START, SURELY_LATE
from penstock.operators.sessions.session_spans import free_slots, merged_spans
from penstock.operators.sessions.standing_panes import StandingPanes
from penstock.operators.windows.early_panes import EVERY
from penstock.operators.windows.window_rows import late_rows
from penstock.state.full_compaction import live_rows
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import GROUP, HASH
from penstock.state.writer import Change
from penstock.time.arrival import Stand, arrival_order
from penstock.time.triggers import multiple_from

__all__ = ["SessionBatch"]

_BEGINNING = -(2**63)
_EARLY, _ON_TIME, _LATE, _RETRACTED = (
    list(Pane).index(pane) for pane in (Pane.EARLY, Pane.ON_TIME, Pane.LATE, Pane.RETRACTED)
)
OUTPUT_ROWS = 262_144
"""How many windows one piece of the output has at most."""


class SessionBatch:
    """The work of a batch in one partition.

    `rows` are what the map sides sent. `hashes` and `keys` have the keys of these rows and those that are due, each
    once; other arrays refer to a key by its place there.
    """

    def __init__(
        self, layout: SessionLayout, state: StateView, rows: pa.Table, facts: StepFacts, window: SessionWindow
    ) -> None:
        self.layout, self.rows, self.facts = layout, rows, facts
        self.early_rows, every = window.early_rows, window.early_every
        self.early_every = every
        # The multiple of emit_every at which rows of this batch are due.
        self.next_multiple = None if every is None else multiple_from(facts.time, every, facts.zero)
        names, n = layout.keys.names, rows.num_rows
        self.waiting = self._waiting_anew(state) if layout.early else None
        of_keys = pa.schema([(HASH, pa.int64()), *layout.keys])
        came = rows.select([HASHED, *names]).rename_columns(of_keys.names)
        # How far the clock has come that each of these parts goes by.
        self.clocks = {DEADLINES: facts.watermark, LATENESS: facts.watermark, EARLY: facts.time}
        due = {part: self._due(state, part, of_keys) for part in self.clocks if part in layout.parts}
        asked = pa.concat_tables([came, *due.values()]).combine_chunks()
        grouping = grouped(asked.select(names), integers(asked, HASH))
        self.hashes = integers(asked, HASH)[grouping.first]
        self.keys = asked.select(names).take(pa.array(grouping.first))
        self.due: dict[str, Bools] = {}
        for part, table in due.items():
            self.due[part] = np.zeros(grouping.groups, dtype=np.bool_)
            self.due[part][grouping.ids[n : n + table.num_rows]] = True
            n += table.num_rows
        self.key_of_rows = grouping.ids[: rows.num_rows]
        of_rows, known = state.rows_of(layout.parts[SESSIONS], self.hashes, self.keys, schema=layout.stored)
        self.standing = StandingPanes(layout, known.combine_chunks(), of_rows)
        self.held, self.key_of_held = self.standing.held, self.standing.key_of_held
        self._merge()

    def _due(self, state: StateView, part: str, of_keys: pa.Schema) -> pa.Table:
        """Return the keys that have an entry up to where the part's clock is."""
        mark = self.clocks[part]
        if part == EARLY and self.waiting is not None:
            tables = [self.waiting.filter(pa.array(integers(self.waiting, GROUP) <= self.facts.time))]
        else:
            tables = [] if mark is None else state.scan(part, None, behind(mark))
        return pa.concat_tables(
            [of_keys.empty_table(), *(table.select(of_keys.names).cast(of_keys) for table in tables)]
        )

    def _waiting_anew(self, state: StateView) -> pa.Table | None:
        """Return the part EARLY where `emit_every` has changed, None where it is as it was.

        It is as where the state is rebuilt: all that waits is due at the first multiple after the batch before.
        """
        every = self.early_every
        if LAYOUT not in state.facts or state.facts.get(EVERY) == every:
            return None
        hashes, keys = [np.empty(0, dtype=np.int64)], [self.layout.keys.empty_table()]
        due = NEVER
        if every is not None:
            since = self.facts.time if self.facts.before is None else self.facts.before + 1
            due = multiple_from(since, every, self.facts.zero)
            for rows in live_rows(state, SESSIONS, self.layout.parts):
                waits = rows.filter(pa.array((self.layout.new_rows_of(rows) > 0) & ~self.layout.closed_of(rows)))
                hashes.append(integers(waits, HASH))
                keys.append(waits.select(self.layout.keys.names).cast(self.layout.keys))
        of_rows, table = np.concatenate(hashes), pa.concat_tables(keys).combine_chunks()
        each = grouped(table, of_rows)
        return entries(of_rows[each.first], table.take(pa.array(each.first)), np.full(each.groups, due))

    def _merge(self) -> None:
        late = _BEGINNING if self.facts.late is None else self.facts.late
        close = _BEGINNING if self.facts.watermark is None else self.facts.watermark
        lateness, layout = self.layout.lateness, self.layout
        starts, ends = (micros_of(self.held, name) for name in BOUNDS.names)
        self.held_ends, self.was_closed = ends, layout.closed_of(self.held)
        # A session that the watermark of lateness has passed closes without the batch's rows.
        self.passed: Bools = (ends < late) & ~self.was_closed
        self.held_closed: Bools = self.was_closed | self.passed
        held_new = layout.new_rows_of(self.held)
        # A pane that discards has rows, or there is none; without early panes there always are.
        may_be_empty = layout.early and layout.accumulation is Accumulation.DISCARDING
        self.passing: Bools = self.passed & (held_new > 0) if may_be_empty else self.passed
        self.held_revisions = layout.revisions_of(self.held) + self.passing
        held_new = np.where(self.held_closed, 0, held_new)
        surely: Bools = self.rows[SURELY_LATE].to_numpy()
        held, came = np.flatnonzero(ends >= max(late - lateness, _BEGINNING)), np.flatnonzero(~surely)
        self.spans = merged_spans(
            np.concatenate([self.key_of_held[held], self.key_of_rows[came]]),
            np.concatenate([starts[held], integers(self.rows, START)[came]]),
            np.concatenate([ends[held], integers(self.rows, END)[came]]),
        )
        spans = self.spans
        self.joined, of_held, of_came = held, spans.ids[: len(held)], spans.ids[len(held) :]
        is_held = np.arange(len(held) + len(came)) < len(held)
        is_late: Bools = ~spans.having(is_held) & (spans.ends < late)
        self.late: Bools = surely.copy()
        self.late[came] = is_late[of_came]
        self.changed = spans.having(~is_held)
        is_closed: Bools = ~is_late & (spans.ends < close)
        was = np.zeros(spans.total, dtype=np.bool_)
        was[of_held] = self.held_closed[held]
        self.closes: Bools = is_closed & (self.changed | ~was)
        self.closed: Bools = is_closed | (was & ~self.changed)
        self.revised: Bools = self.closes & (spans.ends < late)
        self.stays: Bools = ~(is_late | (self.closed & (spans.ends < max(close - lateness, _BEGINNING))))
        waited = np.zeros(spans.total, dtype=np.int64)
        np.add.at(waited, of_held, held_new[held])
        self.new_rows = waited.copy()
        np.add.at(self.new_rows, of_came, integers(self.rows, ROWS)[came])
        self.emits: Bools = self.closes & (self.new_rows > 0) if may_be_empty else self.closes
        self.early: Bools = ~is_late & ~self.closed & self._is_early(waited > 0)
        self.revisions = np.full(spans.total, -1, dtype=np.int64)
        np.maximum.at(self.revisions, of_held, self.held_revisions[held])
        self.revisions += self.emits | self.early
        self.slots = np.full(spans.total, -1, dtype=np.int64)
        self.slots[of_held] = integers(self.held, GROUP)[held]
        # Which rows of `held` have other bounds than what has come out of them.
        self.replaced = np.zeros(len(ends), dtype=np.bool_)
        self.replaced[held] = (starts[held] != spans.starts[of_held]) | (ends[held] != spans.ends[of_held])
        # Of what a pane has had, one that discards has nothing more.
        self.had: Bools = self.held_closed | (held_new == 0) if layout.early else self.held_closed
        if layout.stands:
            bare = ~self.held_closed & (held_new == 0) & (self.held_revisions >= 0)
            emits = self.emits | self.early
            self.standing.join(spans, held, passing=self.passing, bare=bare, emits=emits, changed=self.changed)
        self.merged = self._merged(of_held, of_came, came)

    def _is_early(self, waited: Bools) -> Bools:
        """Return which sessions have an early pane if they are open; `waited` had new rows before this batch.

        The keys whose sessions have waited until this multiple of `emit_every` are in EARLY.
        """
        none = np.zeros(self.spans.total, dtype=np.bool_)
        by_rows = none if self.early_rows is None else self.changed & (self.new_rows >= self.early_rows)
        if self.next_multiple is None:
            return by_rows
        now = self.changed if self.next_multiple == self.facts.time else none
        return by_rows | now | (waited & self.due[EARLY][self.spans.owners])

    def _merged(self, of_held: Ints, of_came: Ints, came: Ints) -> pa.Table:
        """Return the sessions that the batch leaves or closes, as the state has them; those without a row as held."""
        plan, spans = self.layout.plan, self.spans
        names = [field.name for field in plan.fields]
        changed = np.flatnonzero(self.changed)
        adds = self.changed[of_held]
        if self.layout.accumulation is Accumulation.DISCARDING:
            adds &= ~self.had[self.joined]
        parts = [
            self.held.select(names).take(pa.array(self.joined[adds])),
            self.rows.select(names).take(pa.array(came)),
        ]
        ids = (np.cumsum(self.changed) - 1)[np.concatenate([of_held[adds], of_came])]
        partials = plan.merge(plan.partials_of(pa.concat_tables(parts).combine_chunks()), ids, len(changed))
        owners = spans.owners[changed]
        schema = pa.schema([*self.layout.keys, *plan.fields])
        table = pa.table([*self.keys.take(pa.array(owners)).columns, *plan.arrays_of(partials)], schema=schema)
        made = self.layout.rows(self.hashes[owners], table, spans.starts[changed], spans.ends[changed])
        kept = ~self.changed[of_held]
        place = np.empty(spans.total, dtype=np.int64)
        place[changed] = np.arange(len(changed))
        place[of_held[kept]] = len(changed) + np.arange(int(kept.sum()))
        whole = pa.concat_tables([made, self.held.take(pa.array(self.joined[kept]))]).combine_chunks()
        return whole.take(pa.array(place))

    def counts(self) -> dict[str, int]:
        """Return how many rows came, counted and were late."""
        rows = integers(self.rows, ROWS)
        late = int(rows[self.late].sum())
        return {"merged": int(rows.sum()), "counted": int(rows.sum()) - late, "late": late}

    def closed_sessions(self) -> Iterator[tuple[pa.Table, Bools | None]]:
        """Yield sessions that close, those that late rows revise, early panes, and what is taken back, by their ends.

        Beside them is which of them are not late, None where all are in time.
        Of one key and end a row that is taken back comes before the one that replaces it.
        """
        retracts, panes = self.layout.retracts, np.where(self.revised[self.emits], _LATE, _ON_TIME)
        taken_back, of_panes = self.replaced & self.held_closed & retracts, self.standing.taken_back
        of_panes = of_panes if retracts else of_panes.slice(0, 0)
        pieces = [
            (of_panes, _RETRACTED, self.layout.revisions_of(of_panes)),
            (self.held.filter(pa.array(self.passing)), _ON_TIME, self.held_revisions[self.passing]),
            (self.held.filter(pa.array(taken_back)), _RETRACTED, self.held_revisions[taken_back]),
            (self.merged.filter(pa.array(self.emits)), panes, self.revisions[self.emits]),
            (self.merged.filter(pa.array(self.early)), _EARLY, self.revisions[self.early]),
        ]
        rows = pa.concat_tables([table for table, _, _ in pieces]).combine_chunks()
        of_rows = np.concatenate([np.broadcast_to(np.asarray(pane), table.num_rows) for table, pane, _ in pieces])
        revisions = np.concatenate([numbers for _, _, numbers in pieces])
        # An early pane is taken back when others replace it, which may be long after its end.
        timed = (of_rows == _ON_TIME) | (of_rows == _EARLY)
        timed[: of_panes.num_rows] = True
        order = np.lexsort((integers(rows, HASH), micros_of(rows, BOUNDS.names[1])))
        rows, of_rows, revisions, timed = rows.take(pa.array(order)), of_rows[order], revisions[order], timed[order]
        for at in range(0, rows.num_rows, OUTPUT_ROWS):
            piece = slice(at, at + OUTPUT_ROWS)
            table = rows.slice(at, OUTPUT_ROWS).combine_chunks()
            windows = self.layout.finished(table, of_rows[piece], revisions[piece])
            yield windows, timed[piece] if self.layout.has_panes else None

    def late_rows(self, visible: pa.Schema, step: str) -> Iterator[Emit]:
        """Yield the late rows, which were sent whole, in order of arrival; `visible` are their columns."""
        if LATE_OUTLET not in self.facts.read or not self.late.any():
            return
        rows = self.rows.filter(pa.array(self.late))
        rows = rows.take(arrival_order(rows[LATE_ARRIVAL])).combine_chunks()
        table = pa.table([rows[ROW + f.name] for f in visible], schema=visible).append_column(TIME, rows[START])
        places = np.arange(rows.num_rows, dtype=np.int64)
        none = np.zeros(rows.num_rows, dtype=np.int64)
        yield Emit(
            outlet=LATE_OUTLET,
            rows=late_rows(table, watermark=self.facts.late, step=step),
            stand=lambda: Stand(rows=places, times=none, hashes=none),
            arrivals=partial(column_array, rows, LATE_ARRIVAL),
        )

    def change(self) -> Change:
        """Return what the batch changes of the sessions that stay, and when their keys are due."""
        stay, layout = np.flatnonzero(self.stays), self.layout
        owners = self.spans.owners[stay]
        was_passed = np.zeros(self.spans.total, dtype=np.bool_)
        was_passed[self.spans.ids[: len(self.joined)]] = self.passed[self.joined]
        other = (self.changed | self.closes | self.early | was_passed)[stay]
        standing = self.standing
        # Sessions keep their numbers, then standing panes; what is new gets one that is free.
        numbered = np.concatenate([owners, standing.keys[standing.stays], standing.keys_of_begun])
        new = np.full(len(standing.keys_of_begun), -1, dtype=np.int64)
        taken = np.concatenate([self.slots[stay], standing.slots[standing.stays], new])
        by_owner = np.argsort(numbered, kind="stable")
        every_slot = np.empty(len(numbered), dtype=np.int64)
        every_slot[by_owner] = free_slots(numbered[by_owner], taken[by_owner])
        slots = every_slot[: len(owners)]
        at = stay[other]
        written = layout.marked(
            self.merged.take(pa.array(at)),
            slots=slots[other],
            revisions=self.revisions[at],
            closed=self.closed[at],
            new_rows=np.where((self.closed | self.early)[at], 0, self.new_rows[at]),
        )
        # Tombstones for the numbers that a key has no session of any more.
        rows = pa.concat_tables([self.held, standing.rows])
        held_slots, held_keys = integers(rows, GROUP), np.concatenate([self.key_of_held, standing.keys])
        width = max(int(every_slot.max(initial=0)), int(held_slots.max(initial=0))) + 1
        gone = ~np.isin(held_keys * width + held_slots, numbered * width + every_slot)
        begun = layout.standing(standing.begun, every_slot[len(numbered) - standing.begun.num_rows :])
        pieces = [written, begun, layout.deleted(rows.filter(pa.array(gone)))]
        append = {}
        if any(table.num_rows for table in pieces):
            append[SESSIONS] = pa.concat_tables(pieces)
        for part in (name for name in self.due if name != EARLY):
            due, closed = self.due[part], part == LATENESS
            held, left = self.was_closed == closed, self.closed[stay] == closed
            before = least(self.key_of_held[held], self.held_ends[held], len(self.hashes))
            after = least(owners[left], self.spans.ends[stay[left]], len(self.hashes))
            asked = np.flatnonzero((after < NEVER) & (due | (after < before)))
            if len(asked):
                groups = deadlines(after[asked], layout.lateness if closed else 0)
                append[part] = entries(self.hashes[asked], self.keys.take(pa.array(asked)), groups)
        waits = stay[(self.changed & ~self.closed & ~self.early)[stay]]
        if self.next_multiple is not None and len(waits):
            asked = np.unique(self.spans.owners[waits])
            groups = np.full(len(asked), self.next_multiple, dtype=np.int64)
            append[EARLY] = entries(self.hashes[asked], self.keys.take(pa.array(asked)), groups)
        replace = {}
        if self.waiting is not None:
            later = self.waiting.filter(pa.array(integers(self.waiting, GROUP) > self.facts.time))
            replace[EARLY] = pa.concat_tables([later, *([append.pop(EARLY)] if EARLY in append else [])])
        # Where no entry was due no floor is written either.
        passed = {part: clock for part, clock in self.clocks.items() if part in self.due and self.due[part].any()}
        return Change(
            append=append,
            replace=replace,
            floors={part: behind(clock) for part, clock in passed.items() if clock is not None},
        )
