"""Aggregate windows whose length and slide are counts in batch time, by panes (SEMANTICS 5.1).

A pane is as many rows of a key as length and slide both are multiples of. Each window is a range of panes, so the state
keeps partial aggregates of panes instead of rows. The part `keys` has a row for each key: how many rows it had, the
batch time of the last one, and its panes, the newest last. The newest row of a key hides the older. `idle` has an entry
for each key with a TTL.

A batch costs what its rows, its windows, and the panes of its keys cost.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

import numpy as np
import pyarrow as pa

from penstock.errors import JobError, StateError
from penstock.graph.durations import Count
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import NONE, behind
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import HASHED, MAIN, TIME, Due, Emit, Rebuilt, StateView, StepFacts, Tally
from penstock.operators.schema_evolution import Evolution
from penstock.operators.tuple_windows.key_ledger import TTL, TtlChange, changed_ttl, facts_of_ttl
from penstock.operators.tuple_windows.pane_batch import PaneBatch, panes_of
from penstock.operators.tuple_windows.tuple_side import TupleSide
from penstock.operators.whole_rows import WholeRowsStep
from penstock.operators.windows.window_evolution import kept_now
from penstock.operators.windows.window_rows import WINDOW_END, WINDOW_START
from penstock.state.full_compaction import live_rows
from penstock.state.keys import Bools, Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH
from penstock.state.writer import Change
from penstock.time.arrival import Stand

__all__ = ["COUNT", "PANES", "PaneStep", "has_panes"]

KEYS, IDLE = "keys", "idle"
COUNT, SEEN, PANES = "_count", "_seen", "_panes"
MOST_PANES = 64
"""The panes of a window with which they are kept. With more of them, rows of the window are."""
_UTC = pa.timestamp("us", tz="UTC")
_OWN = frozenset({GROUP, HASH, EXPIRES, DELETED, COUNT, SEEN, PANES, "_state_partition"})


def has_panes(window: TupleWindow) -> bool:
    """Return whether windows are made of panes: counts in batch time, of which one is a fair part of the other."""
    length, slide = window.length, window.slide
    if window.time is Time.EVENT or not isinstance(length, Count) or not isinstance(slide, Count):
        return False
    return length.rows // gcd(length.rows, slide.rows) <= MOST_PANES


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneStep(WholeRowsStep):
    """The step in the state partitions; `length` and `slide` are numbers of rows, `idle` is the TTL."""

    name: str
    side: TupleSide
    plan: AggregatePlan
    length: int
    slide: int
    idle: int | None

    @classmethod
    def of(cls, side: TupleSide, name: str) -> PaneStep:
        """Return the step; raises JobError for names that the state takes for itself."""
        window, plan = side.window, side.plan
        assert plan is not None
        assert isinstance(window.length, Count)
        assert isinstance(window.slide, Count)
        if taken := next((key for key in side.keys.names if key.lower() in _OWN), None):
            raise JobError(f"a key column of window {name!r} has the name {taken!r}, which Penstock uses for itself")
        counts = {"length": window.length.rows, "slide": window.slide.rows}
        return cls(name=name, side=side, plan=plan, idle=window.idle, **counts)

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.side.keys

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return keys, bounds, which are null, and results."""
        bounds = [pa.field(WINDOW_START, _UTC), pa.field(WINDOW_END, _UTC)]
        return {MAIN_OUTLET: pa.schema([*self.keys, *bounds, *self.plan.result_fields])}

    @property
    def explained(self) -> Mapping[str, str]:
        """Return that rows are merged."""
        return {"How windows are made": f"of panes of {gcd(self.length, self.slide):,} rows"}

    # --- what is kept -------------------------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps; the TTL is no part of it, and may change."""
        keys = ", ".join(f"{field.name} {field.type}" for field in self.keys)
        kept = [f"{aggregate} {result}" for aggregate, result in kept_now(self.plan)]
        return "panes of rows: " + json.dumps({"keys": keys, "rows": [self.length, self.slide], "aggregates": kept})

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return keys, which the main table shows, and the index of TTLs."""
        identity, shown = tuple(self.keys.names), {KEYS: MAIN, IDLE: None}
        return by_name(Part(name=n, identity=identity, merge=Merge.LATEST, table=t) for n, t in shown.items())

    @property
    def kept(self) -> pa.Schema:
        """Return the columns of a key: the number of its rows, the time of the last one, and its panes."""
        return pa.schema([(COUNT, pa.int64()), (SEEN, _UTC), (PANES, pa.list_(pa.struct(list(self.plan.fields))))])

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs: the step resumes from panes of the same keys, counts and aggregates only."""
        return self._evolved(state.written_as)

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        return self._evolved(layout)

    def _evolved(self, layout: str) -> Evolution:
        if layout == self.layout_name:
            return Evolution()
        return Evolution(refused=(f"it keeps {self.layout_name}, and its state is {layout}",))

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return the keys, and what is kept of them."""
        return {MAIN: pa.schema([*self.keys, *self.kept])}

    @property
    def may_lack(self) -> frozenset[str]:
        """Return the time of the last row: without it that is the moment."""
        return frozenset({SEEN})

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each key."""
        return rows.select(self.tables[MAIN].names).cast(self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return the state of these keys; raises StateError for a key with several rows, or without its count."""
        rows = tables[MAIN]
        grouping = group_rows([column_array(rows, name) for name in self.keys.names], integers(rows, HASHED))
        if more := rows.num_rows - grouping.groups:
            raise StateError(f"the state given to step {self.name!r} has {more:,} more rows than keys; a key has one")
        if none := rows[COUNT].null_count:
            raise StateError(f"the state given to step {self.name!r} has {none:,} rows without {COUNT}")
        seen = np.full(rows.num_rows, NONE if self.idle is None else moment.time, dtype=np.int64)
        if SEEN in rows.column_names and self.idle is not None:
            seen = column_array(rows, SEEN).cast(pa.int64()).fill_null(moment.time).to_numpy()
        hashed = rows.append_column(HASH, rows[HASHED])
        append = self._written(hashed, integers(rows, COUNT), seen, column_array(rows, PANES))
        if self.idle is not None:
            append[IDLE] = self._entries(seen + self.idle + 1, hashed)
        due = int(seen.min()) + self.idle + 1 if self.idle is not None and rows.num_rows else None
        facts = {} if self.idle is None else {TTL: self.idle}
        return Rebuilt(change=Change(append=append, facts=facts), due=None, due_time=due)

    def _written(
        self, keys: pa.Table, counts: Ints, seen: Ints, panes: pa.Array, deleted: Bools | None = None
    ) -> dict[str, pa.Table]:
        """Return rows of the part `keys`; `keys` has hashes and key columns."""
        n = keys.num_rows
        own = [pa.array(np.zeros(n, dtype=np.int64)), keys[HASH], *(keys[name] for name in self.keys.names)]
        kept = [pa.array(counts), pa.array(seen, mask=seen == NONE).cast(_UTC), panes]
        marks = pa.array(np.zeros(n, dtype=np.bool_) if deleted is None else deleted)
        hidden = [(GROUP, pa.int64()), (HASH, pa.int64())]
        schema = pa.schema([*hidden, *self.keys, *self.kept, (DELETED, pa.bool_())])
        return {KEYS: pa.table([*own, *kept, marks], schema=schema)}

    def _entries(self, groups: Ints, keys: pa.Table) -> pa.Table:
        schema = pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys])
        return pa.table([pa.array(groups), keys[HASH], *(keys[name] for name in self.keys.names)], schema=schema)

    # --- what a batch does --------------------------------------------------------------------

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Emit the windows that the batch's rows complete, and forget the keys whose TTL is over."""
        rows = self.side.received(inputs[0])
        n = rows.num_rows
        of_keys = pa.schema([(HASH, pa.int64()), *self.keys])
        arrived = pa.table([rows[HASHED], *self.side.key_table(rows).columns], schema=of_keys)
        due = [] if self.idle is None else state.scan(IDLE, None, facts.time + 1, of_keys)
        changed = changed_ttl(state, self.idle)
        if changed is not TtlChange.NONE:
            due += [table.select(of_keys.names).cast(of_keys) for table in live_rows(state, KEYS, self.parts)]
        every = pa.concat_tables([arrived, *due]).combine_chunks()
        grouping = group_rows([column_array(every, name) for name in self.keys.names], integers(every, HASH))
        keys = every.take(pa.array(grouping.first))
        touched = np.zeros(keys.num_rows, dtype=np.bool_)
        touched[grouping.ids[:n]] = True
        had, held = state.lookup(KEYS, integers(keys, HASH), keys, schema=self.kept)
        counts = column_array(held, COUNT).fill_null(0).to_numpy()
        dated = had & (changed in (TtlChange.NEW, TtlChange.GONE))
        panes = panes_of(held, PANES, touched | dated)  # all that is written again
        batch = PaneBatch(self.plan, self.length, self.slide, ids=grouping.ids[:n], counts=counts, held=panes)
        batch.reduce({name: column_array(rows, column) for column, _, name in self.side.inputs}, facts)
        for windows in batch.windows():
            named = [keys[name].take(pa.array(windows.keys)) for name in self.keys.names]
            bounds = [pa.nulls(len(windows.keys), _UTC)] * 2
            made = pa.table([*named, *bounds, *windows.results], schema=self.outlets[MAIN_OUTLET])
            none = np.zeros(len(windows.keys), dtype=np.int64)
            yield Emit(
                rows=made.append_column(TIME, pa.nulls(len(none), pa.int64())),
                stand=partial(Stand, rows=windows.rows, times=none, hashes=none),
                arrivals=partial(self.side.arrivals, rows),
            )
        outside = batch.in_no_window
        yield Tally({"merged": n - outside, "in_no_window": outside, "fired": batch.fired, "expired": batch.expired})
        seen = column_array(held, SEEN).cast(pa.int64()).fill_null(NONE).to_numpy()
        # Null without a TTL: one that comes later dates all keys anew, whatever happened to them meanwhile.
        now = NONE if self.idle is None else facts.time
        seen = np.where(dated, now, seen)
        looked_at = np.zeros(keys.num_rows, dtype=np.bool_)
        looked_at[grouping.ids[n:]] = True
        over = looked_at & ~touched & had & (self.idle is not None) & (seen < facts.time - (self.idle or 0))
        entered = had & (seen != NONE)
        change = self._change(batch, keys, touched | dated, over, entered, looked_at, np.where(touched, now, seen))
        after = yield replace(change, facts=facts_of_ttl(state, self.idle, writes=bool(change.append)))
        assert after is not None
        yield Due(None, None if self.idle is None else after.first_group(IDLE))

    def _change(
        self,
        batch: PaneBatch,
        keys: pa.Table,
        touched: Bools,
        over: Bools,
        had: Bools,
        looked_at: Bools,
        seen: Ints,
    ) -> Change:
        """Return what the batch changes: keys that had rows, and those that are forgotten."""
        written = np.flatnonzero(touched | over)
        append = {}
        if len(written):
            panes = batch.kept_panes(self.kept.field(PANES).type).take(pa.array(written))
            counts = batch.counts_after[written]
            append = self._written(keys.take(pa.array(written)), counts, seen[written], panes, over[written])
        floors = {}
        if self.idle is not None:
            again = np.flatnonzero(~over & ((touched & ~had) | (looked_at & (touched | had))))
            entries = self._entries(seen[again] + self.idle + 1, keys.take(pa.array(again)))
            append |= {IDLE: entries} if len(again) else {}
            floors = {IDLE: behind(batch.time)} if looked_at.any() else {}
        return Change(append=append, floors=floors)
