"""Draw which of the tests marked `sample` a run tries (decision 88)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Marked", "left_out"]


class Marked(NamedTuple):
    """A test with the mark: how many of its group a run tries; without a group, how many of its own cases."""

    test: str
    """What pytest calls it, with the case in brackets."""
    count: int
    group: str | None = None


def left_out(marked: Iterable[Marked], seed: int) -> set[str]:
    """Return the tests that a run with this seed does not try.

    Tests with the same cases keep the same ones, so that what a fixture makes for a case serves all of them.
    Raises ValueError where members of one group name different numbers.
    """
    groups: dict[str, list[Marked]] = {}
    for one in marked:
        groups.setdefault(one.group or one.test.partition("[")[0], []).append(one)
    found: set[str] = set()
    for name, members in groups.items():
        if len({one.count for one in members}) > 1:
            raise ValueError(f"tests of {name} are marked sample with different numbers")
        members.sort(key=lambda one: _place(one, seed))
        found |= {one.test for one in members[members[0].count :]}
    return found


def _place(one: Marked, seed: int) -> float:
    drawn_by = one.test if one.group else one.test.partition("[")[2]
    return random.Random(f"{seed} {drawn_by}").random()
