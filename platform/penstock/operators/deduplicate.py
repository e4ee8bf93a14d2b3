"""Run `deduplicate`: emit the first row of each key, and drop the others until the watermark forgets the key.

The state of a partition has two parts, both with `_hash` and the key columns.
`state` has a row for each key, with `_event_time`, that of its first row. The newest row hides the older.
`deadlines` has an entry for each key that is remembered: `_group` is the watermark that forgets it.

The watermark that judges lateness decides whether a key is remembered. The one that closes windows removes its state,
and is the same or later. So the output follows from rows and watermarks alone, never from when state is removed.
That is why removal waits for the next batch, and asks for none.
A batch costs what its rows and the keys that are due cost, however many keys are held.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.errors import JobError, StateError
from penstock.graph.specs.deduplicate import Deduplicate
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import STATE, behind
from penstock.operators.grouping import Grouping, group_rows
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    TIME,
    BoundSide,
    Due,
    Emit,
    Rebuilt,
    RowsOfBranch,
    Send,
    StateView,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution, evolve
from penstock.operators.whole_rows import WholeRows, WholeRowsStep
from penstock.state.keys import Bools, Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH, conform
from penstock.state.writer import Change
from penstock.time.arrival import Stand
from penstock.time.clock import END_OF_TIME

__all__ = ["DeduplicateStep", "bind", "bind_side"]

DEADLINES = "deadlines"
EVENT_TIME = "_event_time"
_KEPT = pa.schema([(EVENT_TIME, pa.timestamp("us", tz="UTC"))])
_OWN = frozenset({GROUP, HASH, EXPIRES, DELETED, EVENT_TIME, "_state_partition"})
"""Columns that rows of state have beside the keys, in segments and in the tables of data checkpoints."""
_BEGINNING = -(2**63)
"""Stands for the event time of a key that is not held."""


def bind_side(spec: Deduplicate, side: BoundSide) -> DeduplicateSide:
    """Return the map side, which drops late rows; raises JobError for a key column that the state takes for itself."""
    if unfit := next((key for key in side.keys.names if key.lower() in _OWN), None):
        raise JobError(f"a key column of step {side.name!r} has the name {unfit!r}, which Penstock uses for itself")
    return DeduplicateSide.of(side, within=spec.within)


def bind(spec: Deduplicate, sides: Sequence[DeduplicateSide], context: StepContext) -> DeduplicateStep:
    """Return the step."""
    (side,) = sides
    return DeduplicateStep(name=context.name, rows_as=side, within=spec.within)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateSide(WholeRows):
    """Map side: late rows are counted and dropped, the others are sent whole."""

    within: int

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield the rows whose keys are still remembered when they arrive."""
        on_time = _remembered(integers(rows.table, TIME), self.within, facts.late)
        late = len(on_time) - int(on_time.sum())
        yield Tally({"rows": late, "late": late})
        yield from WholeRows.prepare(self, rows.only(on_time) if late else rows, facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateStep(WholeRowsStep):
    """The step in the state partitions; `within` is in microseconds."""

    name: str
    rows_as: WholeRows
    within: int

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.rows_as.keys

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the output, which has the columns of the input."""
        return {MAIN_OUTLET: self.rows_as.visible}

    # --- what is kept -------------------------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps for each key; `within` is no part of it, and may change."""
        keys = ", ".join(f"{field.name} {field.type}" for field in self.keys)
        return f"[{keys}] event time of the first row"

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return that the newest row of a key hides the older; the main table shows keys, and deadlines follow."""
        shown, keys = {STATE: MAIN, DEADLINES: None}, tuple(self.keys.names)
        return by_name(Part(name=n, identity=keys, merge=Merge.LATEST, table=table) for n, table in shown.items())

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs: the step resumes from state of the same keys only."""
        stored = state.schema(STATE)
        keys = state.manifest.keys
        return self.evolved(state.written_as, keys, pa.schema([]) if stored is None else stored)

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        if layout == self.layout_name:
            return Evolution()
        if not {EVENT_TIME, *keys} <= {*stored.names}:
            return Evolution(refused=(f"it keeps {layout}, where deduplicate keeps {self.layout_name}",))
        moved = keys != self.keys.names and sorted(keys) == sorted(self.keys.names)
        order = ("the key columns stand in another order, which gives keys other hashes",) if moved else ()
        return evolve(pa.schema([stored.field(key) for key in keys]), self.keys, _KEPT, _KEPT) + Evolution(order)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys and `_event_time`."""
        return {MAIN: pa.schema([*self.keys, *_KEPT])}

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each key."""
        return conform(rows, self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return the keys that the moment remembers; raises StateError for a key with several rows, or without time."""
        rows = tables[MAIN]
        keys, hashes = rows.select(self.keys.names).cast(self.keys), integers(rows, HASHED)
        if (more := rows.num_rows - _grouped(keys, hashes).groups) > 0:
            raise StateError(f"the state given to step {self.name!r} has {more:,} more rows than keys; a key has one")
        if none := rows[EVENT_TIME].null_count:
            raise StateError(f"the state given to step {self.name!r} has {none:,} rows without {EVENT_TIME}")
        times: Ints = column_array(rows, EVENT_TIME).cast(pa.int64()).to_numpy()
        kept = np.flatnonzero(_remembered(times, self.within, moment.watermark))
        return Rebuilt(change=self._change(keys, hashes, times, kept, kept[:0]), due=None, due_time=None)

    # --- what a batch does --------------------------------------------------------------------

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Emit the first rows of keys that are not remembered, then forget the keys that are due."""
        rows = self.rows_as.received(inputs[0])
        n = rows.num_rows
        entries = self._due_entries(state, facts.watermark)
        every = pa.concat_tables([_entries(rows[HASHED], self.rows_as.key_table(rows)), *entries]).combine_chunks()
        keys, hashes = every.select(self.keys.names), integers(every, HASH)
        grouping = _grouped(keys, hashes)
        ids, first = grouping.ids, grouping.first
        keys, hashes = keys.take(pa.array(first)), hashes[first]
        had, known = state.lookup(STATE, hashes, keys, schema=_KEPT)
        times: Ints = column_array(known, EVENT_TIME).cast(pa.int64()).fill_null(_BEGINNING).to_numpy().copy()

        # Rows stand before entries, in order of arrival: the first of a key that has rows is its first row.
        new = (first < n) & ~(had & _remembered(times, self.within, facts.late))
        places = np.sort(first[new])
        yield self._emitted(rows, places)
        yield Tally({"merged": n, "emitted": len(places), "duplicates": n - len(places)})
        times[new] = integers(rows, TIME)[first[new]]

        held = _remembered(times, self.within, facts.watermark)
        due = np.zeros(len(hashes), dtype=np.bool_)
        due[ids[n:]] = True
        # A key whose entry was due stays where `within` has become longer: it gets another entry, and its row again.
        kept = np.flatnonzero(held & (new | (due & had)))
        # Where no entry was due no floor is written either.
        floor = behind(facts.watermark) if facts.watermark is not None and entries else None
        yield self._change(keys, hashes, times, kept, np.flatnonzero(had & ~held), floor)

    def _emitted(self, rows: pa.Table, places: Ints) -> Emit:
        none = np.zeros(len(places), dtype=np.int64)
        return Emit(
            rows=rows.select([*self.rows_as.visible.names, TIME]).take(pa.array(places)),
            stand=lambda: Stand(rows=places, times=none, hashes=none),
            arrivals=partial(self.rows_as.arrivals, rows),
        )

    def _due_entries(self, state: StateView, watermark: int | None) -> list[pa.Table]:
        if watermark is None:
            return []
        due = state.scan(DEADLINES, None, behind(watermark))
        return [_entries(table[HASH], table.select(self.keys.names).cast(self.keys)) for table in due]

    def _change(
        self, keys: pa.Table, hashes: Ints, times: Ints, kept: Ints, gone: Ints, floor: int | None = None
    ) -> Change:
        """Return the change that remembers some keys, each since a time, and forgets others."""
        written = np.concatenate([kept, gone])
        append = {}
        if len(written):
            of_keys = _entries(pa.array(hashes[written]), keys.take(pa.array(written)))
            since = pa.array(times[written]).cast(_KEPT.field(EVENT_TIME).type)
            deleted = pa.array(np.arange(len(written)) >= len(kept))
            rows = of_keys.append_column(EVENT_TIME, since).append_column(DELETED, deleted)
            append[STATE] = rows.add_column(0, GROUP, pa.array(np.zeros(len(written), dtype=np.int64)))
        if len(kept):
            deadlines = pa.array(_deadlines(times[kept], self.within))
            append[DEADLINES] = of_keys.slice(0, len(kept)).add_column(0, GROUP, deadlines)
        return Change(append=append, floors={} if floor is None else {DEADLINES: floor})


def _deadlines(times: Ints, within: int) -> Ints:
    """Return the watermarks that forget keys whose first rows have these event times, before the end of time."""
    return np.minimum(times, END_OF_TIME - 1 - within) + within


def _remembered(times: Ints, within: int, watermark: int | None) -> Bools:
    """Return which keys, whose first rows have these event times, a watermark does not forget."""
    if watermark is None:
        return np.ones(len(times), dtype=np.bool_)
    return _deadlines(times, within) > watermark


def _grouped(keys: pa.Table, hashes: Ints) -> Grouping:
    return group_rows([column_array(keys, name) for name in keys.column_names], hashes)


def _entries(hashes: pa.Array | pa.ChunkedArray, keys: pa.Table) -> pa.Table:
    return keys.add_column(0, pa.field(HASH, pa.int64()), hashes)
