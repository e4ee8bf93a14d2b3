"""Spans that touch, and numbers for those that are new, against plain Python (SEMANTICS 3)."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.sessions.session_spans import free_slots, merged_spans

SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(-30, 30), st.integers(1, 12)), max_size=14)


def columns(rows: list[tuple[int, ...]], width: int = 3) -> list[np.ndarray]:
    """Return a numpy column for each place of the rows."""
    return [np.array([row[n] for row in rows], dtype=np.int64) for n in range(width)]


def one_by_one(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the merged spans of each owner, in order: the next one joins where it starts at or before the end."""
    merged: list[tuple[int, int, int]] = []
    for owner, start, length in sorted(rows):
        if merged and merged[-1][0] == owner and start <= merged[-1][2]:
            merged[-1] = (owner, merged[-1][1], max(merged[-1][2], start + length))
        else:
            merged.append((owner, start, start + length))
    return merged


@settings(max_examples=examples(100))
@given(SPANS)
def test_spans_that_touch_are_one(rows):
    """3: merged while t <= end of the other, whatever the order of the rows."""
    owners, starts, lengths = columns(rows)
    spans = merged_spans(owners, starts, starts + lengths)
    merged = list(zip(spans.owners.tolist(), spans.starts.tolist(), spans.ends.tolist(), strict=True))
    assert merged == one_by_one(rows)
    for number, row in zip(spans.ids.tolist(), rows, strict=True):
        owner, start, end = merged[number]
        assert (owner, True, True) == (row[0], start <= row[1], row[1] + row[2] <= end)
    assert (starts[spans.first] == spans.starts).all()


@pytest.mark.parametrize("factor", [1, 2**15 + 1, 2**31 + 1, 2**47 + 1], ids=["1", "2", "3", "4"])
@settings(max_examples=examples(25))
@given(rows=SPANS)
def test_spans_in_order_of_time_are_sorted_by_their_owners_alone(factor: int, rows) -> None:
    """Owners of any size, which take 1 to 4 digits of 16 bits: the same spans as by both."""
    rows = sorted(((owner * factor, start, length) for owner, start, length in rows), key=lambda row: row[1])
    owners, starts, lengths = columns(rows)
    spans = merged_spans(owners, starts, starts + lengths)
    assert list(zip(spans.owners.tolist(), spans.starts.tolist(), spans.ends.tolist(), strict=True)) == one_by_one(rows)


@settings(max_examples=examples(50))
@given(SPANS, st.integers(0, 14))
def test_merging_by_pieces_gives_the_same(rows, cut):
    """DESIGN 6: tasks merge what they have, and the state partition merges that."""
    pieces = [merged_spans(o, s, s + n) for o, s, n in (columns(rows[:cut]), columns(rows[cut:]))]
    again = merged_spans(
        *(np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("owners", "starts", "ends"))
    )
    assert list(zip(again.owners, again.starts, again.ends, strict=True)) == one_by_one(rows)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 0, 5), (0, 5, 5)], [(0, 0, 10)]),
        ([(0, 0, 5), (0, 6, 5)], [(0, 0, 5), (0, 6, 11)]),
        ([(0, 0, 5), (1, 5, 5)], [(0, 0, 5), (1, 5, 10)]),
        ([(0, -7, 3), (0, -4, 4)], [(0, -7, 0)]),
        ([(0, 0, 100), (0, 3, 2), (0, 50, 60)], [(0, 0, 110)]),
        ([], []),
    ],
    ids=["touching", "a microsecond apart", "other keys", "before 1970", "one holds another", "none"],
)
def test_worked_spans(spans, expected):
    """3: touching merges; a longer gap of an earlier row reaches over later ones."""
    owners, starts, lengths = columns(spans)
    made = merged_spans(owners, starts, starts + lengths)
    assert list(zip(made.owners, made.starts, made.ends, strict=True)) == expected


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 9)), max_size=12))
def test_new_sessions_take_free_numbers(drawn):
    """A session keeps its number while it is open, and no two of a key have one."""
    held: set[tuple[int, int]] = set()
    rows = []
    for owner, slot in sorted(drawn, key=lambda pair: pair[0]):
        taken = slot is None or (owner, slot) in held
        held |= set() if taken else {(owner, slot)}
        rows.append((owner, -1 if taken else slot))
    owners, slots = columns(rows, 2)
    filled = free_slots(owners, slots)
    assert len({*zip(owners.tolist(), filled.tolist(), strict=True)}) == len(rows)
    assert all(was in (-1, now) and now >= 0 for was, now in zip(slots.tolist(), filled.tolist(), strict=True))
    assert filled.max(initial=0) <= max(slots.max(initial=0), len(rows))
