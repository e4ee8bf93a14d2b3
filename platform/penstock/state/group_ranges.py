"""Keep the distinct groups of a piece in few numbers.

Slices start at regular times, so thousands of them are a handful of arithmetic progressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from penstock.state.keys import Ints

__all__ = ["Steps", "distinct", "groups_in", "steps_of"]

Steps: TypeAlias = tuple[tuple[int, int, int], ...]
"""Progressions in ascending order: first, step, count."""

MOST_GROUPS = 4_096
MOST_STEPS = 64  # progressions: with more, a manifest would grow by its groups
MOST_STEP = 2**62


def distinct(groups: Ints) -> Ints:
    """Return the distinct values of a sorted array."""
    if not len(groups):
        return groups
    starts = np.ones(len(groups), dtype=np.bool_)
    starts[1:] = groups[1:] != groups[:-1]
    return groups[starts]


def steps_of(groups: Ints) -> Steps | None:
    """Return the distinct values of a sorted array as progressions; None where that takes too many numbers."""
    values = distinct(groups)
    if len(values) > MOST_GROUPS:
        return None
    steps: list[tuple[int, int, int]] = []
    at = 0
    while at < len(values):
        if len(steps) == MOST_STEPS:
            return None
        if at + 1 == len(values):
            steps.append((int(values[at]), 1, 1))
            break
        step = int(values[at + 1]) - int(values[at])  # int(): a difference of two int64 may not be one
        if step > MOST_STEP:
            steps.append((int(values[at]), 1, 1))
            at += 1
            continue
        until = at + 1
        while until + 1 < len(values) and int(values[until + 1]) - int(values[until]) == step:
            until += 1
        steps.append((int(values[at]), step, until - at + 1))
        at = until + 1
    return tuple(steps)


def groups_in(steps: Steps) -> Ints:
    """Return the values of progressions, ascending."""
    return joined(np.arange(count, dtype=np.int64) * step + first for first, step, count in steps)


def joined(arrays: Iterable[Ints]) -> Ints:
    """Return the arrays one after another; without any, an empty array."""
    listed = list(arrays)
    return np.concatenate(listed) if listed else np.empty(0, dtype=np.int64)
