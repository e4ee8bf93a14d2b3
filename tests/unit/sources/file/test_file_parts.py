"""Shares divide the bytes of a batch, rules judge the columns of a file."""

from __future__ import annotations

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SourceUnavailable
from penstock.graph.policies import OnMissingColumn, OnNewColumn
from penstock.sources.file.parts import ColumnRules, Share, Unreadable, unreadable


@settings(max_examples=examples(100))
@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=9), st.integers(1, 12), st.integers(1, 9))
def test_each_piece_of_a_batch_is_in_one_share_in_order(lengths: list[int], splits: int, pieces: int) -> None:
    """Whole files by their middle, pieces by theirs; the split of a piece is one that opens the file."""
    start, owners = 0, []
    for length in lengths:
        shares = [Share(start, length, sum(lengths), split, splits) for split in range(splits)]
        for piece in range(pieces):
            (owner,) = [share for share in shares if share.has(2 * piece + 1, 2 * pieces)]
            assert owner.has_any
            owners.append(owner.split)
        assert sum(share.has_whole for share in shares) == 1
        assert all(share.has_any for share in shares if share.has_whole)
        start += length
    assert owners == sorted(owners)


def test_a_column_that_is_there_twice_is_no_column() -> None:
    """Nobody knows which is meant, whatever the rules."""
    rules = ColumnRules(OnNewColumn.IGNORE, OnMissingColumn.NULLS)
    with pytest.raises(Unreadable, match="'k' is there twice"):
        rules.judged(["k", "v", "k"], pa.schema([("k", pa.int64())]))
    assert rules.judged(["w", "k"], pa.schema([("v", pa.int64()), ("k", pa.int64())])) == ["k"]


def test_what_arrow_says_is_unreadable_and_other_trouble_is_not() -> None:
    """A server that is away says nothing of a file."""
    for error in (pa.ArrowInvalid("no"), OSError("no"), EOFError("no"), KeyError("no")):
        with pytest.raises(Unreadable) as raised, unreadable(lambda: 7):
            raise error
        assert raised.value.row == 7
    with pytest.raises(SourceUnavailable), unreadable(lambda: 0):
        raise SourceUnavailable("away")
