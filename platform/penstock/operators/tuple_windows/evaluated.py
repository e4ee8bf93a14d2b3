"""List the windows that the rounds of a batch evaluate, with the rows of each, by blocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.operators.tuple_windows.rounds import KeyRows, Rounds
from penstock.state.keys import Bools, Ints

__all__ = ["MOST_MEMBERS", "Windows", "evaluated_windows"]

MOST_MEMBERS = 1 << 20
"""How many rows the windows of a block have together; one window may have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows by key, then round. One has rows, or rows have left it.

    Args:
        keys: The key of each window.
        rounds: The round of each window.
        members: The rows of the windows, one window after another, in order of arrival.
        starts: Where the rows of each window begin in `members`, and where the last ones end.
        gone: The rows that left, likewise.
        gone_starts: The same of `gone`.
    """

    keys: Ints
    rounds: Ints
    members: Ints
    starts: Ints
    gone: Ints
    gone_starts: Ints

    @property
    def fired(self) -> Bools:
        """Return which windows have rows."""
        return np.diff(self.starts) > 0


def evaluated_windows(rows: KeyRows, rounds: Rounds, *, with_gone: bool, most: int = MOST_MEMBERS) -> Iterator[Windows]:
    """Yield the windows of a batch by blocks; those of one key come in the order of their rounds.

    `with_gone` says whether rows that left are wanted. A window without rows is left out where they are not.
    """
    low = np.maximum(rounds.enter, 1)
    high = np.minimum(rounds.leave, rounds.last[rows.ids] + 1)
    out = rounds.out
    leaves = (out >= 1) & (out <= rounds.last[rows.ids]) if with_gone else np.zeros(len(low), dtype=np.bool_)
    sizes = np.maximum(high - low, 0) + leaves
    for start, end in _runs(rows.ids, sizes, most):
        mine = slice(start, end)
        last_round = max(int(high[mine].max()) - 1, int(out[mine][leaves[mine]].max(initial=0)))
        parts = max(-(-int(sizes[mine].sum()) // most), 1)
        first_round = min(int(low[mine].min()), int(out[mine][leaves[mine]].min(initial=last_round)))
        width = max(-(-(last_round - first_round + 1) // parts), 1)
        for since in range(first_round, last_round + 1, width):
            until = min(since + width, last_round + 1)
            windows = _windows(
                rows.ids[mine],
                np.maximum(low[mine], since),
                np.minimum(high[mine], until),
                np.where(leaves[mine] & (out[mine] >= since) & (out[mine] < until), out[mine], 0),
                start,
            )
            if len(windows.keys):
                yield windows


def _runs(ids: Ints, sizes: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows: of whole keys, whose windows have at most so many rows, or of one key."""
    if not len(ids):
        return
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    before = np.r_[0, np.cumsum(sizes)]
    bounds = np.r_[starts, len(ids)]
    at = 0
    while at < len(starts):
        limit = before[bounds[at]] + most
        to = max(int(np.searchsorted(before[bounds], limit, side="right")) - 1, at + 1)
        if before[bounds[to]] > before[bounds[at]]:
            yield int(bounds[at]), int(bounds[to])
        at = to


def _windows(ids: Ints, low: Ints, high: Ints, out: Ints, offset: int) -> Windows:
    """Return the windows of rounds from `low` to before `high`; rows with an `out` leave then."""
    counts = np.maximum(high - low, 0)
    rows = np.repeat(np.arange(len(ids)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    gone = np.flatnonzero(out)
    rounds = np.concatenate([low[rows] + within, out[gone]])
    keys = np.concatenate([ids[rows], ids[gone]])
    codes = _codes(keys, rounds)
    members, left = codes[: len(rows)], codes[len(rows) :]
    order, left_order = np.argsort(members, kind="stable"), np.argsort(left, kind="stable")
    distinct, first = np.unique(codes, return_index=True)
    bounds = np.append(distinct, distinct[-1] + 1) if len(distinct) else np.zeros(1, dtype=np.int64)
    return Windows(
        keys=keys[first],
        rounds=rounds[first],
        members=rows[order] + offset,
        starts=np.searchsorted(members[order], bounds),
        gone=gone[left_order] + offset,
        gone_starts=np.searchsorted(left[left_order], bounds),
    )


def _codes(keys: Ints, rounds: Ints) -> Ints:
    """Return numbers that compare as keys and rounds do."""
    if not len(keys):
        return keys
    least = int(rounds.min())
    span = int(rounds.max()) - least + 1
    if span * (int(keys.max()) + 1) < 2**62:
        return keys * span + (rounds - least)
    distinct, ranks = np.unique(rounds, return_inverse=True)
    return keys * len(distinct) + ranks
