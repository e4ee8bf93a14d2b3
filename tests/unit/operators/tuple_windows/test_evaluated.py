"""The windows of a batch are the same by blocks of any size."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.tuple_windows.evaluated import evaluated_windows
from penstock.operators.tuple_windows.rounds import NEVER, KeyRows, Rounds


def listed(rows: KeyRows, rounds: Rounds, most: int) -> list[tuple[int, int, list[int], list[int]]]:
    """Return key, round, members and rows that left of each window."""
    made = []
    for block in evaluated_windows(rows, rounds, with_gone=True, most=most):
        for at, (key, number) in enumerate(zip(block.keys.tolist(), block.rounds.tolist(), strict=True)):
            members = block.members[block.starts[at] : block.starts[at + 1]].tolist()
            gone = block.gone[block.gone_starts[at] : block.gone_starts[at + 1]].tolist()
            made.append((key, number, members, gone))
            assert bool(block.fired[at]) is bool(members)
    return made


@settings(max_examples=examples(40), deadline=None)
@given(
    given_rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 6) | st.just(NEVER))),
    last=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    most=st.integers(1, 30),
)
def test_windows_by_blocks_equal_a_loop(given_rows: list[tuple[int, int, int]], last: list[int], most: int) -> None:
    """5.1: a row is in the rounds from `enter` on before `leave`, and leaves once; those of a key come in order."""
    given_rows = sorted(given_rows, key=lambda row: row[0])
    ids, enter, leave = (np.array([row[place] for row in given_rows], dtype=np.int64) for place in range(3))
    rows = KeyRows(ids, ids, np.zeros(len(ids), dtype=np.bool_), 4)
    rounds = Rounds(enter=enter, leave=leave, last=np.array(last))
    expected = []
    for key in range(4):
        for number in range(1, last[key] + 1):
            mine = [(at, *row[1:]) for at, row in enumerate(given_rows) if row[0] == key]
            members = [at for at, since, until in mine if since <= number < until]
            gone = [at for at, since, until in mine if max(since, until) == number]
            if members or gone:
                expected.append((key, number, members, gone))
    assert listed(rows, rounds, most) == expected
