"""Find the pairs of a batch of `join` in one partition, and keep account of which rows have a match.

A pair belongs to the row that arrives later, which finds the other one in the state or among earlier rows of its
batch. A batch costs what its rows, their candidates and its pairs cost. Candidates are rows of the batch's keys in the
slices that the bounds reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from penstock.graph.specs.join import SIDES
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.interval_pairs import (
    Moments,
    newest,
    pairs_within,
    pieces,
    row_bytes,
    slice_start,
    slice_starts,
)
from penstock.operators.join_state import MATCHED, JoinLayout
from penstock.operators.protocol import HASHED, TIME, Emit, StateView
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import DELETED
from penstock.time.arrival import Stand, arrival_ranks

__all__ = ["MOST_BYTES", "MOST_ROWS", "JoinBatch", "flags", "live", "with_flag"]

MOST_ROWS, MOST_BYTES = 65_536, 32 << 20
"""What one piece of the output has at most; one row may be larger."""


class JoinBatch:
    """The rows of a batch in one partition that have keys, by input; there is a row at least.

    `stored` are the rows as the state keeps them. `rows` have their keys by number, in the order of `hashes`, and their
    places in the order of arrival of both inputs. Once all pairs were emitted, `matched` says which of the rows have a
    match, and `held_matched` are the held rows of an outer side that got their first one.
    """

    def __init__(
        self,
        layout: JoinLayout,
        state: StateView,
        received: Sequence[pa.Table],
        batch: int,
        widths: Mapping[str, int],
    ) -> None:
        self.layout, self.state, self.widths = layout, state, widths
        each = list(zip(layout.inputs, received, strict=True))
        keys = pa.concat_tables([side.key_table(rows) for side, rows in each]).combine_chunks()
        hashes = np.concatenate([integers(rows, HASHED) for rows in received])
        grouping = group_rows([column_array(keys, name) for name in keys.column_names], hashes)
        self.keys, self.hashes = keys.take(pa.array(grouping.first)), hashes[grouping.first]
        self.arrivals = cache(lambda: pa.concat_arrays([side.arrivals(rows) for side, rows in each]))
        self.starts = (0, received[0].num_rows)
        one_sided = self.starts[1] in {0, len(hashes)}
        places = np.arange(len(hashes), dtype=np.int64) if one_sided else arrival_ranks(self.arrivals())
        self.rows: list[Moments] = []
        self.stored: list[pa.Table] = []
        for side, rows in enumerate(received):
            mine, times = slice(self.starts[side], self.starts[side] + rows.num_rows), integers(rows, TIME)
            self.rows.append(Moments(grouping.ids[mine], times, places[mine]))
            no = pa.array(np.zeros(len(times), dtype=np.bool_))
            also = {MATCHED: no, DELETED: no} if layout.how.outer[side] else {}
            slices = slice_starts(times, widths[SIDES[side]])
            self.stored.append(layout.stored_rows(side, rows, grouping.ids[mine], slices, batch, also))
        self.matched: tuple[Bools, ...] = tuple(np.zeros(rows.num_rows, dtype=np.bool_) for rows in received)
        self.held_matched = [layout.stored(side).empty_table() for side in (0, 1)]

    def emits(self, side: int) -> Iterator[Emit]:
        """Yield, by pieces, the pairs of which the row of this input arrived later, in order of arrival."""
        rows, new = self.rows[side], self.rows[1 - side]
        if not len(rows.ids):
            return
        held_ids, held = self._held(side)
        candidates = pa.concat_tables([held, self.stored[1 - side]]).combine_chunks()
        if not candidates.num_rows:
            return
        others = Moments(
            np.concatenate([held_ids, new.ids]),
            column_array(candidates, "_event_time").cast(pa.int64()).to_numpy(),
            np.concatenate([np.full(len(held_ids), -1, dtype=np.int64), new.places]),
        )
        order = np.lexsort((integers(candidates, "_number"), integers(candidates, "_batch"), others.times, others.ids))
        own_bytes, other_bytes = row_bytes(self.stored[side]), row_bytes(candidates)
        touched = np.zeros(candidates.num_rows, dtype=np.bool_)
        for pairs in pairs_within(rows, others, order, self.layout.reach(side), MOST_ROWS):
            for mine, theirs in pieces(*pairs, own_bytes, other_bytes, MOST_BYTES):
                self.matched[side][mine] = touched[theirs] = True
                times = np.maximum(rows.times[mine], others.times[theirs])
                yield self._emit(side, mine, candidates.take(pa.array(theirs)), times)
        self.matched[1 - side][touched[len(held_ids) :]] = True
        if self.layout.how.outer[1 - side]:
            first = touched[: len(held_ids)] & ~flags(held, MATCHED)
            self.held_matched[1 - side] = with_flag(held.filter(pa.array(first)), MATCHED)

    def _held(self, side: int) -> tuple[Ints, pa.Table]:
        """Return the held rows of the other input that have keys of the batch and may match, and their key numbers."""
        rows, (earliest, latest) = self.rows[side], self.layout.reach(side)
        ends = int(rows.times.min()) + earliest, int(rows.times.max()) + latest
        low, high = (slice_start(time, self.widths[SIDES[1 - side]]) for time in ends)
        own = np.unique(rows.ids)
        keys = self.keys.take(pa.array(own))
        places, held = live(self.layout, self.state, 1 - side, self.hashes[own], keys, (low, high + 1))
        return own[places], held

    def _emit(self, side: int, mine: Ints, others: pa.Table, times: Ints) -> Emit:
        rows = self.stored[side].take(pa.array(mine))
        left, right = (rows, others) if side == 0 else (others, rows)
        names = [*self.layout.keys.names, *self.layout.columns(0).names]
        columns = [*(left[name] for name in names), *(right[name] for name in self.layout.columns(1).names)]
        none = np.zeros(len(mine), dtype=np.int64)
        stand = Stand(rows=mine + self.starts[side], times=none, hashes=none)
        pairs = pa.table(columns, schema=self.layout.outlets[MAIN_OUTLET]).append_column(TIME, pa.array(times))
        return Emit(rows=pairs, stand=lambda: stand, arrivals=self.arrivals)


def live(
    layout: JoinLayout, state: StateView, side: int, hashes: Ints, keys: pa.Table, slices: tuple[int, int]
) -> tuple[Ints, pa.Table]:
    """Return the held rows of an input that have some keys and slices, each as it was written last.

    Args:
        layout: What the state is.
        state: The state before the batch.
        side: The input whose rows are wanted.
        hashes: int64, sorted; those of the keys.
        keys: The keys, none of them twice.
        slices: The start of the first slice, and a number above that of the last.

    Returns:
        The place of each row's key, ascending, and the rows as they are stored.
    """
    places, held = state.rows_of(layout.by_key(side), hashes, keys, slices, schema=layout.stored(side))
    if not layout.how.outer[side] or not held.num_rows:
        return places, held
    kept = newest(places, integers(held, "_batch"), integers(held, "_number")) & ~flags(held, DELETED)
    return places[kept], held.filter(pa.array(kept))


def with_flag(rows: pa.Table, flag: str) -> pa.Table:
    """Return rows with a flag that is true."""
    yes = pa.array(np.ones(rows.num_rows, dtype=np.bool_))
    return rows.set_column(rows.schema.get_field_index(flag), flag, yes)


def flags(rows: pa.Table, name: str) -> Bools:
    """Return a column of bools; null is false."""
    flags: Bools = column_array(rows, name).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's own
    return flags
