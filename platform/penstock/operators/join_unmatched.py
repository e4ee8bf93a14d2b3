"""Emit the rows of an outer side of `join` that match nothing, once the watermark says that no match can come.

A row at t waits for a row of the other input up to the last event time that its bounds reach. The first watermark
beyond that one makes it due. An entry in the state finds it then, and the row says whether it was matched meanwhile.

Its event time is that last one, or t where the bounds end before t. That is the latest that a pair of the row could
have had. No downstream step has judged by a watermark beyond it yet, so it is on time there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.graph.specs.join import SIDES
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.interval_pairs import numbered, pieces, row_bytes, slice_start
from penstock.operators.join_batch import MOST_BYTES, MOST_ROWS, flags, live
from penstock.operators.join_state import MATCHED, WAITING, JoinLayout
from penstock.operators.protocol import TIME, Emit, StateView, StepFacts
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import GROUP, HASH, conform
from penstock.time.arrival import BY_TIME, Stand
from penstock.time.clock import END_OF_TIME

__all__ = ["due_before", "due_rows", "emitted_at_their_place", "emitted_by_time", "without_key"]


def due_before(layout: JoinLayout, side: int, watermark: int | None) -> int | None:
    """Return the event time below which the rows of an input are due, None where none are."""
    if watermark is None:
        return None
    if watermark >= END_OF_TIME:
        return END_OF_TIME
    return min(max(watermark - layout.reach(side)[1], -(2**63)), END_OF_TIME)


def due_rows(
    layout: JoinLayout, state: StateView, side: int, before: int | None, widths: Mapping[str, int], matched: pa.Table
) -> Iterator[pa.Table]:
    """Yield, by pieces, the held rows of an outer side that are due and have no match, by event time and hash.

    Args:
        layout: What the state is.
        state: The state before the batch.
        side: The outer side.
        before: As `due_before` says.
        widths: The width of the slices of each part.
        matched: The held rows of that side that a row of this batch has matched first.
    """
    waiting = [] if before is None else state.scan(WAITING[side], None, before, schema=layout.entry)
    if not waiting:
        return
    entries = pa.concat_tables(waiting).combine_chunks()
    order = np.lexsort([integers(entries, name) for name in ("_number", "_batch", HASH, GROUP)])
    for start in range(0, len(order), MOST_ROWS):
        some = entries.take(pa.array(order[start : start + MOST_ROWS])).combine_chunks()
        rows = _still_waiting(layout, state, side, some, widths, matched)
        if rows.num_rows:
            yield rows


def _still_waiting(
    layout: JoinLayout, state: StateView, side: int, entries: pa.Table, widths: Mapping[str, int], matched: pa.Table
) -> pa.Table:
    """Return the rows of entries that nothing has matched, in the order of the entries."""
    named = [HASH, *layout.keys.names, "_batch", "_number"]
    every = pa.concat_tables([entries.select(named), matched.select(named)]).combine_chunks()
    hashes = integers(every, HASH)
    grouping = group_rows([column_array(every, name) for name in layout.keys.names], hashes)
    keys = every.select(layout.keys.names).take(pa.array(grouping.first))
    times = integers(entries, GROUP)
    low, high = (slice_start(int(time), widths[SIDES[side]]) for time in (times[0], times[-1]))
    places, held = live(layout, state, side, hashes[grouping.first], keys, (low, high + 1))
    of_rows = [
        np.concatenate([of_held, of_every])
        for of_held, of_every in (
            (places, grouping.ids),
            *((integers(held, name), integers(every, name)) for name in ("_batch", "_number")),
        )
    ]
    codes = numbered(*of_rows)
    n, entered = held.num_rows, held.num_rows + entries.num_rows
    at = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    at[codes[:n]] = np.arange(n)
    gone = np.zeros(len(at), dtype=np.bool_)
    gone[codes[entered:]] = True
    gone[codes[:n][flags(held, MATCHED)]] = True
    wanted = codes[n:entered]
    return held.take(pa.array(at[wanted[(at[wanted] >= 0) & ~gone[wanted]]]))


def emitted_by_time(layout: JoinLayout, side: int, rows: pa.Table, facts: StepFacts) -> Iterator[Emit]:
    """Yield due rows of an outer side by pieces; they come after the rows of the batch, by time, then key hash.

    `rows` are as the state keeps them, by event time and hash.
    """
    times: Ints = column_array(rows, "_event_time").cast(pa.int64()).to_numpy()
    last = layout.last_matches(side, times)
    known = np.maximum(times, last)
    if facts.judged_least is not None:
        # Bounds that became narrower since make a row due late; then it takes the first time that is on time somewhere.
        known = np.maximum(known, facts.judged_least)
    stand = Stand(rows=np.full(len(times), BY_TIME, dtype=np.int64), times=last, hashes=integers(rows, HASH))
    for some in _cut(rows):
        part = Stand(rows=stand.rows[some], times=stand.times[some], hashes=stand.hashes[some])
        made = _padded(layout, side, rows.take(pa.array(some)), known[some])
        yield Emit(rows=made, stand=partial(_same, part))


def emitted_at_their_place(layout: JoinLayout, side: int, rows: pa.Table) -> Iterator[Emit]:
    """Yield rows of an outer side that can match nothing because a key is null, by pieces; `rows` are as received."""
    own = layout.inputs[side]
    keys = own.key_table(rows)
    named = pa.table({**{n: keys[n] for n in keys.column_names}, **{n: rows[n] for n in layout.columns(side).names}})
    for some in _cut(named):
        none = np.zeros(len(some), dtype=np.int64)
        stand, taken = Stand(rows=np.arange(len(some)), times=none, hashes=none), rows.take(pa.array(some))
        made = _padded(layout, side, named.take(pa.array(some)), integers(taken, TIME))
        yield Emit(rows=made, stand=partial(_same, stand), arrivals=partial(own.arrivals, taken))


def _same(stand: Stand) -> Stand:
    return stand


def without_key(layout: JoinLayout, side: int, rows: pa.Table) -> Bools:
    """Return which rows of an input, as received, have a null among their keys."""
    lacking = np.zeros(rows.num_rows, dtype=np.bool_)
    for column in layout.inputs[side].key_table(rows).columns:
        if column.null_count:
            lacking |= column.is_null().to_numpy()
    return lacking


def _cut(rows: pa.Table) -> Sequence[Ints]:
    """Return the indices of rows in pieces of bounded numbers and bytes."""
    if not rows.num_rows:
        return []
    sizes, none = row_bytes(rows), np.zeros(rows.num_rows, dtype=np.int64)
    cut = []
    for start in range(0, rows.num_rows, MOST_ROWS):
        some = np.arange(start, min(start + MOST_ROWS, rows.num_rows), dtype=np.int64)
        cut += [mine for mine, _ in pieces(some, none[some], sizes, none[:1], MOST_BYTES)]
    return cut


def _padded(layout: JoinLayout, side: int, rows: pa.Table, times: Ints) -> pa.Table:
    """Return rows with nulls in the columns of the other input, and with their event times."""
    names = [*layout.keys.names, *layout.columns(side).names]
    return conform(rows.select(names), layout.outlets[MAIN_OUTLET]).append_column(TIME, pa.array(times))
