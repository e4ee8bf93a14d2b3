"""Emit windows before they close, by batch time and by rows, and then as every window (SEMANTICS 2.5, 2.6, 3.2).

Each key and window has a value of its own in the state (`pane_store`), because each has panes of its own. A batch costs
the windows that its rows lie in, and at a multiple of `emit_every` those that got rows since the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.graph.policies import Accumulation, Pane
from penstock.operators.aggregates import ROWS
from penstock.operators.columns import integers
from penstock.operators.protocol import Due, StateView, StepFacts, Tally
from penstock.operators.windows.lateness import forgotten
from penstock.operators.windows.pane_store import WAITING, Known, PaneStore, newest
from penstock.operators.windows.partials import NEW_ROWS, slices_in
from penstock.operators.windows.slice_state import PANES, cut
from penstock.operators.windows.slices import BEGINNING_OF_TIME, due_ends
from penstock.operators.windows.time_windows import (
    CLOSED_TO,
    WindowStep,
    check_open,
    earlier,
    finished,
    folded,
    gathered,
    later,
)
from penstock.operators.windows.window_batch_close import windows_together
from penstock.state.full_compaction import live_rows
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import GROUP
from penstock.state.writer import Change
from penstock.time.clock import END_OF_TIME
from penstock.time.triggers import multiple_from

__all__ = ["DUE", "EVERY", "EarlyBatch", "floors_of"]

EVERY, DUE = "emit_every", "early_due"
"""The facts with the period of `emit_every`, which has the part WAITING, and with its multiple that is due next."""
PIECE_ROWS = 262_144
"""How many keys and windows are emitted at once, at most about."""


def floors_of(closed_to: int | None, spec: WindowStep) -> dict[str, int]:
    """Return, by part, the window end below which no later batch reads rows."""
    ends = {PANES: forgotten(closed_to, spec.window), WAITING: closed_to}
    return {part: _after(end) for part, end in ends.items()}


class EarlyBatch:
    """The work of a batch in one partition, for windows with early panes."""

    def __init__(self, state: StateView, spec: WindowStep, facts: StepFacts) -> None:
        self.state, self.spec, self.facts = state, spec, facts
        self.window, self.layout = spec.window, spec.layout
        self.store = PaneStore(state, spec.layout)
        self.whole = spec.window.accumulation is Accumulation.ACCUMULATING
        self.closed_to: int | None = state.facts.get(CLOSED_TO)
        self._closed = 0
        self._changed: list[pa.Table] = []
        self._begun: list[pa.Table] = []
        self._judged: list[pa.Table] = []
        self._plan_time()

    def _plan_time(self) -> None:
        """Find out which panes are due by batch time."""
        every, time = self.window.early_every, self.facts.time
        self.next_multiple = None if every is None else multiple_from(time, every, self.facts.zero)
        self.now = self.next_multiple == time
        """Whether this batch is at a multiple."""
        self.due: int | None = None
        self._unlisted: list[pa.Table] = []
        """The keys and windows with new rows that WAITING lacks: those of a job that had no `emit_every`."""
        if every is not None:
            was, self.due = self.state.facts.get(EVERY), self.state.facts.get(DUE)
            if was is None:
                self._unlisted = self._with_new_rows()
            if self._unlisted or (self.due is not None and was != every):
                # As where the state is rebuilt: the first multiple after the batch before.
                since = time if self.facts.before is None else self.facts.before + 1
                self.due = multiple_from(since, every, self.facts.zero)
        self.flushes = self.due is not None and self.due <= time

    def run(self, deltas: Iterable[pa.Table]) -> Iterator[pa.Table | Tally | Due | Change]:
        """Yield the rows of all panes, the count of merged rows, when the partition is due, and the change.

        `deltas` are as in `time_windows.step`. First the windows close that close without the batch's rows. Then late
        rows revise the closed ones (2.6). Those follow that close with the rows, of a chained step. What stays open is
        judged last.
        A batch that changes nothing writes nothing.
        """
        late, close = self.facts.late, self.facts.watermark
        yield from gathered(self._closing(earlier(late, close)))
        delta = folded(deltas, self.layout)
        check_open(delta, self.window, forgotten(later(self.closed_to, late), self.window))
        yield from gathered(self._touched(delta))
        if self.flushes:
            yield from gathered(self._waited())
        yield from gathered(self._closing(close))
        yield Tally({"merged": int(integers(delta, ROWS).sum())})
        due = self._next_due()
        yield Due(self._next_end(), due)
        yield self._change(due)

    # --- windows that close ---------------------------------------------------------------------

    def _closing(self, to: int | None) -> Iterator[pa.Table]:
        """Yield the final panes of windows with ends up to `to` (2.5); a pane without rows is none."""
        after = self.closed_to
        self.closed_to = later(after, to)
        if to is None or (after is not None and to <= after):
            return
        low, high = _after(after), _after(to)
        tables = self.state.scan(PANES, low, high, self.store.schema)
        tables = [table for table in (*tables, *(cut(t, low, high) for t in self._changed)) if table.num_rows]
        for first, last in _pieces([integers(table, GROUP) for table in tables]):
            rows = newest([cut(table, first, last + 1) for table in tables], self.layout)
            self._closed += rows.num_rows
            if not self.whole:
                rows = rows.filter(pa.array(integers(rows, NEW_ROWS) > 0))
            revisions = Known(rows, np.arange(rows.num_rows)).revisions + 1
            yield finished(rows, rows[GROUP], self.spec, revisions=revisions)

    # --- windows that get rows ------------------------------------------------------------------

    def _touched(self, delta: pa.Table) -> Iterator[pa.Table]:
        """Yield the late and early panes of the keys and windows that rows of the batch lie in."""
        gone = forgotten(self.closed_to, self.window)
        for ends in due_ends(slices_in(delta), gone, END_OF_TIME, self.window):
            for _, rows in windows_together([delta], self.layout, self.window, ends):
                if rows.num_rows:
                    yield from self._merged(rows)

    def _merged(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Merge rows of the batch, one a key and window, into what is known of these, and emit what is due."""
        known, ends = self.store.known(rows), integers(rows, GROUP)
        before, closed = known.new_rows, ends <= _or_least(self.closed_to)
        stays = ends > _or_least(later(self.closed_to, self.facts.watermark))
        new_rows = integers(rows, ROWS) + np.where(closed, 0, before)
        whole = self.store.merged(rows, known, known.held if self.whole else ~closed & (before > 0))
        # The closing has emitted what was there, as a row that nothing has counted yet.
        revisions = known.revisions + (closed & known.held & ~known.late & (self.whole | (before > 0)))
        early = stays & self._is_due(new_rows, before)
        fired = early | closed
        revisions = revisions + fired
        panes = known.panes
        panes[closed], panes[early] = Pane.LATE.value, Pane.EARLY.value
        for pane, mask in ((Pane.LATE, closed), (Pane.EARLY, early)):
            yield from self._emitted(whole, pane, revisions, mask)
        self._changed.append(self.store.entries(whole, panes, revisions, np.where(fired, 0, new_rows)))
        if self.next_multiple is not None:
            self._note(self._begun, rows, stays & ~fired & (before == 0))
        if self.flushes:
            self._note(self._judged, rows, before > 0)

    def _is_due(self, new_rows: Ints, before: Ints) -> Bools:
        """Return which open windows that have got rows have a pane after this batch."""
        by_time: Bools = (before > 0) if self.flushes else np.zeros(len(before), dtype=np.bool_)
        if self.now:
            by_time = np.ones(len(before), dtype=np.bool_)
        most = self.window.early_rows
        return by_time if most is None else by_time | (new_rows >= most)

    # --- windows that wait for a multiple of emit_every -----------------------------------------

    def _waited(self) -> Iterator[pa.Table]:
        """Yield the panes of keys and windows that had new rows before this batch, and get none in it."""
        least = _after(later(self.closed_to, self.facts.watermark))
        waiting = [table.filter(pa.array(integers(table, GROUP) >= least)) for table in self._unlisted]
        waiting = waiting or self.state.scan(WAITING, least)
        pairs = [table.select(self.store.pair).cast(self.store.pairs) for table in (*self._judged, *waiting)]
        if not sum(table.num_rows for table in pairs):
            return
        judged = sum(table.num_rows for table in self._judged)
        _, first = np.unique(self.store.ids(pairs), return_index=True)  # in the order of window ends and hashes
        every = pa.concat_tables(pairs).take(pa.array(first[first >= judged])).combine_chunks()
        for first_end, last_end in _pieces([integers(every, GROUP)]):
            piece = cut(every, first_end, last_end + 1)
            known = self.store.known(piece)
            mask = known.new_rows > 0
            rows = known.rows.take(pa.array(known.at[mask]))
            revisions = known.revisions[mask] + 1
            everything = np.ones(rows.num_rows, dtype=np.bool_)
            yield from self._emitted(rows, Pane.EARLY, revisions, everything)
            panes = np.full(rows.num_rows, Pane.EARLY.value, dtype=np.object_)
            self._changed.append(self.store.entries(rows, panes, revisions, np.zeros(rows.num_rows, dtype=np.int64)))

    # --- what the state keeps -------------------------------------------------------------------

    def _next_end(self) -> int | None:
        """Return the end of the next window that has rows."""
        least = _after(self.closed_to)
        ends = [] if (first := self.state.first_group(PANES, least)) is None else [first]
        ends += [int(here.min()) for t in self._changed if len(here := (g := integers(t, GROUP))[g >= least])]
        return min(ends, default=None)

    def _next_due(self) -> int | None:
        """Return the multiple of `emit_every` at which keys and windows are due that have new rows."""
        waits = self.state.first_group(WAITING, _after(self.closed_to)) is not None or bool(self._unlisted)
        due = self.due if waits and not self.flushes else None
        if not self._begun:
            return due
        assert self.next_multiple is not None
        return self.next_multiple if due is None else min(due, self.next_multiple)

    def _change(self, due: int | None) -> Change:
        oldest = self.state.first_group(PANES)
        floors = floors_of(self.closed_to, self.spec)
        forgets = oldest is not None and oldest < floors[PANES]
        every = self.window.early_every
        # Written in each partition: one that comes back has its own next multiple, wherever rows came meanwhile.
        ends = every is None and self.state.facts.get(EVERY) is not None
        if not (self._closed or self._changed or self.flushes or self._unlisted or forgets or ends):
            return Change(facts=self.state.facts)
        append = {PANES: pa.concat_tables(self._changed)} if self._changed else {}
        begun = self._begun if self.flushes else [*self._unlisted, *self._begun]
        waiting = pa.concat_tables([self.store.pairs.empty_table(), *begun])
        replaced = {WAITING: waiting} if self.flushes or every is None else {}
        if waiting.num_rows and not replaced:
            append[WAITING] = waiting
        facts = {CLOSED_TO: self.closed_to, EVERY: every, DUE: due}
        return Change(append=append, replace=replaced, floors=floors, facts=facts)

    # --- inside ---------------------------------------------------------------------------------

    def _emitted(self, partials: pa.Table, pane: Pane, revisions: Ints, mask: Bools) -> Iterator[pa.Table]:
        """Yield the output of the keys and windows of a mask, if any."""
        if mask.any():
            rows = partials if mask.all() else partials.filter(pa.array(mask))
            yield finished(rows, rows[GROUP], self.spec, pane=pane, revisions=revisions[mask])

    def _note(self, pairs: list[pa.Table], rows: pa.Table, mask: Bools) -> None:
        """Add the keys and window ends of a mask to `pairs`."""
        if mask.any():
            pairs.append(rows.filter(pa.array(mask)).select(self.store.pair).cast(self.store.pairs))

    def _with_new_rows(self) -> list[pa.Table]:
        """Return the keys and windows of the whole state that are open and have new rows."""
        parts, least = PaneStore.parts(self.layout), _after(self.closed_to)
        tables: list[pa.Table] = []
        for rows in live_rows(self.state, PANES, parts):
            mask = (integers(rows, NEW_ROWS) > 0) & (integers(rows, GROUP) >= least)
            self._note(tables, rows, mask)
        return tables


def _or_least(time: int | None) -> int:
    return BEGINNING_OF_TIME if time is None else time


def _after(time: int | None) -> int:
    """Return the first window end after a watermark."""
    return BEGINNING_OF_TIME if time is None else min(time, END_OF_TIME - 1) + 1


def _pieces(groups: Sequence[Ints]) -> Iterator[tuple[int, int]]:
    """Yield ranges of window ends, first and last, of about PIECE_ROWS rows; at least one window each."""
    if not sum(map(len, groups)):
        return
    ends, counts = np.unique(np.concatenate(groups), return_counts=True)
    numbers = (np.cumsum(counts) - counts) // PIECE_ROWS
    starts = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]]).tolist()
    for start, stop in zip(starts, [*starts[1:], len(ends)], strict=True):
        yield int(ends[start]), int(ends[stop - 1])
