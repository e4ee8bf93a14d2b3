"""Merge spans of time that touch, with numpy: the sessions that rows make together (SEMANTICS 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.state.keys import Bools, Ints

__all__ = ["Spans", "free_slots", "merged_spans"]


@dataclass(frozen=True, slots=True)
class Spans:
    """Merged spans, by owner and then by start; no two of an owner touch.

    `ids`: the merged span of each span that was given. `owners`, `starts` and `ends` are those of the merged ones, and
    `first` is the index of the earliest span in each.
    """

    ids: Ints
    owners: Ints
    starts: Ints
    ends: Ints
    first: Ints

    @property
    def total(self) -> int:
        """Return how many merged spans there are."""
        return len(self.starts)

    def having(self, mask: Bools) -> Bools:
        """Return which merged spans have a span where a mask is true."""
        has: Bools = np.bincount(self.ids[mask], minlength=self.total) > 0
        return has


def merged_spans(owners: Ints, starts: Ints, ends: Ints) -> Spans:
    """Merge the spans [start, end] of each owner that overlap or touch; all are int64, owners small and from 0.

    One sort, and one running maximum over the ranks of the ends: an owner's ranks are above those of the owners before,
    so none reaches over.
    """
    n = len(owners)
    order = np.lexsort((starts, owners))
    owner, start = owners[order], starts[order]
    distinct, ranks = np.unique(ends[order], return_inverse=True)
    highest = np.maximum.accumulate(owner * len(distinct) + ranks.astype(np.int64))
    opens = np.ones(n, dtype=np.bool_)
    before = distinct[(highest - owner * len(distinct))[:-1]] if n else starts
    opens[1:] = (owner[1:] != owner[:-1]) | (start[1:] > before)
    ids = np.empty(n, dtype=np.int64)
    ids[order] = np.cumsum(opens) - 1
    at = np.flatnonzero(opens)
    latest = np.maximum.reduceat(ends[order], at) if n else ends
    return Spans(ids=ids, owners=owner[at], starts=start[at], ends=latest, first=order[at])


def free_slots(owners: Ints, slots: Ints) -> Ints:
    """Return slots with the negative ones replaced by free numbers, the least of each owner; `owners` ascend.

    An owner's slots differ afterwards, if those that are not negative did.
    """
    new = slots < 0
    if not new.any():
        return slots
    _, index, counts = np.unique(owners, return_inverse=True, return_counts=True)
    owner = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    width = max(int(slots.max()), int(counts.max())) + 1
    free = ~np.isin(owner * width + number, (index * width + slots)[~new])
    # Of n slots of an owner n numbers are enough: at least as many of 0 to n - 1 are free as slots are new.
    rank = np.cumsum(free) - 1
    before = np.concatenate([[0], np.cumsum(np.bincount(owner[free], minlength=len(counts)))])[:-1]
    wanted = np.bincount(index[new], minlength=len(counts))
    taken = free & (rank - before[owner] < wanted[owner])
    filled = slots.copy()
    filled[new] = number[taken]
    return filled
