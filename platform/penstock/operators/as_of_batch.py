"""Settle the rows of an as-of join that a watermark has passed, in one partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from penstock.graph.join_arguments import JoinKind
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.as_of_search import newest_at, newest_of_each
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.interval_pairs import Moments, pieces, row_bytes, shifted
from penstock.operators.joined_rows import JoinedRows
from penstock.operators.protocol import HASHED, TIME, Emit, StateView, StepFacts, Tally
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import DELETED, GROUP, HASH
from penstock.state.writer import Change
from penstock.time.arrival import BY_TIME, Stand

__all__ = ["DEADLINES", "LEFT", "NEWEST", "RIGHT", "AsOfBatch", "AsOfRows", "Settled", "event_times", "passed"]

LEFT, RIGHT, NEWEST, DEADLINES = "left", "right", "newest", "deadlines"
_MOST_ROWS, _MOST_BYTES = 65_536, 32 << 20
"""What one piece of the output has at most; one row may be larger."""


class AsOfRows(JoinedRows):
    """The columns of an as-of join, and its settings; `within` is in microseconds."""

    __slots__ = ()

    within: int
    how: JoinKind


class Settled:
    """The rows that a watermark settles, and what becomes of their keys and of those with an entry that is due.

    `state` is None where the partition is empty. `left`, `right` and `entries` have `_hash` and the key columns; the
    first two have the columns of stored rows.
    """

    def __init__(
        self,
        step: AsOfRows,
        state: StateView | None,
        rows: tuple[pa.Table, pa.Table],
        entries: pa.Table,
        watermark: int,
    ) -> None:
        self.step, self.watermark = step, watermark
        self.left, right = rows
        names = step.keys.names
        every = pa.concat_tables([table.select([HASH, *names]) for table in (self.left, right, entries)])
        every = every.combine_chunks()
        hashes = integers(every, HASH)
        grouping = group_rows([column_array(every, name) for name in names], hashes)
        self.keys, self.hashes = every.select(names).take(pa.array(grouping.first)), hashes[grouping.first]
        n_left, n_right = self.left.num_rows, right.num_rows
        self.left_ids = grouping.ids[:n_left]
        self.due: Bools = np.zeros(grouping.groups, dtype=np.bool_)
        self.due[grouping.ids[n_left + n_right :]] = True
        schema = step.stored(1)
        self.had: Bools = np.zeros(grouping.groups, dtype=np.bool_)
        known = schema.empty_table()
        if state is not None and grouping.groups:
            self.had, of_keys = state.lookup(NEWEST, self.hashes, self.keys, schema=schema)
            known = of_keys.filter(pa.array(self.had))
        # Those that earlier watermarks settled stand first, and all of these are older.
        self.known = known.num_rows
        self.others = pa.concat_tables([known, right]).combine_chunks()
        ids = np.concatenate([np.flatnonzero(self.had), grouping.ids[n_left : n_left + n_right]])
        self.moments = Moments(ids, event_times(self.others), ids)

    @cached_property
    def order(self) -> Ints:
        """Return the indices that sort the right rows by key, then time, then arrival."""
        numbers, batches = integers(self.others, "_number"), integers(self.others, "_batch")
        order: Ints = np.lexsort((numbers, batches, self.moments.times, self.moments.ids))
        return order

    def emits(self, judged: int | None) -> Iterator[Emit | Tally]:
        """Yield the left rows in order of event time, by pieces, each with the right row that it takes.

        None has an event time below `judged`, the lowest by which downstream steps judge.
        """
        if not self.left.num_rows:
            return
        times = event_times(self.left)
        taken = newest_at(Moments(self.left_ids, times, self.left_ids), self.moments, self.order, self.step.within)
        matched = int((taken >= 0).sum())
        yield Tally({"matched": matched, "unmatched": len(taken) - matched})
        hashes = integers(self.left, HASH)
        mine = np.lexsort((integers(self.left, "_number"), integers(self.left, "_batch"), hashes, times))
        if self.step.how is JoinKind.INNER:
            mine = mine[taken[mine] >= 0]
        own, other = row_bytes(self.left), np.append(row_bytes(self.others), 0)  # -1, for none, is the last
        for start in range(0, len(mine), _MOST_ROWS):
            piece = mine[start : start + _MOST_ROWS]
            for lefts, rights in pieces(piece, taken[piece], own, other, _MOST_BYTES):
                at = times[lefts] if judged is None else np.maximum(times[lefts], judged)
                stand = partial(Stand, rows=np.full(len(lefts), BY_TIME), times=times[lefts], hashes=hashes[lefts])
                yield Emit(rows=self._joined(lefts, rights).append_column(TIME, pa.array(at)), stand=stand)

    def _joined(self, lefts: Ints, rights: Ints) -> pa.Table:
        left = self.left.take(pa.array(lefts))
        right = self.others.take(pa.array(rights, mask=rights < 0))
        columns = [left[name] for name in (*self.step.keys.names, *self.step.columns(0).names)]
        columns += [right[name] for name in self.step.columns(1).names]
        return pa.table(columns, schema=self.step.outlets[MAIN_OUTLET])

    def append(self) -> Mapping[str, pa.Table]:
        """Return what it adds to the parts of settled rows: newest rows, entries, and tombstones of forgotten keys.

        A key that has a row has one entry, not later than the row is of use to last. So an entry that is due is
        replaced where the key stays.
        """
        newest = newest_of_each(self.moments.ids, self.order, len(self.hashes))
        last = np.full(len(newest), -1, dtype=np.int64)
        there = newest >= 0
        last[there] = shifted(self.moments.times[newest[there]], self.step.within)
        held = there & (last >= self.watermark)
        written, gone = np.flatnonzero(held & (newest >= self.known)), np.flatnonzero(self.due & self.had & ~held)
        append = {}
        if len(written) or len(gone):
            rows = self.others.take(pa.array(newest[np.concatenate([written, gone])]))
            rows = rows.set_column(0, GROUP, pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
            append[NEWEST] = rows.append_column(DELETED, pa.array(np.arange(rows.num_rows) >= len(written)))
        entered = np.flatnonzero(held & (~self.had | self.due))
        if len(entered):
            entries = self.keys.take(pa.array(entered)).add_column(0, HASH, pa.array(self.hashes[entered]))
            append[DEADLINES] = entries.add_column(0, GROUP, pa.array(last[entered]))
        return append


class AsOfBatch:
    """The rows of a batch in one partition, those that wait in its state, and the ones that the watermark settles."""

    def __init__(self, step: AsOfRows, state: StateView, received: Sequence[pa.Table], facts: StepFacts) -> None:
        self.state, self.facts = state, facts
        self.waits: dict[str, pa.Table] = {}
        self.floors: dict[str, int] = {}
        self.received = sum(rows.num_rows for rows in received)
        settled: list[pa.Table] = []
        for side, (part, rows) in enumerate(zip((LEFT, RIGHT), received, strict=True)):
            keys = step.inputs[side].key_table(rows)
            ids = group_rows([column_array(keys, name) for name in keys.column_names], integers(rows, HASHED)).ids
            stored = step.stored_rows(side, rows, ids, integers(rows, TIME), facts.batch)
            past = passed(integers(stored, GROUP), facts.watermark)
            self.waits[part] = stored.filter(pa.array(~past))
            settled.append(pa.concat_tables([*self._scan(part, step.stored(side)), stored.filter(pa.array(past))]))
        columns = pa.schema([(HASH, pa.int64()), *step.keys])
        entries = pa.concat_tables([columns.empty_table(), *self._scan(DEADLINES, columns)])
        left, right = settled
        self.settled = None
        if facts.watermark is not None and left.num_rows + right.num_rows + entries.num_rows:
            self.settled = Settled(step, state, (left, right), entries, facts.watermark)

    def _scan(self, part: str, schema: pa.Schema) -> list[pa.Table]:
        """Return the rows of a part that the watermark has passed, which its floor then removes."""
        if self.facts.watermark is None:
            return []
        tables = self.state.scan(part, None, self.facts.watermark, schema=schema)
        if tables:
            self.floors[part] = self.facts.watermark
        return tables

    def emits(self) -> Iterator[Emit | Tally]:
        """Yield the left rows that the watermark has passed."""
        if self.settled is not None:
            yield from self.settled.emits(self.facts.judged_least)

    @property
    def due(self) -> int | None:
        """Return the watermark that passes the next left row, None where none waits."""
        waits = integers(self.waits[LEFT], GROUP)
        held = self.state.first_group(LEFT, self.facts.watermark)
        first = min([*([] if held is None else [held]), *([int(waits.min())] if len(waits) else [])], default=None)
        return None if first is None else first + 1

    def change(self) -> Change:
        """Return what the batch changes of the state."""
        append = {**self.waits, **({} if self.settled is None else self.settled.append())}
        append = {part: rows for part, rows in append.items() if rows.num_rows}
        # Also where no row is of use: the bound by which it was forgotten must be known to a longer one.
        facts = {**self.state.facts} if self.received else None
        return Change(append=append, floors=self.floors, facts=facts)


def passed(times: Ints, watermark: int | None) -> Bools:
    """Return which event times a watermark has passed."""
    return np.zeros(len(times), dtype=np.bool_) if watermark is None else times < watermark


def event_times(rows: pa.Table) -> Ints:
    """Return the event times of stored rows, in microseconds."""
    times: Ints = column_array(rows, "_event_time").cast(pa.int64()).to_numpy()
    return times
