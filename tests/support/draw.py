"""Draw which of the tests marked `sample` a run tries (decision 88)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["LONGEST", "LONG_SECONDS", "Marked", "left_out"]


LONG_SECONDS = 120
"""What all long tests of a run may take in one worker: about a tenth of the time of all tests."""
LONGEST = 300
"""What one of them may take."""


class Marked(NamedTuple):
    """A test with the mark: how many of its group a run tries; without a group, how many of its own cases.

    A long test has `seconds` instead, which it takes on two cores beside other tests, with the start of its servers.
    """

    test: str
    """What pytest calls it, with the case in brackets."""
    count: int = 1
    group: str | None = None
    seconds: int | None = None


def left_out(marked: Iterable[Marked], seed: int) -> set[str]:
    """Return the tests that a run with this seed does not try.

    Cases are drawn first, and groups from what is left: a test with both marks must be drawn by both. Tests with the
    same cases keep the same ones, so that what a fixture makes for a case serves all of them. Of long tests it takes
    those that the seed draws first, and later ones that still fit into LONG_SECONDS. One that takes longer than that
    is tried alone, in runs whose seed draws it before all others.
    Raises ValueError where members of one group name different numbers, and for a test too long to be ever drawn.
    """
    cases: dict[str, list[Marked]] = {}
    groups: dict[str, list[Marked]] = {}
    long: list[Marked] = []
    for mark in marked:
        if mark.seconds is not None:
            long.append(mark)
        elif mark.group is None:
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
    return gone | _too_long(long, seed)


def _too_long(long: list[Marked], seed: int) -> set[str]:
    gone: set[str] = set()
    left = LONG_SECONDS
    for mark in sorted(long, key=lambda mark: _random(seed, mark.test)):
        assert mark.seconds is not None
        if mark.seconds > LONGEST:
            raise ValueError(f"{mark.test} takes {mark.seconds} s, and a long test may take {LONGEST}")
        if mark.seconds <= left or left == LONG_SECONDS:
            left -= mark.seconds
        else:
            gone.add(mark.test)
    return gone


def _not_drawn(members: list[Marked], seed: int) -> set[str]:
    members = sorted(members, key=lambda mark: _place(mark, seed))
    return {mark.test for mark in members[members[0].count :]} if members else set()


def _place(mark: Marked, seed: int) -> float:
    return _random(seed, mark.test if mark.group else mark.test.partition("[")[2])


def _random(seed: int, drawn_by: str) -> float:
    return random.Random(f"{seed} {drawn_by}").random()
