"""Evaluate the windows of rows of one batch in one state partition (SEMANTICS 5).

The batch takes the rows up to the last end that is due, or up to the watermark where rows are counted, those that
waited for it among them. It lists the rounds that they make due with the rows that their keys hold. What no later
window needs is removed. A batch costs what its rows, and the rows of the keys that it evaluates, cost. Windows that
end at multiples of a duration evaluate every key that has rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.graph.durations import Count
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import NONE
from penstock.operators.grouping import group_rows
from penstock.operators.interval_pairs import number_in_key
from penstock.operators.protocol import HASHED, TIME, Due, Emit, StateView, StepFacts
from penstock.operators.tuple_windows.evaluated import evaluated_windows
from penstock.operators.tuple_windows.key_ledger import KeyLedger, TtlChange, changed_ttl, facts_of_ttl
from penstock.operators.tuple_windows.rounds import (
    NEVER,
    KeyRows,
    Rounds,
    ceil_div,
    outside_counts,
    rounds_by_count,
    rounds_by_time,
)
from penstock.operators.tuple_windows.tuple_layout import (
    ARRIVED,
    AT,
    CLOSED,
    ENTERED,
    IDLE,
    KEYS,
    ROWS,
    WAITING,
    TupleLayout,
    booleans,
    micros,
)
from penstock.operators.tuple_windows.tuple_results import ENTER, HEARD, UNSEEN, Maker
from penstock.operators.tuple_windows.waiting_rows import PRUNED, pruned_rows
from penstock.operators.whole_rows import WholeRows
from penstock.state.full_compaction import live_rows
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import DELETED, GROUP, HASH, conform
from penstock.state.writer import Change
from penstock.time.arrival import BY_TIME, Stand
from penstock.time.clock import END_OF_TIME

__all__ = ["BATCH_BITS", "TupleBatch"]

BATCH_BITS = 32
_UTC = pa.timestamp("us", tz="UTC")
_HELD, _WAITED = -1, -2
"""Stand for the place of a row that is no row of the batch: the part `rows` or `waiting` has it."""


class TupleBatch:
    """The rows of a batch, and those that its rounds need.

    `rows` are sorted by key and arrival, and `keys` have each key once. `places` are the rows of the batch that they
    are, _HELD or _WAITED.
    """

    def __init__(
        self, layout: TupleLayout, side: WholeRows, state: StateView, received: pa.Table, facts: StepFacts
    ) -> None:
        self.layout, self.side, self.state, self.received, self.facts = layout, side, state, received, facts
        self.origin = 0 if layout.event else facts.zero
        self.end = layout.last_end(layout.clock(time=facts.time, watermark=facts.watermark), self.origin)
        self.closed: int | None = state.facts.get(CLOSED)
        # A slide that is a count has rounds whenever rows are taken.
        self.due = self.end is not None and (layout.slide is None or self.closed is None or self.end > self.closed)
        self.new = self._new_rows()
        self.new_times = micros(self.new, AT)
        taken = self.new_times <= (NONE if self.end is None or not self.due else self.end)
        taken |= layout.pushes
        self.unseen = ~taken if not layout.by_clock else np.ones(len(taken), dtype=np.bool_)
        self._gather(np.flatnonzero(taken))

    # --- rows -----------------------------------------------------------------------------------

    def _new_rows(self) -> pa.Table:
        rows, layout, n = self.received, self.layout, self.received.num_rows
        times = rows[TIME] if layout.event else pa.array(np.full(n, self.facts.time, dtype=np.int64))
        arrived = (self.facts.batch << BATCH_BITS) + np.arange(n)
        columns = [
            rows[HASHED],
            *self.side.key_table(rows).columns,
            pa.array(arrived, pa.int64()),
            times.cast(_UTC),
            *(rows[name] for name in layout.columns.names),
        ]
        return pa.table(columns, schema=self._gathered)

    @property
    def _gathered(self) -> pa.Schema:
        layout = self.layout
        return pa.schema([(HASH, pa.int64()), *layout.keys, *layout.placed, *layout.columns])

    def _waited(self) -> list[pa.Table]:
        """Return the rows that waited for the end, or those that its windows may have."""
        layout, end = self.layout, self.end
        if not self.due or end is None or not (layout.event or layout.slide is not None):
            return []
        low = None
        if layout.by_clock and self.closed is not None:
            assert layout.length is not None
            low = max(self.closed, NONE + layout.length) - layout.length + 1
        return self.state.scan(WAITING, low, min(end, END_OF_TIME - 1) + 1, self._gathered)

    def _gather(self, taken: Ints) -> None:
        """Bring the rows together, and number their keys."""
        layout, state, n = self.layout, self.state, self.new.num_rows
        self.waited = self._waited()
        waited = sum(table.num_rows for table in self.waited)
        looked_at, dated = layout.entries_due(state, self.facts.time), list[pa.Table]()
        match changed_ttl(state, layout.idle):
            case TtlChange.NEW:
                dated = [table for part in (KEYS, ROWS) for table in live_rows(state, part, layout.parts)]
            case TtlChange.SHORTER | TtlChange.GONE as changed:
                (looked_at if changed is TtlChange.SHORTER else dated).extend(live_rows(state, KEYS, layout.parts))
        sizes = [n + waited, *(sum(table.num_rows for table in tables) for tables in (looked_at, dated))]
        all_keys = layout.slide is not None and not layout.by_clock and self.due
        schema = pa.schema([*self._gathered, (ENTERED, pa.bool_())])
        held = [conform(rows, schema) for rows in live_rows(state, ROWS, layout.parts)] if all_keys else []
        own = pa.schema([(HASH, pa.int64()), *layout.keys])
        every = pa.concat_tables(
            [table.select(own.names).cast(own) for table in (self.new, *self.waited, *looked_at, *dated, *held)]
        )
        grouping = group_rows([column_array(every, name) for name in layout.keys.names], integers(every, HASH))
        ids, first = grouping.ids, pa.array(grouping.first)
        self.keys = every.take(first).combine_chunks()
        self.hashes = integers(self.keys, HASH)
        self.ledger = KeyLedger(layout, state, self.facts, self.keys)
        came, due, of_ttl, held_ids = np.split(ids, np.cumsum(sizes))
        self.ledger.touch(came)
        self.ledger.look_at(due)
        self.ledger.date(of_ttl)
        if not all_keys and not layout.by_clock:
            every_key = layout.slide is None or layout.pushes
            looked = self.ledger.looked_at
            wanted = np.flatnonzero(looked | self.ledger.touched if every_key else looked)
            place, table = state.rows_of(
                layout.parts[ROWS], self.hashes[wanted], self.keys.take(pa.array(wanted)), schema=schema
            )
            held, held_ids = [table], wanted[place]
        self._sort(
            pa.concat_tables([conform(t, schema) for t in (self.new.take(pa.array(taken)), *self.waited, *held)]),
            np.concatenate([ids[taken], ids[n : n + waited], held_ids]),
            np.concatenate([taken, np.full(waited, _WAITED), np.full(len(held_ids), _HELD)]),
        )

    def _sort(self, rows: pa.Table, ids: Ints, places: Ints) -> None:
        order = np.lexsort((integers(rows, ARRIVED), ids))
        if (order == np.arange(len(order))).all():
            self.rows = rows.combine_chunks()
        else:
            self.rows, ids, places = rows.take(pa.array(order)).combine_chunks(), ids[order], places[order]
        entered = booleans(self.rows, ENTERED)
        self.places = places
        self.of_keys = KeyRows(ids, micros(self.rows, AT), entered, len(self.hashes))
        self.rounds = rounds = self._rounds()
        self.entered: Bools = entered | (rounds.enter <= rounds.last[ids])
        self.heard = np.zeros(len(ids), dtype=np.bool_)
        self.pushed = self.unseen_by_any = self.heard
        if self.layout.pushes:
            self._push()

    def _push(self) -> None:
        """Find the rows that later ones push out, and those that `on_expired` got in an earlier batch."""
        ids, rounds, held = self.of_keys.ids, self.rounds, np.flatnonzero(self.places == _HELD)
        of_held, length = ids[held], self.layout.counted
        self.heard[held] = np.searchsorted(of_held, of_held, side="right") - np.arange(len(held)) > length
        self.pushed = rounds.leave < NEVER
        self.unseen_by_any = ~self.of_keys.entered & (rounds.leave <= rounds.enter)
        # As where rows wait: a key has a row when the row enters its window.
        self.ledger.touch(ids[held[(self.entered & ~self.of_keys.entered)[held]]])

    def _rounds(self) -> Rounds:
        layout, rows, end = self.layout, self.of_keys, self.end
        count = None if layout.length is not None else layout.counted
        if layout.slide is None:
            slide = int(getattr(layout.window.slide, "rows", 1))
            fired = self.ledger.fired if layout.event else None
            now = None if layout.event else self.facts.time
            return rounds_by_count(rows, slide, length=layout.length, count=count, fired=fired, now=now)
        ends: tuple[int, int | None] = (1, 0)
        if self.due and end is not None and len(rows.times):
            first = self._number(self.closed) + 1 if self.closed is not None else None
            least = int(ceil_div(rows.times, layout.slide, self.origin).min())
            last = None if end == END_OF_TIME else self._number(end)
            ends = (least if first is None else first, last)
        # At the end of time what the sources have shown is the same for all partitions, and for all cuts.
        shown = self.facts.reached
        reached = None if shown is None else -((self.origin - shown) // layout.slide)
        return rounds_by_time(
            rows, layout.slide, ends=ends, origin=self.origin, length=layout.length, count=count, reached=reached
        )

    def _number(self, end: int) -> int:
        assert self.layout.slide is not None
        return (end - self.origin) // self.layout.slide

    # --- output ---------------------------------------------------------------------------------

    def emits(self, maker: Maker) -> Iterator[Emit]:
        """Yield what becomes of the windows; `fired` and `expired` count windows and rows."""
        rows = self.rows.append_column(ENTER, pa.array(self.rounds.enter))
        rows = rows.append_column(HEARD, pa.array(self.heard)).append_column(UNSEEN, pa.array(self.unseen_by_any))
        self.fired = 0
        # Of rows that were pruned nobody counts which no window has had, so no such rows count.
        never = ~self.of_keys.entered & (self.rounds.leave <= self.rounds.enter)
        told = never if self.layout.prunes else self.heard
        self.expired = int(((self.gone | self.pushed) & ~told).sum())
        for windows in evaluated_windows(self.of_keys, self.rounds, with_gone=maker.hears_expired):
            self.fired += int(windows.fired.sum())
            ends, causes = self.rounds.at(windows.keys, windows.rounds)
            made = maker.make(windows, ends, rows, self.keys)
            yield self._emit(
                made.rows, ends[made.windows], self._causes(causes, made.windows), windows.keys[made.windows]
            )
        self._forget(maker, rows)

    def _causes(self, causes: Ints | None, windows: Ints) -> Ints:
        """Return the row of the batch that caused each row: in batch time one that completed a count."""
        if causes is None or self.layout.event:
            return np.full(len(windows), BY_TIME, dtype=np.int64)
        return self.places[causes][windows]

    def _emit(self, made: pa.Table, ends: Ints, causes: Ints, keys: Ints) -> Emit:
        order = np.lexsort((keys, causes, ends))
        made, ends, causes, keys = made.take(pa.array(order)), ends[order], causes[order], keys[order]
        times: pa.Array = pa.nulls(len(ends), pa.int64())
        if self.layout.event:  # it waited for the lag, and downstream steps judge by the watermark without
            times = pa.array(ends if self.facts.judged is None else np.maximum(ends, self.facts.judged))
        stand = Stand(rows=causes, times=np.where(causes >= 0, 0, ends), hashes=self.hashes[keys])
        return Emit(
            rows=made.append_column(TIME, times),
            stand=lambda: stand,
            arrivals=lambda: self.side.arrivals(self.received),
        )

    def _forget(self, maker: Maker, rows: pa.Table) -> None:
        """Tell of the rows that leave in no round: of keys whose TTL is over, and those that later rows push out."""
        told = self.heard | self._left
        forgotten = np.flatnonzero((self.forgotten | self.pushed) & ~told)
        if not len(forgotten) or not maker.hears_expired:
            return
        ids = self.of_keys.ids[forgotten]
        starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
        keys = self.keys.take(pa.array(ids[starts]))
        maker.forget(keys, np.r_[starts, len(ids)], rows.take(pa.array(forgotten)))

    @property
    def in_no_window(self) -> int:
        """Return how many rows of the batch no window has, whatever comes.

        It is known of lengths and slides that are both durations, or both counts in batch time.
        """
        layout, length = self.layout, self.layout.window.length
        if layout.length is not None and layout.slide is not None:
            after = (self.origin - self.new_times) % layout.slide  # the time until the end that is next
            return int((after >= layout.length).sum())
        if layout.event or not isinstance(length, Count) or not isinstance(layout.window.slide, Count):
            return 0
        counted = np.flatnonzero(~self.of_keys.entered)
        numbers = number_in_key(self.of_keys.ids[counted])
        outside = outside_counts(numbers, length.rows, layout.window.slide.rows)
        return int((outside & (self.places[counted] >= 0)).sum())

    @property
    def _left(self) -> Bools:
        """Return which rows leave in a round of the batch."""
        mine = self.rounds.last[self.of_keys.ids]
        left: Bools = (self.rounds.out <= mine) & (mine > 0)
        return left

    @property
    def gone(self) -> Bools:
        """Return which rows no later window has, nor its view."""
        return self._left | self.unseen_by_any

    @property
    def forgotten(self) -> Bools:
        """Return which rows a TTL takes; those that no window has seen are not forgotten by one that goes by time."""
        over: Bools = self.ledger.over[self.of_keys.ids] & ~self.gone
        return over & self.entered if self.layout.pushes else over

    # --- state ----------------------------------------------------------------------------------

    def change(self) -> Change:
        """Return what the batch changes."""
        append: dict[str, pa.Table] = {}
        floors: dict[str, int] = {}
        replaced = self._change_waiting(append, floors)
        if not self.layout.by_clock:
            self._change_rows(append, floors)
        append |= self.ledger.written(self._last_ends())
        floors |= self.ledger.floors
        kept = {part: rows for part, rows in append.items() if rows.num_rows}
        facts = facts_of_ttl(self.state, self.layout.idle, writes=bool(kept))
        if self.layout.slide is not None and self.due and (self.rows.num_rows or self.new.num_rows):
            facts = {**(self.state.facts if facts is None else facts), CLOSED: self.end}
        for rows in replaced.values():
            facts = {**(self.state.facts if facts is None else facts), PRUNED: rows.num_rows}
        return Change(append=kept, replace=replaced, floors=floors, facts=facts)

    def _change_waiting(self, append: dict[str, pa.Table], floors: dict[str, int]) -> dict[str, pa.Table]:
        """Add the rows that wait to `append`; return all of them instead where that takes the place of the part."""
        layout, end = self.layout, self.end
        floor = self.state.manifest.floors.get(WAITING, NONE)
        unseen = self.unseen
        if self.due and end is not None:
            passed = min(end, END_OF_TIME - 1) + 1
            if layout.by_clock:
                assert layout.length is not None
                passed = max(passed, NONE + layout.length) - layout.length
                unseen = unseen & (self.new_times >= passed)
                first = self.state.first_group(WAITING)
                if first is not None and first < passed:
                    floors[WAITING] = floor = passed
            elif self.waited:
                floors[WAITING] = floor = passed
        at = np.flatnonzero(unseen)
        rows = self.new.take(pa.array(at))
        # One at an end that was over when it came waits for the next.
        new = layout.stored(WAITING, rows, **{GROUP: np.maximum(self.new_times[at], floor)})
        every = pruned_rows(layout, self.state, new, floor)
        append |= {WAITING: new} if every is None else {}
        return {} if every is None else {WAITING: every}

    def _change_rows(self, append: dict[str, pa.Table], floors: dict[str, int]) -> None:
        layout = self.layout
        held = self.places == _HELD
        gone, entered = self.gone | self.forgotten, self.entered
        written = ~gone & (~held | (entered != self.of_keys.entered))
        removed = gone & held
        if not len(layout.keys.names) and removed.any():
            # One key has rows in order of arrival, and those that leave come first but where times are out of order.
            arrived = integers(self.rows, ARRIVED)
            floors[ROWS] = int(arrived[~gone].min()) if not gone.all() else int(arrived.max()) + 1
            removed &= arrived > floors[ROWS]
        at = np.flatnonzero(written | removed)
        rows = self.rows.take(pa.array(at))
        own: dict[str, Any] = {GROUP: integers(rows, ARRIVED), ENTERED: entered[at], DELETED: removed[at]}
        append[ROWS] = layout.stored(ROWS, rows, **own)

    def _last_ends(self) -> Ints | None:
        """Return the end of the last round of each key, NONE where it has none; None where nobody needs it."""
        if not self.layout.counts_in_event_time:
            return None
        last = self.rounds.last
        ends = np.full(len(last), NONE, dtype=np.int64)
        with_rounds = np.flatnonzero(last > 0)
        ends[with_rounds], _ = self.rounds.at(with_rounds, last[with_rounds])
        return ends

    def next_due(self, after: StateView) -> Due:
        """Return when the partition has work though no row comes."""
        layout = self.layout
        idle = after.first_group(IDLE) if layout.idle is not None else None
        if self.end == END_OF_TIME:
            return Due(None, idle)
        closed = self.end if self.closed is None or (self.end is not None and self.end > self.closed) else self.closed
        if layout.by_clock and closed is not None:
            assert layout.length is not None
            first = after.first_group(WAITING, max(closed, NONE + layout.length) - layout.length + 1)
        else:
            first = after.first_group(WAITING)
        if layout.slide is not None:
            held = not layout.by_clock and (self._holds if self.due else after.first_group(ROWS) is not None)
            first = self._next_end(first, closed, held=held)
        if not layout.event:
            return Due(None, min((at for at in (first, idle) if at is not None), default=None))
        beyond = 0 if layout.slide is None else 1
        return Due(None if first is None else first + layout.window.lag + beyond, idle)

    @property
    def _holds(self) -> bool:
        """Return whether rows of windows stay: of all keys, where an end is due."""
        return bool((~self.gone & ~self.forgotten).any())

    def _next_end(self, first: int | None, closed: int | None, *, held: bool) -> int | None:
        """Return the next end that has a row to evaluate."""
        slide = self.layout.slide
        assert slide is not None
        ends = [] if first is None else [self.origin - (self.origin - first) // slide * slide]
        if held and closed is not None:
            ends.append(closed + slide)
        if not ends:
            return None
        return min(ends) if closed is None else max(min(ends), closed + slide)
