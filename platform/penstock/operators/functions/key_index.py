"""Index of the keys that a batch touches in one state partition: their state before and after, and when they are due.

The state of a step with a function has these parts, all with `_hash` and the key columns:

- `state`: a row for each key, of which the newest hides the older. It has `_expires` where keys time out by idleness,
  and `_deadline` where they do by event time.
- `idle` and `deadlines`: the time at which a batch checks a key, in `_group`.
- `overdue`: keys that the next batch checks, by batch.
- `event_timers` and `batch_timers`: waiting timers, by the time they are set for.

A key that has state and can time out always has an entry at or before its timeout, and seldom more than one. A row that
postpones the timeout writes none, and a batch that meets an early entry writes a new one.
So a batch costs as much as the keys it touches and those that are due; the other keys of the partition cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.columns import column_array, integers
from penstock.operators.functions.function_spec import DEADLINE, FunctionStep
from penstock.operators.functions.python_values import key_values, python_rows
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import Due, StateView, StepFacts
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH
from penstock.state.writer import Change
from penstock.time.clock import END_OF_TIME

__all__ = [
    "BATCH_TIMERS",
    "EVENT_TIMERS",
    "NONE",
    "PARTS",
    "STATE",
    "KeyIndex",
    "behind",
    "moments",
    "readable",
]

STATE, IDLE, DEADLINES, OVERDUE = "state", "idle", "deadlines", "overdue"
EVENT_TIMERS, BATCH_TIMERS = "event_timers", "batch_timers"
PARTS = (STATE, IDLE, DEADLINES, OVERDUE, EVENT_TIMERS, BATCH_TIMERS)
NONE = -(2**63)
"""Stands for no moment."""


class KeyIndex:
    """The keys of one batch in one partition, in the order of their hashes, each with a number.

    `row_ids`: the key of each row of the batch. `before`: which keys had state, and `table` what state, a row for each.
    `exists`, `expires` and `deadlines` (microseconds, NONE for nothing) are as the batch leaves them. The caller of the
    function changes them, and marks a key in `changed`.
    """

    def __init__(self, step: FunctionStep, state: StateView | None, moment: StepFacts) -> None:
        self.step = step
        self.state = state
        self.moment = moment
        self._clocks: dict[str, int | None] = {
            IDLE: moment.time if step.spec.timeout.idle is not None else None,
            DEADLINES: moment.watermark if step.spec.timeout.event_time else None,
            OVERDUE: moment.batch - 1 if step.spec.timeout.event_time else None,
            EVENT_TIMERS: moment.watermark,
            BATCH_TIMERS: moment.time,
        }
        self._fired: dict[str, pa.Table] = {}
        self._timers: list[tuple[str, int, int]] = []

    # --- before the function ------------------------------------------------------------------

    def open(self, hashes: Ints, keys: pa.Table, *, whole: bool = False) -> None:
        """Find the keys of the rows, of all entries that are due, and with `whole` every key that has state."""
        step = self.step
        tables = [step.entries(np.zeros(len(hashes), dtype=np.int64), hashes, keys)]
        for part, clock in self._clocks.items():
            entries = [] if clock is None else self._entries(part, behind(clock))
            self._fired[part] = pa.concat_tables(entries) if entries else tables[0].slice(0, 0)
            tables.append(self._fired[part])
        if whole:
            tables += self._entries(STATE, None)
        every = pa.concat_tables(tables)
        arrays = [column_array(every, name) for name in step.keys.names]
        all_hashes = integers(every, HASH)
        grouping = group_rows(arrays, all_hashes)
        ids, first = grouping.ids, grouping.first
        self.hashes = all_hashes[first]
        self.keys = pa.table([array.take(pa.array(first)) for array in arrays], schema=step.keys)
        self.row_ids = ids[: len(hashes)]
        at = len(hashes)
        self._fired_ids: dict[str, Ints] = {}
        for part, table in self._fired.items():
            self._fired_ids[part] = ids[at : at + table.num_rows]
            at += table.num_rows
        self._read_state()

    def _entries(self, part: str, to: int | None) -> list[pa.Table]:
        """Return group, hash and keys of the rows of a part, those of groups below one; None is no bound."""
        tables = () if self.state is None else self.state.scan(part, None, to)
        names, keys = self.step.keys.names, self.step.keys
        return [
            self.step.entries(integers(table, GROUP), integers(table, HASH), table.select(names).cast(keys))
            for table in tables
        ]

    def _read_state(self) -> None:
        n = len(self.hashes)
        if self.state is None:
            self.before = np.zeros(n, dtype=np.bool_)
            table = pa.table([pa.nulls(n, field.type) for field in self.step.stored], schema=self.step.stored)
        else:
            self.before, table = self.state.lookup(STATE, self.hashes, self.keys, schema=self.step.stored)
        self.table = table.select(self.step.state.names)
        self.had_rows = np.zeros(n, dtype=np.bool_)
        self.had_rows[self.row_ids] = True
        self.exists = self.before.copy()
        self.changed = np.zeros(n, dtype=np.bool_)
        self.old_expires = moments(table, EXPIRES)
        self.old_deadlines = moments(table, DEADLINE)
        self.expires, self.deadlines = self.old_expires.copy(), self.old_deadlines.copy()

    def key_values(self, keys: Ints) -> list[Any]:
        """Return these keys as a function sees them: the value of one column, a named tuple of several, () of none.

        An Unfit stands for one that Python cannot hold.
        """
        return key_values(self.keys.take(pa.array(keys)), len(keys))

    def states(self, keys: Ints) -> list[Any]:
        """Return the state that these keys had before the batch, dicts, None for none; an Unfit as in `key_values`."""
        rows = python_rows(self.table.take(pa.array(keys)))
        return [row if exists else None for row, exists in zip(rows, self.before[keys].tolist(), strict=True)]

    def with_new(self, keys: Ints, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the state columns of all keys, where `columns` are those of these keys, and the others keep theirs."""
        old = [column_array(self.table, name) for name in self.table.column_names]
        if not len(keys):
            return old
        place = np.arange(len(self.hashes))
        place[keys] = len(place) + np.arange(len(keys))
        order = pa.array(place)
        return [pa.concat_arrays([was, now]).take(order) for was, now in zip(old, columns, strict=True)]

    def due_timers(self) -> Iterator[tuple[str, int, int]]:
        """Yield the part, the time and the key of each timer that was due before the batch's rows."""
        for part in (EVENT_TIMERS, BATCH_TIMERS):
            times = integers(self._fired[part], GROUP)
            yield from {(part, int(at), int(key)) for at, key in zip(times, self._fired_ids[part], strict=True)}

    def is_due(self, part: str, at: int) -> bool:
        """Return whether a timer of this part fires in this batch."""
        clock = self._clocks[part]
        return clock is not None and at <= clock

    def set_timer(self, part: str, at: int, key: int) -> None:
        """Note a timer that is not due yet."""
        self._timers.append((part, at, key))

    def timing_out(self) -> Ints:
        """Return the keys that time out in this batch: with state, due, and without a row of the batch (7.2)."""
        mark = self.moment.watermark
        idle = (self.expires != NONE) & (self.expires < self.moment.time)
        past = (self.deadlines != NONE) & (self.deadlines < (NONE if mark is None else mark))
        over = self._fired_in(IDLE, DEADLINES, OVERDUE) & (idle | past) & ~self.had_rows
        if mark == END_OF_TIME:
            over |= past  # this batch is the last: no later one could expire a key that has a row in it
        return np.flatnonzero(over & self.exists)

    def forget(self, keys: Ints | int) -> None:
        """Forget keys that have timed out."""
        self.exists[keys] = False
        self.expires[keys] = self.deadlines[keys] = NONE

    # --- after the function -------------------------------------------------------------------

    def touch(self) -> None:
        """Move the expiry of the keys that had rows, and give one to those that have state only now."""
        idle = self.step.spec.timeout.idle
        if idle is None:
            return
        moved = self.exists & (self.had_rows | (self.expires == NONE))
        self.expires[moved] = self.moment.time + idle
        self.changed |= moved

    def change(self, columns: Sequence[pa.Array]) -> Change:
        """Return what the batch changes; `columns` are the state columns of every key, in their order."""
        step = self.step
        written = np.flatnonzero((self.changed & self.exists) | (self.before & ~self.exists))
        index = pa.array(written)
        append: dict[str, pa.Table] = {}
        if len(written):
            stored = [column.take(index) for column in columns]
            kept = [(step.spec.timeout.idle is not None, self.expires), (step.spec.timeout.event_time, self.deadlines)]
            stored += [pa.array(at[written], mask=at[written] == NONE) for wanted, at in kept if wanted]
            rows = self._at(np.zeros(len(written), dtype=np.int64), written)
            for field, column in zip(step.stored, stored, strict=True):
                rows = rows.append_column(field, column)
            append[STATE] = rows.append_column(DELETED, pa.array(~self.exists[written]))
        for part, at, keys in self._new_entries():
            if len(keys):
                append[part] = self._at(at, keys)
        clocks = {part: clock for part, clock in self._clocks.items() if clock is not None}
        floors = {part: behind(clock) for part, clock in clocks.items() if self._fired[part].num_rows}
        return Change(append=append, floors=floors)

    def _due(self, change: Change, *parts: str) -> int | None:
        """Return the least group of index parts that remains after a change."""
        groups = []
        for part in parts:
            if self.state is not None:
                groups.append(self.state.first_group(part, change.floors.get(part)))
            if part in change.append:
                groups.append(int(integers(change.append[part], GROUP).min()))
        return min((group for group in groups if group is not None), default=None)

    def next_due(self, change: Change) -> Due:
        """Return when the partition has work though no row comes; a step that calls in every batch at the next tick."""
        event = self._due(change, DEADLINES, EVENT_TIMERS)
        if self._due(change, OVERDUE) is not None and self.moment.watermark is not None:
            event = self.moment.watermark if event is None else min(event, self.moment.watermark)
        if self.step.spec.every_batch and self.exists.any():
            return Due(event, self.moment.time + 1)
        return Due(event, self._due(change, IDLE, BATCH_TIMERS))

    def _new_entries(self) -> Iterator[tuple[str, Ints, Ints]]:
        """Yield each index part with the moments and keys of its new entries."""
        for part in (EVENT_TIMERS, BATCH_TIMERS):
            waiting = sorted({(at, key) for name, at, key in self._timers if name == part})
            at, keys = (np.array([timer[side] for timer in waiting], dtype=np.int64) for side in (0, 1))
            yield part, at, keys
        keys = self._to_index(self.expires, self.old_expires, self._fired_in(IDLE))
        yield IDLE, self.expires[keys] + 1, keys
        keys = self._to_index(self.deadlines, self.old_deadlines, self._fired_in(DEADLINES, OVERDUE))
        clock = self._clocks[DEADLINES]
        # One that a row has kept although its deadline is over goes with the next batch.
        late = self.deadlines[keys] < (NONE if clock is None else clock)
        yield DEADLINES, self.deadlines[keys[~late]] + 1, keys[~late]
        yield OVERDUE, np.full(int(late.sum()), self.moment.batch, dtype=np.int64), keys[late]

    def _to_index(self, now: Ints, before: Ints, fired: Bools) -> Ints:
        """Return the keys whose moment has no entry: new moments, earlier ones, and those whose entry has fired."""
        return np.flatnonzero(self.exists & (now != NONE) & ((before == NONE) | (now < before) | fired))

    def _fired_in(self, *parts: str) -> Bools:
        fired = np.zeros(len(self.hashes), dtype=np.bool_)
        for part in parts:
            fired[self._fired_ids[part]] = True
        return fired

    def _at(self, groups: Ints, keys: Ints) -> pa.Table:
        return self.step.entries(groups, self.hashes[keys], self.keys.take(pa.array(keys)))


def readable(rows: pa.Table) -> pa.Table:
    """Return rows of state for people and other engines: keys, state columns and `_expires`, a UTC timestamp.

    `_expires` is the batch time after which an idle key expires, or else the key's deadline in event time. Where keys
    have both, the deadline is `_deadline`.
    """
    kept = [name for name in (EXPIRES, DEADLINE) if name in rows.column_names]
    kind = pa.timestamp("us", tz="UTC")
    own = {GROUP, HASH, DELETED, EXPIRES, DEADLINE}
    shown = rows.select([name for name in rows.column_names if name not in own])
    if not kept:
        return shown.append_column(EXPIRES, pa.nulls(rows.num_rows, kind))
    for name, stored in zip((EXPIRES, DEADLINE), kept, strict=False):
        shown = shown.append_column(name, rows[stored].cast(kind))
    return shown


def moments(table: pa.Table, name: str) -> Ints:
    """Return a column of moments as microseconds, NONE for null; all NONE where the table has no such column."""
    if name not in table.column_names:
        return np.full(table.num_rows, NONE, dtype=np.int64)
    micros: Ints = column_array(table, name).cast(pa.int64()).fill_null(NONE).to_numpy().copy()
    return micros


def behind(clock: int) -> int:
    """Return the first group that a clock has not reached; nothing is ever due at the end of time itself."""
    return min(clock + 1, END_OF_TIME)
