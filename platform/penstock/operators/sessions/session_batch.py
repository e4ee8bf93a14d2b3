"""Join the sessions of a batch to those that a state partition holds, and close the ones that are due (SEMANTICS 3).

Merging is the same in whatever order and by whatever pieces. A batch costs what its rows, the open sessions of their
keys, and the keys that are due cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.graph.specs.time_windows import LATE_OUTLET
from penstock.operators.aggregates import ROWS, AggregatePlan
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_timeouts import behind
from penstock.operators.grouping import Grouping, group_rows
from penstock.operators.protocol import HASHED, TIME, Emit, StateView, StepFacts
from penstock.operators.sessions.session_rows import END, LATE_ARRIVAL, ROW, START, SURELY_LATE
from penstock.operators.sessions.session_spans import free_slots, merged_spans
from penstock.operators.windows.window_rows import WINDOW_END, WINDOW_START, closed_windows, late_rows
from penstock.state.keys import Bools, Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, GROUP, HASH
from penstock.state.writer import Change
from penstock.time.arrival import Stand, arrival_order

__all__ = [
    "BOUNDS",
    "DEADLINES",
    "SESSIONS",
    "SessionBatch",
    "SessionLayout",
    "deadlines",
    "entries",
    "grouped",
    "least",
    "micros_of",
]

SESSIONS, DEADLINES = "sessions", "deadlines"
SESSION_START, SESSION_END = "session_start", "session_end"
_UTC = pa.timestamp("us", tz="UTC")
BOUNDS = pa.schema([(SESSION_START, _UTC), (SESSION_END, _UTC)])
_NEVER = 2**63 - 1
_BEGINNING = -(2**63)
OUTPUT_ROWS = 262_144
"""How many windows one piece of the output has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLayout:
    """The columns of sessions, in the state and in the output; a plain value that can be pickled."""

    plan: AggregatePlan
    keys: pa.Schema

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the output: keys, window_start, window_end, results (SEMANTICS 3.1)."""
        bounds = [pa.field(WINDOW_START, _UTC), pa.field(WINDOW_END, _UTC)]
        return pa.schema([*self.keys, *bounds, *self.plan.result_fields])

    @property
    def stored(self) -> pa.Schema:
        """Return the columns of the part `sessions`."""
        hidden = [(GROUP, pa.int64()), (HASH, pa.int64())]
        return pa.schema([*hidden, *self.keys, *BOUNDS, *self.plan.fields, (DELETED, pa.bool_())])

    @property
    def parts(self) -> dict[str, Part]:
        """Return that the newest row of a key and number hides the older; tables show sessions, deadlines follow."""
        shown, keys = {SESSIONS: "", DEADLINES: None}, tuple(self.keys.names)
        return by_name(Part(name=n, identity=keys, merge=Merge.LATEST, table=table) for n, table in shown.items())

    def rows(self, slots: Ints, hashes: Ints, rows: pa.Table, starts: Ints, ends: Ints) -> pa.Table:
        """Return rows of the part `sessions`; keys and partials are those of `rows`."""
        own = {
            GROUP: pa.array(slots),
            HASH: pa.array(hashes),
            SESSION_START: pa.array(starts).cast(_UTC),
            SESSION_END: pa.array(ends).cast(_UTC),
            DELETED: pa.array(np.zeros(len(slots), dtype=np.bool_)),
        }
        schema = self.stored
        columns = [own[f.name] if f.name in own else rows[f.name].cast(f.type) for f in schema]
        return pa.table(columns, schema=schema)

    def finished(self, rows: pa.Table) -> pa.Table:
        """Return sessions with the columns of `stored` as output."""
        bounds = [rows[name] for name in BOUNDS.names]
        results = self.plan.results(self.plan.partials_of(rows))
        return pa.table([*(rows[name] for name in self.keys.names), *bounds, *results], schema=self.output)


class SessionBatch:
    """The work of a batch in one partition.

    `rows` are what the map sides sent. `hashes` and `keys` have the keys of these rows and those that are due, each
    once; other arrays refer to a key by its place there.
    """

    def __init__(self, layout: SessionLayout, state: StateView, rows: pa.Table, facts: StepFacts) -> None:
        self.layout, self.rows, self.facts = layout, rows, facts
        names, n = layout.keys.names, rows.num_rows
        of_keys = pa.schema([(HASH, pa.int64()), *layout.keys])
        due = [] if facts.watermark is None else state.scan(DEADLINES, None, behind(facts.watermark))
        came = rows.select([HASHED, *names]).rename_columns(of_keys.names)
        every = pa.concat_tables([came, *(table.select(of_keys.names).cast(of_keys) for table in due)]).combine_chunks()
        grouping = grouped(every.select(names), integers(every, HASH))
        self.hashes = integers(every, HASH)[grouping.first]
        self.keys = every.select(names).take(pa.array(grouping.first))
        self.due = np.zeros(grouping.groups, dtype=np.bool_)
        self.due[grouping.ids[n:]] = True
        self.key_of_rows = grouping.ids[:n]
        part = layout.parts[SESSIONS]
        self.key_of_held, held = state.rows_of(part, self.hashes, self.keys, schema=layout.stored)
        self.held = held.combine_chunks()
        self._merge()

    def _merge(self) -> None:
        late = _BEGINNING if self.facts.late is None else self.facts.late
        close = _BEGINNING if self.facts.watermark is None else self.facts.watermark
        starts, ends = (micros_of(self.held, name) for name in BOUNDS.names)
        self.held_ends = ends
        # A session that the watermark of lateness has passed closes without the batch's rows.
        self.passed: Bools = ends < late
        surely: Bools = self.rows[SURELY_LATE].to_numpy()
        held, came = np.flatnonzero(~self.passed), np.flatnonzero(~surely)
        self.spans = merged_spans(
            np.concatenate([self.key_of_held[held], self.key_of_rows[came]]),
            np.concatenate([starts[held], integers(self.rows, START)[came]]),
            np.concatenate([ends[held], integers(self.rows, END)[came]]),
        )
        is_held = np.arange(len(held) + len(came)) < len(held)
        is_late: Bools = ~self.spans.having(is_held) & (self.spans.ends < late)
        self.closes: Bools = ~is_late & (self.spans.ends < close)
        self.stays: Bools = ~(is_late | self.closes)
        self.changed = self.spans.having(~is_held)
        self.late: Bools = surely.copy()
        self.late[came] = is_late[self.spans.ids[len(held) :]]
        self.slots = np.full(self.spans.total, -1, dtype=np.int64)
        self.slots[self.spans.ids[is_held]] = integers(self.held, GROUP)[held]
        self.merged = self._merged(held, came)

    def _merged(self, held: Ints, came: Ints) -> pa.Table:
        """Return the merged sessions as the state has them."""
        plan = self.layout.plan
        names = [field.name for field in plan.fields]
        parts = [self.held.select(names).take(pa.array(held)), self.rows.select(names).take(pa.array(came))]
        partials = plan.merge(
            plan.partials_of(pa.concat_tables(parts).combine_chunks()), self.spans.ids, self.spans.total
        )
        keys = self.keys.take(pa.array(self.spans.owners))
        schema = pa.schema([*self.layout.keys, *plan.fields])
        table = pa.table([*keys.columns, *plan.arrays_of(partials)], schema=schema)
        return self.layout.rows(self.slots, self.hashes[self.spans.owners], table, self.spans.starts, self.spans.ends)

    def counts(self) -> dict[str, int]:
        """Return how many rows came, counted and were late."""
        rows = integers(self.rows, ROWS)
        late = int(rows[self.late].sum())
        return {"merged": int(rows.sum()), "counted": int(rows.sum()) - late, "late": late}

    def closed(self) -> Iterator[Emit]:
        """Yield the sessions that close, by their ends, as windows."""
        tables = [self.held.filter(pa.array(self.passed)), self.merged.filter(pa.array(self.closes))]
        rows = pa.concat_tables(tables).combine_chunks()
        rows = rows.take(pa.array(np.lexsort((integers(rows, HASH), micros_of(rows, SESSION_END)))))
        for at in range(0, rows.num_rows, OUTPUT_ROWS):
            windows = self.layout.finished(rows.slice(at, OUTPUT_ROWS).combine_chunks())
            # It closes when the watermark is past its end, and so may be late downstream at its last microsecond.
            yield closed_windows(windows, self.layout.keys, at_least=self.facts.judged)

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
        """Return what the sessions that stay open change, and when their keys are due."""
        stay = np.flatnonzero(self.stays)
        owners, changed = self.spans.owners[stay], self.changed[stay]
        slots = free_slots(owners, self.slots[stay])
        written = self.merged.take(pa.array(stay[changed])).set_column(0, GROUP, pa.array(slots[changed]))
        # Tombstones for the numbers that a key has no session of any more.
        held_slots = integers(self.held, GROUP)
        width = max(int(slots.max(initial=0)), int(held_slots.max(initial=0))) + 1
        deleted = self.held.filter(pa.array(~np.isin(self.key_of_held * width + held_slots, owners * width + slots)))
        marks = pa.array(np.ones(deleted.num_rows, dtype=np.bool_))
        deleted = deleted.set_column(deleted.schema.get_field_index(DELETED), DELETED, marks)
        append = {}
        if written.num_rows or deleted.num_rows:
            append[SESSIONS] = pa.concat_tables([written, deleted])
        before = least(self.key_of_held, self.held_ends, len(self.hashes))
        after = least(owners, self.spans.ends[stay], len(self.hashes))
        asked = np.flatnonzero((after < _NEVER) & (self.due | (after < before)))
        if len(asked):
            keys = self.keys.take(pa.array(asked))
            append[DEADLINES] = entries(self.hashes[asked], keys, deadlines(after[asked]))
        # Where no entry was due no floor is written either.
        watermark = self.facts.watermark
        floors = {DEADLINES: behind(watermark)} if watermark is not None and self.due.any() else {}
        return Change(append=append, floors=floors)


def least(owners: Ints, ends: Ints, total: int) -> Ints:
    """Return the least end of each owner, the end of time where it has none."""
    earliest = np.full(total, _NEVER, dtype=np.int64)
    np.minimum.at(earliest, owners, ends)
    return earliest


def deadlines(ends: Ints) -> Ints:
    """Return the watermarks that close sessions with these ends: the first that are past them."""
    return np.minimum(ends, _NEVER - 2) + 1


def entries(hashes: Ints, keys: pa.Table, groups: Ints) -> pa.Table:
    """Return rows of the part `deadlines`."""
    hidden = [pa.field(GROUP, pa.int64()), pa.field(HASH, pa.int64())]
    return pa.table([pa.array(groups), pa.array(hashes), *keys.columns], schema=pa.schema([*hidden, *keys.schema]))


def micros_of(rows: pa.Table, name: str) -> Ints:
    """Return a column of moments without nulls, as microseconds."""
    times: Ints = column_array(rows, name).cast(pa.int64()).to_numpy()
    return times


def grouped(keys: pa.Table, hashes: Ints) -> Grouping:
    """Number the keys of rows in the order of their hashes."""
    return group_rows([column_array(keys, name) for name in keys.column_names], hashes)
