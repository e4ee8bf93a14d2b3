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

    Cases are drawn first, and groups from what is left: a test with both marks must be drawn by both. Tests with the
    same cases keep the same ones, so that what a fixture makes for a case serves all of them.
    Raises ValueError where members of one group name different numbers.
    """
    cases: dict[str, list[Marked]] = {}
    groups: dict[str, list[Marked]] = {}
    for mark in marked:
        if mark.group is None:
            cases.setdefault(mark.test.partition("[")[0], []).append(mark)
        else:
            groups.setdefault(mark.group, []).append(mark)
    gone: set[str] = set()
    for members in cases.values():
        gone |= _not_drawn(members, seed)
    for name, members in groups.items():
        if len({mark.count for mark in members}) > 1:
            raise ValueError(f"tests of {name} are marked sample with different numbers")
        gone |= _not_drawn([mark for mark in members if mark.test not in gone], seed)
    return gone


def _not_drawn(members: list[Marked], seed: int) -> set[str]:
    members = sorted(members, key=lambda mark: _place(mark, seed))
    return {mark.test for mark in members[members[0].count :]} if members else set()


def _place(mark: Marked, seed: int) -> float:
    drawn_by = mark.test if mark.group else mark.test.partition("[")[2]
    return random.Random(f"{seed} {drawn_by}").random()
