"""Run time windows on plain Arrow tables: aggregate rows into slices before the shuffle, make windows after it.

A task on the map side calls `judge`, then `preaggregate` with the rows that count.
After the shuffle one task a state partition calls `step` with what the map side made, and writes what comes back.
Nothing here knows Spark, files or clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from penstock.errors import JobError, StateError
from penstock.graph.policies import Accumulation, Pane
from penstock.graph.windows import Extent, TimeWindow
from penstock.operators.aggregates import ROWS, AggregatePlan
from penstock.operators.aggregates.custom import naming_keys
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import TIME, Due, Rebuilt, RowsOfBranch, StateView, Tally
from penstock.operators.windows.arrival_places import inputs_of
from penstock.operators.windows.lateness import forgotten
from penstock.operators.windows.panes import PANE_FIELDS, pane_columns
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.revisions import revised
from penstock.operators.windows.slice_state import (
    FRONT,
    LATE,
    LATE_NEXT,
    PANES,
    RUNNING,
    SLICES,
    TOTAL,
    GrowSlices,
    MergeSlices,
    Slices,
    SubtractSlices,
    cut,
)
from penstock.operators.windows.slices import (
    BEGINNING_OF_TIME,
    check_window,
    due_ends,
    floor_slice,
    last_ends,
    next_due_end,
    slice_starts,
    slices_per_window,
    start_of,
)
from penstock.operators.windows.two_stacks import LEAST_SLIDES, Blocks
from penstock.operators.windows.window_batch_close import many_windows
from penstock.operators.windows.window_rows import WINDOW_END, WINDOW_START
from penstock.state.keys import Ints
from penstock.state.row_layout import GROUP
from penstock.state.writer import Change
from penstock.time.clock import END_OF_TIME

__all__ = [
    "CLOSED_TO",
    "Strategy",
    "WindowStep",
    "begin",
    "check_open",
    "earlier",
    "finished",
    "folded",
    "gathered",
    "later",
    "preaggregate",
    "step",
    "strategy_of",
]

_UTC = pa.timestamp("us", tz="UTC")
CLOSED_TO, _STRATEGY = "closed_to", "strategy"
_OLDER = (SLICES, FRONT, LATE, LATE_NEXT)
"""The parts whose groups are slices: no later batch reads those that only closed windows hold."""
_MADE = (RUNNING, FRONT, LATE, TOTAL, LATE_NEXT)
"""The parts that are rebuilt from slices, where another strategy or version wrote the state."""
OUTPUT_BYTES = 64 * 2**20
"""About how many bytes of output are made before they are sent on."""
_MOST_MERGED = 4
_FOLDED_BYTES = 512 * 2**20
"""Bytes of deltas that are merged at once: an Arrow array of keys ends at 2 GiB (F75)."""


class Strategy(Enum):
    """The ways to make windows from slices, one window after another; the value explains it.

    Each costs the keys in the window. Subtracting needs exact inverses, and blocks are for aggregates without.
    Cumulative windows add slices only, so growing is for all aggregates.
    """

    MERGE = "merge the slices of each window"
    GROW = "growing aggregate: add the slices that enter to the window before"
    SUBTRACT = "running aggregate: add the slices that enter, subtract those that leave"
    BLOCKS = "blocks of half a window: suffixes of the oldest, a total of the next, a running aggregate of the newest"


def strategy_of(window: TimeWindow, plan: AggregatePlan) -> Strategy:
    """Choose a strategy: merging up to 4 slices, growing, and subtracting where all inverses are exact.

    Where all rows are kept, merging copies each once for each window. The others would write them again as well.
    """
    if plan.keeps_rows or slices_per_window(window) <= _MOST_MERGED:
        return Strategy.MERGE
    if window.extent is Extent.GROWING:
        return Strategy.GROW
    if plan.exact_inverse:
        return Strategy.SUBTRACT
    return Strategy.BLOCKS if window.size >= LEAST_SLIDES * window.every else Strategy.MERGE


_MAKERS = {
    Strategy.MERGE: MergeSlices,
    Strategy.GROW: GrowSlices,
    Strategy.SUBTRACT: SubtractSlices,
    Strategy.BLOCKS: Blocks,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStep:
    """A window step, with its windows, aggregates and key columns; a plain value that can be pickled."""

    window: TimeWindow
    plan: AggregatePlan
    keys: pa.Schema

    def __post_init__(self) -> None:
        check_window(self.window)
        names = self.output.names
        if twice := {name for name in names if names.count(name) > 1}:
            raise JobError(f"a window step has two columns named {min(twice)!r}")

    @property
    def layout(self) -> PartialLayout:
        """Return the layout of its partials; `layout.combine` is what compaction merges slices and late rows with."""
        return PartialLayout(plan=self.plan, keys=self.keys)

    @property
    def strategy(self) -> Strategy:
        """Return how its windows are made."""
        return strategy_of(self.window, self.plan)

    @property
    def output(self) -> pa.Schema:
        """Return the columns of its output: keys, window_start, window_end, results, panes (SEMANTICS 3.1, 3.2)."""
        bounds = [pa.field(WINDOW_START, _UTC), pa.field(WINDOW_END, _UTC)]
        panes = PANE_FIELDS if self.window.has_panes else ()
        return pa.schema([*self.keys, *bounds, *self.plan.result_fields, *panes])


def preaggregate(
    rows: RowsOfBranch, order: Sequence[int | str], *, plan: AggregatePlan, window: TimeWindow
) -> pa.Table:
    """Aggregate rows into slices: one row a slice and key, sorted by slice, then hash.

    `rows` are rows that count (see `judge`), with the hash of the keys (int64, the same for equal keys) and the event
    time (int64 microseconds), both without nulls.
    `order` gives batch, source, partition and position, each a column of the rows or a number that all rows share.
    """
    table = rows.table
    times = integers(table, TIME)
    slices = slice_starts(times, window)
    keys = pa.schema([(name, table.schema.field(column).type) for name, column in rows.keys.items()])
    layout = PartialLayout(plan=plan, keys=keys)
    if not len(times):
        return layout.empty()
    key_arrays = [column_array(table, column) for column in rows.keys.values()]
    hashes = integers(table, rows.hash_column)
    grouping = group_rows(key_arrays, hashes, slices)
    with naming_keys(key_arrays, grouping.first):
        partials = plan.reduce(inputs_of(rows, order, plan), grouping.ids, grouping.groups)
    return layout.table_of(slices[grouping.first], hashes, key_arrays, grouping.first, partials)


def step(
    state: StateView,
    deltas: Iterable[pa.Table],
    spec: WindowStep,
    *,
    late_watermark: int | None,
    close_watermark: int | None,
) -> Iterator[pa.Table | Tally | Due | Change]:
    """Fold a batch's slices into the state of one partition and close the windows that are due (SEMANTICS 2.5).

    Yields the rows of the windows that closed, in the order of their ends, about OUTPUT_BYTES at a time. So memory does
    not grow with the windows that a jump of the watermark closes. Then it yields how many rows the slices have taken,
    the end of the next window that has rows, and the change.
    A batch without rows that closes nothing changes neither parts, floors nor facts, however far the watermark moved.
    `deltas` are tables of `preaggregate`, of rows judged by `late_watermark`.
    Windows with end <= `close_watermark` close, if they hold rows and were not closed before.
    A window that `late_watermark` had passed already closes without this batch's rows. A later one (of a chained step)
    closes with them.
    Rows of a window that has closed and is not `forgotten` revise it (SEMANTICS 2.6). The keys that they touch are
    emitted again, as `revised` numbers them. They follow what closes without the batch's rows.
    None is the beginning of time.

    Raises IntegerOverflow where a result does not fit its type, and StateError where a delta has rows of slices whose
    windows are all closed: those were to be judged late.
    """
    layout, window, strategy = spec.layout, spec.window, spec.strategy
    facts = state.facts
    same = facts.get(_STRATEGY) == strategy.name
    slices = Slices(state, layout)
    maker = _MAKERS[strategy](slices, layout, window, facts if same else {})
    closed_to: int | None = facts.get(CLOSED_TO)
    windows = 0

    def close(to: int | None) -> Iterator[pa.Table]:
        nonlocal maker, same, windows
        for due in due_ends(slices.live(floor_slice(closed_to, window)), closed_to, to, window):
            for ends, together in many_windows(slices, layout, window, due):
                windows += len(ends)
                if together is None:
                    yield from (finished(maker.make(end), end, spec) for end in ends.tolist())
                else:
                    yield finished(together, together[GROUP], spec)
                    # What a strategy had kept ends at an older window: it begins again from the slices.
                    maker, same = _MAKERS[strategy](slices, layout, window, {}), False

    yield from gathered(close(earlier(late_watermark, close_watermark)))
    closed_to = later(closed_to, earlier(late_watermark, close_watermark))
    delta = folded(deltas, layout)
    check_open(delta, window, forgotten(later(closed_to, late_watermark), window))
    slices.add(delta)
    maker.add(cut(delta, floor_slice(closed_to, window), END_OF_TIME))
    counters: list[pa.Table] = []
    if window.allowed_lateness:
        yield from gathered(_revisions(slices, delta, spec, closed_to, counters))
    yield from gathered(close(close_watermark))

    kept = maker.kept()
    append, replace = {**kept.append}, {**kept.replace}
    if windows or delta.num_rows or _forgets(state, later(closed_to, close_watermark), window):
        closed_to = later(closed_to, close_watermark)
        facts = {CLOSED_TO: closed_to, _STRATEGY: strategy.name, **(kept.facts or {})}
        append |= {SLICES: delta} if delta.num_rows else {}
        append |= {PANES: pa.concat_tables(counters)} if counters else {}
        replace = ({} if same else {part: layout.empty() for part in _MADE}) | replace
    else:
        # Nothing to write: a watermark that closed nothing here need not be known here.
        closed_to = facts.get(CLOSED_TO)
    floor = floor_slice(closed_to, window)
    yield Tally({"merged": int(integers(delta, ROWS).sum())})
    yield Due(next_due_end(slices.live(floor), closed_to, window))
    replace = {name: table for name, table in replace.items() if table.num_rows or len(state.groups(name))}
    yield Change(append=append, replace=replace, floors=_floors(closed_to, window), facts=facts)


def _revisions(
    slices: Slices, delta: pa.Table, spec: WindowStep, closed_to: int | None, counters: list[pa.Table]
) -> Iterator[pa.Table]:
    """Yield the revisions that a batch causes as output, and add to `counters` what the state must know of them."""
    window, late = spec.window, Pane.LATE
    gone = forgotten(closed_to, window)
    for made in revised(slices, delta, spec.layout, window, after=gone, to=closed_to):
        partials = made.whole if window.accumulation is Accumulation.ACCUMULATING else made.late
        yield finished(partials, partials[GROUP], spec, pane=late, revisions=made.revisions)
        if made.counters.num_rows:
            counters.append(made.counters)


def _floors(closed_to: int | None, window: TimeWindow) -> dict[str, int]:
    """Return, by part, the group below which no later batch reads rows."""
    floors = dict.fromkeys(_OLDER, floor_slice(closed_to, window))
    if window.allowed_lateness:
        gone = forgotten(closed_to, window)
        floors |= {SLICES: floor_slice(gone, window), PANES: BEGINNING_OF_TIME if gone is None else gone + 1}
    return floors


def _forgets(state: StateView, closed_to: int | None, window: TimeWindow) -> bool:
    """Return whether slices are in the state of which all windows are forgotten, where they outlive the closing."""
    if not window.allowed_lateness:
        return False
    starts = state.groups(SLICES)
    return bool(len(starts)) and int(starts.min()) < floor_slice(forgotten(closed_to, window), window)


def begin(slices: pa.Table, spec: WindowStep, *, closed_to: int | None, panes: pa.Table | None = None) -> Rebuilt:
    """Return what an empty partition that is to have these slices must hold, with all windows up to `closed_to` closed.

    `slices` has the columns of the layout; the other parts of a strategy are rebuilt from them. `panes` are the rows of
    the part PANES.
    Raises StateError for a slice and key with several rows, and for one that begins where no slice does.
    """
    layout, window = spec.layout, spec.window
    rows = layout.combine([slices])
    if more := slices.num_rows - rows.num_rows:
        raise StateError(f"the slices given have {more:,} more rows than slices and keys; each has one")
    starts = integers(rows, GROUP)
    if len(odd := starts[slice_starts(starts, window) != starts]):
        raise StateError(f"no slice of these windows begins at {int(odd[0])} us", slice_start=int(odd[0]))
    floor = floor_slice(closed_to, window)
    append = {SLICES: rows} if rows.num_rows else {}
    if panes is not None and panes.num_rows:
        append[PANES] = panes
    facts = {CLOSED_TO: closed_to, _STRATEGY: spec.strategy.name}
    due = next_due_end(np.unique(starts[starts >= floor]), closed_to, window)
    floors = {part: least for part, least in _floors(closed_to, window).items() if part in (SLICES, PANES)}
    return Rebuilt(change=Change(append=append, floors=floors, facts=facts), due=due, due_time=None)


def gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables put together to about OUTPUT_BYTES, in their order; one that is larger comes alone."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        if waiting and size + table.nbytes > OUTPUT_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
        waiting.append(table)
        size += table.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def folded(deltas: Iterable[pa.Table], layout: PartialLayout) -> pa.Table:
    """Merge the batch's rows, as much at a time as an array of Arrow holds of their keys (F75)."""
    waiting: list[pa.Table] = []
    size = 0
    for delta in deltas:
        waiting.append(delta)
        size += delta.nbytes
        if size > _FOLDED_BYTES and len(waiting) > 1:
            waiting = [layout.combine(waiting)]
            size = waiting[0].nbytes
    return layout.combine(waiting)


def finished(
    whole: pa.Table,
    end: int | pa.ChunkedArray,
    spec: WindowStep,
    *,
    pane: Pane = Pane.ON_TIME,
    revisions: Ints | int = 0,
) -> pa.Table:
    """Turn the partials of a window into its output; `end` and `revisions` are those of all rows, or one for each."""
    ends = pa.repeat(pa.scalar(end, pa.int64()), whole.num_rows) if isinstance(end, int) else end
    starts = pa.array(start_of(ends.to_numpy(), spec.window))
    bounds = [starts.cast(_UTC), ends.cast(_UTC)]
    keys = [whole.column(name) for name in spec.keys.names]
    results = spec.plan.results(spec.plan.partials_of(whole))
    panes = pane_columns(pane, revisions, whole.num_rows) if spec.window.has_panes else []
    return pa.table([*keys, *bounds, *results, *panes], schema=spec.output)


def check_open(delta: pa.Table, window: TimeWindow, watermark: int | None) -> None:
    """Raise StateError where slices have rows that all windows have forgotten at a watermark."""
    if watermark is None or not delta.num_rows:
        return
    starts = integers(delta, GROUP)
    if int(last_ends(starts[:1], window)[0]) <= watermark:
        raise StateError(
            f"rows of the slice at {int(starts[0])} came after its last window had closed at {watermark}",
            slice_start=int(starts[0]),
            watermark=watermark,
        )


def earlier(time: int | None, other: int | None) -> int | None:
    """Return the earlier of two watermarks, of which None is the beginning of time."""
    return None if time is None or other is None else min(time, other)


def later(time: int | None, other: int | None) -> int | None:
    """Return the later of two watermarks."""
    return max(time, other) if time is not None and other is not None else time if other is None else other
