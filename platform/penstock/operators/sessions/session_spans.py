"""Merge spans of time that touch, with numpy: the sessions that rows make together (SEMANTICS 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.state.keys import Bools, Ints

__all__ = ["Spans", "free_slots", "merged_spans"]

_NUMBERS = 2**63 - 1
_DIGIT = 2**16 - 1


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
    """Merge the spans [start, end] of each owner that overlap or touch; all are int64, owners small and from 0."""
    n = len(owners)
    order = _in_order(owners, starts)
    owner, start, end = owners[order], starts[order], ends[order]
    others = owner[1:] != owner[:-1]
    opens = np.ones(n, dtype=np.bool_)
    opens[1:] = others | (start[1:] > _reached(owner, end, others)[:-1])
    ids = np.empty(n, dtype=np.int64)
    ids[order] = np.cumsum(opens) - 1
    at = np.flatnonzero(opens)
    latest = np.maximum.reduceat(end, at) if n else end
    return Spans(ids=ids, owners=owner[at], starts=start[at], ends=latest, first=order[at])


def _in_order(owners: Ints, starts: Ints) -> Ints:
    """Return the places of spans by owner, then by start."""
    if not len(owners):
        return np.empty(0, dtype=np.int64)
    if (starts[1:] >= starts[:-1]).all():
        return _by_number(owners)
    earliest = int(starts.min())
    width = int(starts.max()) - earliest + 1
    if width * (int(owners.max()) + 1) > _NUMBERS:
        return np.lexsort((starts, owners))
    # One number for both sorts in half the time.
    return np.argsort(owners * width + (starts - earliest))


def _by_number(owners: Ints) -> Ints:
    """Return the places of owners in their order, equal ones as they come; numpy sorts 16 bits by radix."""
    order = np.argsort((owners & _DIGIT).astype(np.uint16), kind="stable")
    for shift in range(16, int(owners.max()).bit_length(), 16):
        order = order[np.argsort((owners[order] >> shift & _DIGIT).astype(np.uint16), kind="stable")]
    return order


def _reached(owner: Ints, end: Ints, others: Bools) -> Ints:
    """Return for each span the latest end up to it among those of its owner, which `others` tell apart."""
    if (others | (end[1:] >= end[:-1])).all():
        return end  # as with one gap for all rows
    # A running maximum over ranks: an owner's are above those of the owners before, so none reaches over.
    distinct, ranks = np.unique(end, return_inverse=True)
    highest = np.maximum.accumulate(owner * len(distinct) + ranks.astype(np.int64))
    reached: Ints = distinct[highest - owner * len(distinct)]
    return reached


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
