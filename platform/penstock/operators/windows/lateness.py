"""Judge which rows are late for the windows that hold them, and which lie in none (SEMANTICS 2.3, 2.5, 2.10).

Times and watermarks are integer microseconds since 1970, negative before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import numpy as np

from penstock.graph.policies import LatenessRule
from penstock.graph.windows import TimeWindow
from penstock.operators.windows.slices import BEGINNING_OF_TIME, in_no_window, last_ends
from penstock.state.keys import Bools, Ints

__all__ = ["Judgement", "forgotten", "judge"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The fate of each row before aggregation: boolean masks, one item a row.

    A row is `late`, or in `no_window`, or else it counts.
    `partly_late` rows count, in those of their windows that are not forgotten.
    """

    late: Bools
    partly_late: Bools
    no_window: Bools

    @property
    def counted(self) -> Bools:
        """Return which rows count in at least one window."""
        return ~(self.late | self.no_window)


@overload
def forgotten(watermark: int, window: TimeWindow) -> int: ...
@overload
def forgotten(watermark: int | None, window: TimeWindow) -> int | None: ...
def forgotten(watermark: int | None, window: TimeWindow) -> int | None:
    """Return the time up to which windows are forgotten at a watermark: those with end <= it (SEMANTICS 2.5).

    None is the beginning of time.
    """
    return None if watermark is None else max(watermark - window.allowed_lateness, BEGINNING_OF_TIME)


def judge(times: Ints, window: TimeWindow, late_watermark: int | None) -> Judgement:
    """Judge rows by their event times and the watermark of their batch (SEMANTICS 2.3, 2.5, 2.10).

    A row in no window (see `in_no_window`) is never late under `LatenessRule.WINDOW`.
    Otherwise it is late if every window that holds it is `forgotten`, and partly late if only some are.
    Under `LatenessRule.WATERMARK` a row with time < watermark is late whatever the window, in a gap too.
    `late_watermark` None is the beginning of time: nothing is late.
    """
    outside = in_no_window(times, window)
    nothing: Bools = np.zeros(len(times), dtype=np.bool_)
    if late_watermark is None or not len(times) or int(times.min()) >= late_watermark:
        # Every window of a row ends after its time.
        return Judgement(nothing, nothing, outside)
    if window.rule is LatenessRule.WATERMARK:
        late = times < late_watermark
        return Judgement(late, nothing, outside & ~late)
    safe = np.where(outside, 0, times)
    last = last_ends(safe, window)
    # The first window that holds a time starts less than `size` before it, a whole number of slides before the last.
    first = last - (last - safe - 1) // window.every * window.every
    gone = forgotten(late_watermark, window)
    late = (last <= gone) & ~outside
    return Judgement(late, (first <= gone) & ~late & ~outside, outside)
