"""Take the rows of a batch into the global windows of a partition, and emit those whose triggers fire (SEMANTICS 6).

A batch costs what its rows, their keys, the keys that are due, and the rows of windows that fire cost. Windows that do
not fire are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.specs.global_windows import FINISHED_OUTLET, GlobalWindows
from penstock.graph.trigger_protocol import Trigger, walk
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import NONE, behind, moments
from penstock.operators.functions.python_values import key_values, python_rows
from penstock.operators.grouping import group_rows
from penstock.operators.interval_pairs import number_in_key
from penstock.operators.protocol import HASHED, TIME, Emit, StateView, StepFacts
from penstock.operators.triggers.composed_machines import machine_of
from penstock.operators.triggers.global_contents import MergedRows, WindowRows, Windows
from penstock.operators.triggers.global_layout import (
    EVENT_DUE,
    HELD,
    NEXT,
    SLOTS,
    STATE,
    TIME_DUE,
    TIMED,
    TRIGGER,
    TTL,
    VALUES,
    GlobalLayout,
    counted_from,
    expiries,
)
from penstock.operators.triggers.global_side import GlobalSide
from penstock.operators.triggers.machines import CONTINUE, PURGE, Dues, TriggerBatch
from penstock.operators.triggers.row_triggers import EMPTY, RowTriggers
from penstock.operators.windows.window_rows import late_rows
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import EXPIRES, HASH
from penstock.state.writer import Change
from penstock.time.arrival import BY_TIME, Stand
from penstock.time.clock import END_OF_TIME

__all__ = ["GlobalBatch", "GlobalWork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalWork:
    """A step of global windows: a value that can be sent to a task."""

    name: str
    spec: GlobalWindows
    rows_as: GlobalSide
    layout: GlobalLayout
    output: pa.Schema


class GlobalBatch:
    """The work of a batch in one partition; `received` are its rows, in the order of arrival.

    Keys are those of the rows and those that are due, in the order of their hashes. Arrays refer to them by number.
    """

    def __init__(self, work: GlobalWork, state: StateView, received: pa.Table, facts: StepFacts) -> None:
        self.work, self.layout, self.facts, self.received = work, work.layout, facts, received
        idle = work.spec.window.idle
        self.ttl = None if idle is None else idle.micros
        self.facts_before, was = state.facts, state.facts.get(TIMED) or 0
        self.new_ttl = self.ttl is not None and not was
        self.ttl_gone = self.ttl is None and was > 0
        # An older version has written True, which may stand for another one.
        self.other_ttl = self.ttl is not None and was > 0 and (was is True or was != self.ttl)
        self._clocks = {EVENT_DUE: facts.watermark, TIME_DUE: facts.time}
        self._find_keys(state)
        self._read_keys(state)
        self._judge()
        content = self._content(state)
        self.given = content.emit(np.flatnonzero(self.fires))
        self.held[self.fires] = self.given.left
        self.evicted = int((self.held_now[self.fires] - self.given.left).sum())
        gone = self.emptied | (self.held == 0)
        self.held[gone] = self.next[gone] = 0
        self.machine.emptied(self.slots, gone)
        self._schedule()
        self.change = self._change(content)

    def _content(self, state: StateView) -> MergedRows | WindowRows:
        work = self.work
        windows = Windows(
            name=work.name,
            spec=work.spec,
            visible=work.rows_as.visible,
            output=work.output,
            layout=work.layout,
            facts=self.facts,
            state=state,
            hashes=self.hashes,
            keys=self.keys,
            held=self.held_before,
            stored=self.stored,
            rows=self.live_rows,
            ids=self.ids,
            numbers=self.numbers,
            read=partial(work.rows_as.input_of, self.live_rows),
        )
        return MergedRows(windows) if self.layout.merged else WindowRows(windows)

    # --- the keys -----------------------------------------------------------------------------

    def _find_keys(self, state: StateView) -> None:
        layout, rows = self.layout, self.received
        names, n = layout.keys.names, rows.num_rows
        tables = [
            layout.entries(np.zeros(n, dtype=np.int64), integers(rows, HASHED), self.work.rows_as.key_table(rows))
        ]
        self.woken: list[str] = []
        for part, clock in self._clocks.items():
            due = [] if clock is None else state.scan(part, None, behind(clock))
            if due:
                self.woken.append(part)
            tables += [self._unplaced(table) for table in due]
        sought = sum(table.num_rows for table in tables)
        if self.new_ttl or self.other_ttl or self.ttl_gone:
            # Each key expires by this `ttl` from now on, or never any more, as in a state that is restored.
            tables += [self._unplaced(table) for table in state.scan(STATE)]
        every = pa.concat_tables(tables).combine_chunks()
        hashes = integers(every, HASH)
        grouping = group_rows([column_array(every, name) for name in names], hashes)
        self.hashes, self.total = hashes[grouping.first], grouping.groups
        columns = [column_array(every, name).take(pa.array(grouping.first)) for name in names]
        self.keys = pa.table(columns, schema=layout.keys)
        self.row_ids = grouping.ids[:n]
        self.sought: Bools = np.zeros(self.total, dtype=np.bool_)
        self.sought[grouping.ids[:sought]] = True

    def _unplaced(self, rows: pa.Table) -> pa.Table:
        """Return the keys of rows of a part, as entries of group 0."""
        layout, none = self.layout, np.zeros(rows.num_rows, dtype=np.int64)
        return layout.entries(none, integers(rows, HASH), rows.select(layout.keys.names).cast(layout.keys))

    def _read_keys(self, state: StateView) -> None:
        """Read what is kept for the keys; a trigger that has changed begins again."""
        layout = self.layout
        self.had, self.stored = state.lookup(STATE, self.hashes, self.keys, schema=layout.of_key)
        lists = column_array(self.stored, SLOTS)
        written = pc.equal(column_array(self.stored, TRIGGER), pa.scalar(layout.trigger)).fill_null(False)  # noqa: FBT003
        same: Bools = self.had & written.to_numpy(zero_copy_only=False)
        self.own = RowTriggers(self.work.name, [None] * self.total)
        self.has_own = any(not isinstance(part, Trigger) for part in walk(self.work.spec.trigger))
        if self.has_own:
            texts = column_array(self.stored, VALUES).to_pylist()
            self.own.kept = [given if known else None for given, known in zip(texts, same.tolist(), strict=True)]
        self.machine = machine_of(self.work.spec.trigger, self.own)
        self.first = np.array(self.machine.first(), dtype=np.int64)
        self.slots = np.tile(self.first, (self.total, 1))
        # A person may have taken the slots out of a table.
        lengths: Ints = pc.list_value_length(lists).fill_null(-1).to_numpy()
        whole = same & (lengths == len(self.first))
        if whole.any() and len(self.first):
            values: Ints = lists.filter(pa.array(whole)).flatten().to_numpy()
            self.slots[whole] = values.reshape(-1, len(self.first))
        self.held_before = _numbers(self.stored, HELD)
        self.next = _numbers(self.stored, NEXT)
        self.expires, self.ttl_from = moments(self.stored, EXPIRES), counted_from(self.stored)
        self.indexed = {part: _numbers(self.stored, f"_{part}", END_OF_TIME) for part in self._clocks}

    def _names(self) -> list[object]:
        if self._key_names is None:
            self._key_names = key_values(self.keys, self.total)
        return self._key_names

    _key_names: list[object] | None = None

    # --- the trigger --------------------------------------------------------------------------

    def _judge(self) -> None:
        facts, rows_as = self.facts, self.work.rows_as
        finished = self.machine.finished(self.slots)
        self.late: Bools = finished[self.row_ids]
        live = pa.array(np.flatnonzero(~self.late))
        self.live_rows = self.received.take(live) if self.late.any() else self.received
        self.ids = self.row_ids[~self.late]
        self.numbers = self.next[self.ids] + number_in_key(self.ids)
        counts = np.bincount(self.ids, minlength=self.total).astype(np.int64, copy=False)
        self.had_rows: Bools = counts > 0
        self.next = self.next + counts
        self.held_now = self.held_before + counts
        self.held = self.held_now.copy()
        self.times: Ints = self.live_rows[TIME].fill_null(NONE).to_numpy()
        self.batch = batch = TriggerBatch(
            total=self.total,
            ids=self.ids,
            times=self.times,
            held=self.held_now,
            time=facts.time,
            watermark=facts.watermark,
            late=facts.late,
            zero=facts.zero,
            values={sql: rows_as.input_of(self.live_rows, sql) for sql in self.work.spec.read_by_trigger},
            rows=lambda: python_rows(self.live_rows.select(rows_as.visible.names)),
            names=self._names,
        )
        awake = self._awake()
        self.machine.take(self.slots, batch, np.ones(self.total, dtype=np.bool_))
        codes = self.machine.ready(self.slots, batch, awake)
        self.fires: Bools = (codes != CONTINUE) & (self.held_now > 0)
        self.machine.fire(self.slots, batch, self.fires)
        self.finished: Bools = self.machine.finished(self.slots)
        self.emptied: Bools = self.fires & ((codes == PURGE) | self.finished)

    def _awake(self) -> Bools:
        """Return the keys whose triggers are judged: those with rows, and those whose moment has come by now.

        An entry may be of a moment that the trigger waits for no more, and a key may be due only to expire. Without
        this, `AtEnd`, which is ready in each batch after the end, would fire once more by chance. Triggers of the
        user's are asked for their moments once a batch, after they were judged: they are judged whenever an entry says.
        """
        if self.has_own:
            return self.sought
        awake = self.had_rows.copy()
        from_the_start = replace(self.batch, time=NONE, watermark=None)
        for part, due in zip(self._clocks, self.machine.dues(self.slots, from_the_start), strict=True):
            if part in self.woken:
                clock = self._clocks[part]
                assert clock is not None
                awake |= (due <= clock) & (due < END_OF_TIME)
        return awake

    def _schedule(self) -> None:
        """Find which keys expire, which are forgotten, and when the others are judged though no row comes."""
        facts, ttl = self.facts, self.ttl
        if ttl is None:
            self.expires[:] = self.ttl_from[:] = NONE
        else:
            self.ttl_from[self.had_rows | (self.expires == NONE) | self.new_ttl] = facts.time
            self.expires = expiries(self.ttl_from, self.expires, ttl, facts.time)
        self.expired: Bools = self.had & ~self.had_rows & (self.expires != NONE) & (self.expires < facts.time)
        self.lost = int(self.held[self.expired].sum())
        self.values = self.own.texts()
        own = np.zeros(self.total, dtype=np.bool_)
        if self.values is not None:
            own[:] = [any(text != EMPTY for text in given) for given in self.values]
        changed = (self.slots != self.first).any(axis=1) if len(self.first) else np.zeros(self.total, dtype=np.bool_)
        self.stays: Bools = ((self.held > 0) | changed | own) & ~self.expired
        dues = self.machine.dues(self.slots, self.batch).only(self.stays & (self.held > 0))
        if ttl is not None:
            expiry = np.where(self.stays, self.expires + 1, END_OF_TIME)
            dues = dues.earlier(Dues.never(self.total)._replace(time=expiry))
        self.entries: dict[str, Ints] = {}
        for part, due in zip(self._clocks, dues, strict=True):
            clock = self._clocks[part]
            past = NONE if clock is None else clock
            waiting = np.where(self.indexed[part] > past, self.indexed[part], END_OF_TIME)
            new = (due > past) & (due < waiting)
            self.indexed[part] = np.where(new, due, waiting)
            self.entries[part] = np.flatnonzero(new)

    # --- what is left -------------------------------------------------------------------------

    def _change(self, content: MergedRows | WindowRows) -> Change:
        layout = self.layout
        append: dict[str, pa.Table] = {}
        stays, goes = np.flatnonzero(self.stays), np.flatnonzero(self.had & ~self.stays)
        none = np.zeros(self.total, dtype=np.int64)
        tables = []
        if len(stays):
            of = self._of_key(content).take(pa.array(stays))
            tables.append(layout.rows(none[stays], self.hashes[stays], self._keys_at(stays), of))
        if len(goes):
            of = _nulls(layout.of_key, len(goes))
            tables.append(layout.rows(none[goes], self.hashes[goes], self._keys_at(goes), of, deleted=True))
        if tables:
            append[STATE] = pa.concat_tables(tables)
        append |= content.written(np.flatnonzero(self.emptied | self.expired))
        for part, new in self.entries.items():
            if len(new):
                append[part] = layout.entries(self.indexed[part][new], self.hashes[new], self._keys_at(new))
        floors = {
            part: behind(clock) for part, clock in self._clocks.items() if part in self.woken and clock is not None
        }
        # That a ttl is gone is written in any case: one that comes later counts anew in each partition.
        facts = self._facts() if append or self.ttl_gone else None
        return Change(append=append, floors=floors, facts=facts)

    def _facts(self) -> Mapping[str, Any] | None:
        """Return the facts of the state where the `ttl` is another, or is no more; None leaves them."""
        now, was = self.ttl or False, self.facts_before.get(TIMED, False)
        return None if was is not True and was == now else {**self.facts_before, TIMED: now}

    def _of_key(self, content: MergedRows | WindowRows) -> pa.Table:
        layout, n = self.layout, self.total
        width, kind = len(self.first), layout.of_key.field(VALUES).type
        offsets = pa.array(np.arange(n + 1, dtype=np.int32) * width)
        own = {
            TRIGGER: pa.repeat(pa.scalar(layout.trigger), n),
            SLOTS: pa.ListArray.from_arrays(offsets, pa.array(self.slots.reshape(-1))),
            VALUES: pa.nulls(n, kind) if self.values is None else pa.array(self.values, kind),
            HELD: pa.array(self.held),
            NEXT: pa.array(self.next),
            EXPIRES: pa.array(self.expires, mask=self.expires == NONE),
            TTL: pa.array(np.full(n, self.ttl or 0), mask=self.ttl_from == NONE),
            **{f"_{part}": pa.array(at, mask=at == END_OF_TIME) for part, at in self.indexed.items()},
            **content.partials(self.held > 0),
        }
        return pa.table([own[field.name] for field in layout.of_key], schema=layout.of_key)

    def _keys_at(self, places: Ints) -> pa.Table:
        columns = [column_array(self.keys, name).take(pa.array(places)) for name in self.layout.keys.names]
        return pa.table(columns, schema=self.layout.keys)

    @property
    def counts(self) -> dict[str, int]:
        """Return the rows of the batch, and what has become of those that windows had."""
        late = int(self.late.sum())
        return {
            "merged": len(self.late),
            "counted": len(self.late) - late,
            "late": late,
            "fired": int(self.fires.sum()),
            "evicted": self.evicted,
            "expired": self.lost,
        }

    # --- what is emitted ----------------------------------------------------------------------

    def emitted(self) -> Iterator[Emit]:
        """Yield the rows that windows have given, and those that came after a finish."""
        by_time = np.full(len(self.given.keys), BY_TIME, dtype=np.int64)
        at = np.full(len(self.given.keys), self.facts.time, dtype=np.int64)
        stand = Stand(rows=by_time, times=at, hashes=self.hashes[self.given.keys])
        times = pa.array(self._moments()[self.given.keys])
        yield Emit(rows=self.given.rows.append_column(TIME, times), stand=lambda: stand)
        if FINISHED_OUTLET in self.facts.read and self.late.any():
            places = np.flatnonzero(self.late)
            rows = self.received.take(pa.array(places)).select([*self.work.rows_as.visible.names, TIME])
            none = np.zeros(len(places), dtype=np.int64)
            yield Emit(
                outlet=FINISHED_OUTLET,
                rows=late_rows(rows, watermark=self.facts.watermark, step=self.work.name),
                stand=lambda: Stand(rows=places, times=none, hashes=none),
                arrivals=partial(self.work.rows_as.arrivals, self.received),
            )

    def _moments(self) -> Ints:
        """Return for each key the event time of what no single row has caused.

        It is the watermark, or else the highest event time before the batch. In the first batch it is the highest of
        the key's rows, or the batch time.
        """
        if self.facts.reached is not None:
            moments = np.full(self.total, self.facts.reached, dtype=np.int64)
        else:
            moments = np.full(self.total, NONE, dtype=np.int64)
            np.maximum.at(moments, self.ids, self.times)
            moments[moments == NONE] = self.facts.time
        return moments if self.facts.judged is None else np.maximum(moments, self.facts.judged)


def _numbers(table: pa.Table, name: str, none: int = 0) -> Ints:
    """Return a column of int64 as numbers that may be changed, with a number in the place of null."""
    numbers: Ints = column_array(table, name).fill_null(none).to_numpy().copy()
    return numbers


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)
