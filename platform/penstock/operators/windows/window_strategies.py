"""Make windows out of slices, one window after another, in three ways of which each costs the keys in the window.

- Merge makes a window of few slices from them, see `MergeSlices`.
- Subtract keeps the rows that the last window and the next share as one running aggregate. It adds the slices that
  enter and subtracts those that leave, which only exact inverses allow.
- Blocks is for aggregates without an inverse, see `two_stacks`.

The part "late" holds late rows of slices that an aggregate already contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pyarrow as pa

from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.slice_state import RUNNING, Continued, MergeSlices, Slices
from penstock.operators.windows.slices import slices_per_window
from penstock.operators.windows.two_stacks import LEAST_SLIDES, Blocks
from penstock.state.writer import Change

__all__ = ["Strategy", "strategy_of", "window_maker"]

MOST_MERGED = 4


class Strategy(Enum):
    """The ways to make windows from slices; the value explains it."""

    MERGE = "merge the slices of each window"
    SUBTRACT = "running aggregate: add the slices that enter, subtract those that leave"
    BLOCKS = "blocks of half a window: suffixes of the oldest, a total of the next, a running aggregate of the newest"


def strategy_of(window: TimeWindow, plan: AggregatePlan) -> Strategy:
    """Choose a strategy: merging up to 4 slices, subtracting where every aggregate has an exact inverse."""
    if slices_per_window(window) <= MOST_MERGED:
        return Strategy.MERGE
    if plan.exact_inverse:
        return Strategy.SUBTRACT
    return Strategy.BLOCKS if window.size >= LEAST_SLIDES * window.every else Strategy.MERGE


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


_MAKERS = {Strategy.MERGE: MergeSlices, Strategy.SUBTRACT: SubtractSlices, Strategy.BLOCKS: Blocks}


def window_maker(
    strategy: Strategy, slices: Slices, layout: PartialLayout, window: TimeWindow, facts: Mapping[str, Any]
) -> MergeSlices:
    """Return the maker of a strategy, which resumes from its facts; without facts it starts from slices."""
    return _MAKERS[strategy](slices, layout, window, facts)
