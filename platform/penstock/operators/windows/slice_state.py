"""Read the slices of a partition's state, and keep what windows are made of from one window to the next.

The part LATE holds late rows of slices that an aggregate already contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.graph.windows import TimeWindow
from penstock.operators.columns import integers
from penstock.operators.protocol import StateView
from penstock.operators.windows.partials import PartialLayout, slices_in
from penstock.operators.windows.slices import BEGINNING_OF_TIME, start_of
from penstock.state.keys import Ints
from penstock.state.row_layout import GROUP
from penstock.state.writer import Change

__all__ = [
    "FRONT",
    "LATE",
    "LATE_NEXT",
    "PANES",
    "RUNNING",
    "SLICES",
    "TOTAL",
    "Continued",
    "GrowSlices",
    "MergeSlices",
    "Slices",
    "SubtractSlices",
    "cut",
]

SLICES, RUNNING, LATE = "slices", "running", "late"
FRONT, TOTAL, LATE_NEXT = "front", "total", "late_next"
"""The parts of a window step's state; the last three are of `Blocks`."""
PANES = "panes"
"""The part that counts the revisions of windows; its groups are window ends."""
END = "end"


class Slices:
    """The slices of the state and, once added, those of the batch."""

    def __init__(self, state: StateView, layout: PartialLayout) -> None:
        self._state = state
        self._layout = layout
        self._added = layout.empty()

    def add(self, delta: pa.Table) -> None:
        """Let the batch's rows count from now on; one row a slice and key, sorted."""
        self._added = delta

    def between(self, lo: int, hi: int) -> list[pa.Table]:
        """Return the rows of slices that start in [lo, hi)."""
        return [*self.part(SLICES, lo, hi), cut(self._added, lo, hi)]

    def live(self, floor: int) -> Ints:
        """Return the starts, from `floor` on, of the slices that have rows, ascending."""
        starts = np.union1d(self._state.groups(SLICES), slices_in(self._added))
        return starts[np.searchsorted(starts, floor) :].astype(np.int64, copy=False)

    def part(self, name: str, lo: int, hi: int, schema: pa.Schema | None = None) -> list[pa.Table]:
        """Return the rows of a part of the state with lo <= `_group` < hi, as tables sorted by group, then hash.

        Rows of equal group and key may stand in several tables. `schema` is that of the layout, if not given.
        """
        return list(self._state.scan(name, lo, hi, None if name == FRONT else schema or self._layout.schema))


class MergeSlices:
    """Make windows in the order of their ends by merging all slices of each.

    The base of strategies that keep more. They resume from `facts`, and without facts start from slices.
    """

    def __init__(self, slices: Slices, layout: PartialLayout, window: TimeWindow, _facts: Mapping[str, Any]) -> None:
        self._slices, self._layout, self._window = slices, layout, window

    def make(self, end: int) -> pa.Table:
        """Return the partials of the window with this end: one row a key, sorted by hash."""
        return self._layout.merge(self._slices.between(start_of(end, self._window), end))

    def add(self, delta: pa.Table) -> None:
        """Take note of the batch's rows, after they were added to the slices."""

    def kept(self) -> Change:
        """Return what the state must hold, beside slices, after the windows made so far."""
        return Change()


class Continued(MergeSlices):
    """The base of the strategies with a running aggregate: its end, and the rows that came late into it.

    `_end` is the end of the last window made; the next window shares its slices before that.
    When rows of it are in the state, that next window is due next, so a jump further finds nothing worth keeping.
    """

    def __init__(self, slices: Slices, layout: PartialLayout, window: TimeWindow, facts: Mapping[str, Any]) -> None:
        super().__init__(slices, layout, window, facts)
        self._end: int | None = facts.get(END)
        self._made = False
        self._running: pa.Table | None = None
        self._new_late: list[pa.Table] = []
        self._late: list[pa.Table] | None = None

    def add(self, delta: pa.Table) -> None:
        """Put rows of slices that the running aggregate holds aside."""
        if self._end is not None:
            late = cut(delta, BEGINNING_OF_TIME, self._end)
            if late.num_rows:
                self._new_late.append(late)

    def _late_rows(self, start: int, end: int) -> list[pa.Table]:
        """Return the rows that came late into slices of [start, end)."""
        if self._late is None:
            self._late = self._slices.part(LATE, start, end)
        return [cut(table, start, end) for table in (*self._late, *self._new_late)]

    def _went_to(self, end: int, late: list[pa.Table]) -> None:
        self._end, self._made, self._late, self._new_late = end, True, late, []

    def _kept(self, replaced: Mapping[str, pa.Table | None], **facts: int) -> Change:
        replace = {part: table for part, table in replaced.items() if table is not None}
        late = self._layout.combine([*(self._late or []), *self._new_late])
        facts_of_end = {END: self._end, **facts}
        if self._made:
            return Change(replace=replace | {LATE: late}, facts=facts_of_end)
        return Change(append={LATE: late} if late.num_rows else {}, replace=replace, facts=facts_of_end)


class GrowSlices(Continued):
    """Keep the aggregate of the last window, which the next one of the same start contains."""

    def make(self, end: int) -> pa.Table:
        """Add the slices that enter to the last window; one that has its full size is not kept."""
        start, every = start_of(end, self._window), self._window.every
        if self._end == end - every and start < self._end:
            running = [self._running] if self._running is not None else self._slices.part(RUNNING, 0, 1)
            late = self._late_rows(start, end - every)
            whole = self._layout.merge([*running, *late, *self._slices.between(end - every, end)])
        else:
            whole = self._layout.merge(self._slices.between(start, end))
        self._running = whole if end < start + self._window.size else self._layout.empty()
        self._went_to(end, [])
        return whole

    def kept(self) -> Change:
        """Return the last window, late rows and the end they belong to."""
        return self._kept({RUNNING: self._running})


class SubtractSlices(Continued):
    """Keep the aggregate of the slices that the last window and the next share."""

    def make(self, end: int) -> pa.Table:
        """Add the slices that enter to the running aggregate; then let those go that the next window does not hold."""
        start, every = end - self._window.size, self._window.every
        if self._end == end - every:
            running = [self._running] if self._running is not None else self._slices.part(RUNNING, 0, 1)
            late = self._late_rows(start, end - every)
            whole = self._layout.merge([*running, *late, *self._slices.between(end - every, end)])
        else:
            whole = self._layout.merge(self._slices.between(start, end))
        leaving = self._slices.between(start, start + every)
        self._running = self._layout.merge([whole, *leaving], [1] + [-1] * len(leaving))
        self._went_to(end, [])
        return whole

    def kept(self) -> Change:
        """Return the running aggregate, late rows and the end they belong to."""
        return self._kept({RUNNING: self._running})


def cut(table: pa.Table, lo: int, hi: int) -> pa.Table:
    """Return the rows with lo <= `_group` < hi of a table sorted by group, without a copy."""
    first, last = np.searchsorted(integers(table, GROUP), [lo, hi])
    return table.slice(first, max(0, last - first))
