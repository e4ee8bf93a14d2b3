"""Make windows out of slices, one window after another, in three ways of which each costs the keys in the window.

Merge: a window of few slices is merged from them.
Subtract: what the last window and the next share is kept as one running aggregate; the slices that enter are added,
those that leave are subtracted, which only exact inverses allow.
Two stacks: slices up to the last flip as suffix aggregates (the front, see `suffixes`), slices since then as one
running aggregate (the back); a window is one of the front's suffixes and the back.
When all of the front has left, the window is turned over into a new front: about three merges a slide on average.

Rows that come late into slices which a running aggregate or a front already holds wait in the part "late".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.partial_tables import GROUP, PartialTables, integers, slices_in
from penstock.operators.slices import BEGINNING_OF_TIME, slices_per_window
from penstock.operators.suffixes import front_table, front_window

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FRONT",
    "LATE",
    "RUNNING",
    "SLICES",
    "SliceSource",
    "Slices",
    "Strategy",
    "WindowMaker",
    "strategy_of",
    "window_maker",
]

SLICES, RUNNING, FRONT, LATE = "slices", "running", "front", "late"
"""The parts of a window step's state."""
MOST_MERGED = 4
END, FLIP = "end", "flip"

Ints = npt.NDArray[np.int64]


class Strategy(Enum):
    """Name how windows are made from slices; the value explains it."""

    MERGE = "merge the slices of each window"
    SUBTRACT = "running aggregate: add the slices that enter, subtract those that leave"
    TWO_STACKS = "two stacks: suffixes of older slices, a running aggregate of newer ones"


def strategy_of(window: TimeWindow, plan: AggregatePlan) -> Strategy:
    """Choose a strategy: merging up to 4 slices, subtracting where every aggregate has an exact inverse."""
    if slices_per_window(window) <= MOST_MERGED:
        return Strategy.MERGE
    return Strategy.SUBTRACT if plan.exact_inverse else Strategy.TWO_STACKS


class SliceSource(Protocol):
    """The state of one partition of a window step, as the last commit left it."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return the facts of the last `StepResult`; none before the first."""
        ...

    def scan(self, part: str, lo: int, hi: int) -> Sequence[pa.Table]:
        """Return the rows with lo <= `_group` < hi, as tables of which each is sorted by group, then hash.

        Rows of equal group and key may stand in several tables.
        A part without rows gives no tables.
        """
        ...

    def groups(self, part: str) -> Ints:
        """Return the distinct groups that have rows, in any order."""
        ...


class Slices:
    """Hold the slices of the state and, once added, those of the batch."""

    def __init__(self, source: SliceSource, layout: PartialTables) -> None:
        self._source = source
        self._layout = layout
        self._added = layout.empty()

    def add(self, delta: pa.Table) -> None:
        """Let the batch's rows count from now on; one row a slice and key, sorted."""
        self._added = delta

    def between(self, lo: int, hi: int) -> list[pa.Table]:
        """Return the rows of slices that start in [lo, hi)."""
        return [*self._source.scan(SLICES, lo, hi), _cut(self._added, lo, hi)]

    def live(self, floor: int) -> Ints:
        """Return the starts, from `floor` on, of the slices that have rows, ascending."""
        starts = np.union1d(self._source.groups(SLICES), slices_in(self._added))
        return starts[np.searchsorted(starts, floor) :].astype(np.int64, copy=False)

    def part(self, name: str, lo: int, hi: int) -> list[pa.Table]:
        """Return the rows of another part of the state."""
        return list(self._source.scan(name, lo, hi))


class Kept(NamedTuple):
    """Hold, by part, tables to append and tables that replace it, and facts."""

    append: dict[str, pa.Table]
    replace: dict[str, pa.Table]
    facts: dict[str, int | None]


class WindowMaker(Protocol):
    """Make windows in the order of their ends, and say what must be kept to go on."""

    def make(self, end: int) -> pa.Table:
        """Return the partials of the window with this end: one row a key, sorted by hash."""
        ...

    def add(self, delta: pa.Table) -> None:
        """Take note of the batch's rows, after they were added to the slices."""
        ...

    def kept(self) -> Kept:
        """Return what the state must hold to go on after the windows made so far."""
        ...


class MergeSlices:
    """Merge the slices of each window anew."""

    def __init__(self, slices: Slices, layout: PartialTables, window: TimeWindow) -> None:
        self._slices, self._layout, self._window = slices, layout, window

    def make(self, end: int) -> pa.Table:
        """Merge the window's slices."""
        return self._layout.merge(self._slices.between(end - self._window.size, end))

    def add(self, delta: pa.Table) -> None:
        """Do nothing: slices are all there is."""

    def kept(self) -> Kept:
        """Return nothing: slices are all there is."""
        return Kept({}, {}, {})


class _Continued:
    """Hold what both strategies with a running aggregate share: where it ends, and the rows that came late into it.

    `_end` is the end of the last window made; the next window shares the slices of [`_end` + every - size, `_end`).
    When rows of it are in the state, that next window is due next, so a jump further finds nothing worth keeping.
    """

    def __init__(self, slices: Slices, layout: PartialTables, window: TimeWindow, facts: Mapping[str, Any]) -> None:
        self._slices, self._layout, self._window = slices, layout, window
        self._end: int | None = facts.get(END)
        self._made = False
        self._new_late: list[pa.Table] = []
        self._late: list[pa.Table] | None = None

    def add(self, delta: pa.Table) -> None:
        """Put rows of slices that the running aggregate holds aside."""
        if self._end is not None:
            late = _cut(delta, BEGINNING_OF_TIME, self._end)
            if late.num_rows:
                self._new_late.append(late)

    def _late_rows(self, start: int, end: int) -> list[pa.Table]:
        """Return the rows that came late into slices of [start, end)."""
        if self._late is None:
            self._late = self._slices.part(LATE, start, end)
        return [_cut(table, start, end) for table in (*self._late, *self._new_late)]

    def _went_to(self, end: int, late: list[pa.Table]) -> None:
        self._end, self._made, self._late, self._new_late = end, True, late, []

    def _kept(self, **replaced: pa.Table | None) -> Kept:
        replace = {part: table for part, table in replaced.items() if table is not None}
        late = self._layout.combine([*(self._late or []), *self._new_late])
        if self._made:
            return Kept({}, replace | {LATE: late}, {END: self._end})
        return Kept({LATE: late} if late.num_rows else {}, replace, {END: self._end})


class SubtractSlices(_Continued):
    """Keep the aggregate of the slices that the last window and the next share."""

    def __init__(self, slices: Slices, layout: PartialTables, window: TimeWindow, facts: Mapping[str, Any]) -> None:
        super().__init__(slices, layout, window, facts)
        self._running: pa.Table | None = None

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

    def kept(self) -> Kept:
        """Return the running aggregate, late rows and the end they belong to."""
        return self._kept(running=self._running)


class TwoStacks(_Continued):
    """Keep suffix aggregates of the slices before the flip, and one aggregate of those since."""

    def __init__(self, slices: Slices, layout: PartialTables, window: TimeWindow, facts: Mapping[str, Any]) -> None:
        super().__init__(slices, layout, window, facts)
        self._flip: int | None = facts.get(FLIP)
        self._front: pa.Table | None = None
        self._back: pa.Table | None = None

    def make(self, end: int) -> pa.Table:
        """Add the slices that enter to the back, and take the front's suffix where the window starts."""
        start, before, flip = end - self._window.size, end - self._window.every, self._flip
        if self._end != before or flip is None or start >= flip:
            return self._turn_over(start, end)
        late = self._late_rows(start, before)
        newer, older = ([_cut(table, lo, hi) for table in late] for lo, hi in ((flip, before), (start, flip)))
        back = [self._back] if self._back is not None else self._slices.part(RUNNING, 0, 1)
        self._back = self._layout.merge([*back, *newer, *self._slices.between(before, end)])
        fronts = [_cut(self._front, start, flip)] if self._front is not None else self._slices.part(FRONT, start, flip)
        self._went_to(end, older)
        return self._layout.merge([*(front_window(front, start) for front in fronts), *older, self._back])

    def kept(self) -> Kept:
        """Return the stacks that changed, late rows, and where the stacks meet and end."""
        append, replace, facts = self._kept(running=self._back, front=self._front)
        return Kept(append, replace, {**facts, FLIP: self._flip})

    def _turn_over(self, start: int, end: int) -> pa.Table:
        self._front = front_table(self._layout, self._slices.between(start, end))
        self._back = self._layout.empty()
        self._flip = end
        self._went_to(end, [])
        return self._layout.merge([front_window(self._front, start)])


def window_maker(
    strategy: Strategy, slices: Slices, layout: PartialTables, window: TimeWindow, facts: Mapping[str, Any]
) -> WindowMaker:
    """Return what makes windows by a strategy, going on where its facts say; without facts it starts from slices."""
    match strategy:
        case Strategy.MERGE:
            return MergeSlices(slices, layout, window)
        case Strategy.SUBTRACT:
            return SubtractSlices(slices, layout, window, facts)
        case Strategy.TWO_STACKS:
            return TwoStacks(slices, layout, window, facts)


def _cut(table: pa.Table, lo: int, hi: int) -> pa.Table:
    """Return the rows with lo <= `_group` < hi of a table sorted by group, without a copy."""
    first, last = np.searchsorted(integers(table, GROUP), [lo, hi])
    return table.slice(first, max(0, last - first))
