"""Pairs within two bounds of time are those that a loop over all rows finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.interval_pairs import (
    Moments,
    newest,
    number_in_key,
    numbered,
    pairs_within,
    pieces,
    row_bytes,
    shifted,
    slice_start,
    slice_starts,
)

LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("seed", range(20))
def test_pairs_are_those_of_a_loop(seed: int) -> None:
    """In order, each once, whatever the pieces."""
    drawn = np.random.default_rng(seed)
    places = drawn.permutation(40) - 5
    rows, others = (
        Moments(drawn.integers(0, 4, len(mine)), drawn.integers(-9, 9, len(mine)), mine)
        for mine in (places[:15], places[15:])
    )
    bounds = tuple(sorted(drawn.integers(-6, 6, 2).tolist()))
    order = np.lexsort((others.places, others.times, others.ids))
    expected = [
        (mine, int(theirs))
        for mine in range(len(rows.ids))
        for theirs in order
        if others.ids[theirs] == rows.ids[mine]
        and bounds[0] <= others.times[theirs] - rows.times[mine] <= bounds[1]
        and others.places[theirs] < rows.places[mine]
    ]
    for most in (1, 7, 10_000):
        made = list(pairs_within(rows, others, order, (bounds[0], bounds[1]), most))
        assert all(0 < len(mine) == len(theirs) <= most for mine, theirs in made)
        pairs = [pair for mine, theirs in made for pair in zip(mine.tolist(), theirs.tolist(), strict=True)]
        assert pairs == expected


def test_rows_are_numbered_in_their_keys() -> None:
    """In their order."""
    assert number_in_key(np.array([2, 0, 2, 1, 2, 0])).tolist() == [0, 0, 1, 0, 2, 1]


def test_times_end_at_the_ends_of_time() -> None:
    """No shift and no slice is an overflow."""
    times = np.array([LEAST, -3, 0, MOST])
    assert shifted(times, MOST).tolist() == [-1, MOST - 3, MOST, MOST]
    assert shifted(times, -MOST).tolist() == [LEAST, LEAST, -MOST, 0]
    assert slice_starts(times, 2).tolist() == [LEAST + 2, -4, 0, MOST - 1]
    assert [slice_start(time, 2) for time in (LEAST * 2, -3, 0, MOST * 2)] == [LEAST + 2, -4, 0, MOST - 1]


def test_pieces_have_so_many_bytes_and_one_pair_more_at_most() -> None:
    """In order; a pair that is larger alone is a piece."""
    mine, theirs = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1])
    own, other = np.array([1, 500, 2]), np.array([3, 4])
    cut = [(left.tolist(), right.tolist()) for left, right in pieces(mine, theirs, own, other, 100)]
    assert [pair for left, right in cut for pair in zip(left, right, strict=True)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 1),
    ]
    assert [len(left) for left, _ in cut] == [2, 1, 2]


def test_a_row_has_the_bytes_of_its_text_and_a_mean_of_the_rest() -> None:
    """Null has none."""
    table = pa.table({"a": ["x" * 100, "", None], "n": pa.array([1, 2, 3], pa.int64())})
    sizes = row_bytes(table)
    assert (sizes[0] - sizes[1], sizes[1] - sizes[2]) == (100, 0)
    assert sizes[2] >= 8


def test_the_newest_of_equal_places_stays() -> None:
    """Rows of other keys, batches or numbers hide nothing; of none there is none."""
    ids, batches, numbers = (np.array(column) for column in ([0, 1, 0, 0, 0], [3, 3, 3, 4, 3], [5, 5, 5, 5, 6]))
    assert newest(ids, batches, numbers).tolist() == [False, True, True, True, True]
    assert newest(ids[:0], batches[:0], numbers[:0]).tolist() == []
    codes = numbered(ids, batches, numbers)
    assert sorted(codes.tolist()) == [0, 0, 1, 2, 3]
    assert codes[0] == codes[2]
