"""Rows of a table are matched by their keys, in the order of their values (SEMANTICS 1.6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock.operators import static_index
from penstock.operators.static_index import StaticIndex, fingerprint, ordered
from tests.support.examples import examples

NAN = float("nan")
_keys = st.lists(
    st.tuples(st.sampled_from([1.0, 2.0, 0.0, -0.0, NAN, None]), st.sampled_from(["a", "b", None])), max_size=12
)


def columns(keys: Sequence[tuple[float | None, str | None]]) -> list[pa.Array]:
    """Return two key columns."""
    return [pa.array([k for k, _ in keys], pa.float64()), pa.array([s for _, s in keys], pa.string())]


def same(key: tuple[float | None, str | None], other: tuple[float | None, str | None]) -> bool:
    """Return whether two keys match."""
    if None in key or None in other:
        return False
    number, also = key[0], other[0]
    assert number is not None
    assert also is not None
    return key[1] == other[1] and (number == also or (math.isnan(number) and math.isnan(also)))


def pairs(index: StaticIndex, keys: list[pa.Array], *, outer: bool) -> list[tuple[int, int]]:
    """Return all matches."""
    made: list[tuple[int, int]] = []
    for mine, theirs in index.matches(keys, np.ones(len(keys[0]), dtype=np.int64), outer=outer):
        made += zip(mine.tolist(), theirs.tolist(), strict=True)
    return made


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(table=_keys, rows=_keys, outer=st.booleans(), most=st.sampled_from([1, 3, 65_536]))
def test_matches_are_those_of_a_look_at_all(table: Any, rows: Any, outer: bool, most: int) -> None:  # noqa: FBT001
    """Each once, by row and then in the order of the table, whatever the pieces; null matches nothing."""
    index = StaticIndex(pa.table([*columns(table), pa.array(range(len(table)))], names=["k", "s", "n"]), ["k", "s"])
    expected = []
    for mine, key in enumerate(rows):
        fits = [theirs for theirs, other in enumerate(table) if same(key, other)]
        expected += [(mine, theirs) for theirs in (fits or ([-1] if outer else []))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_index, "_MOST_PAIRS", most)
        patch.setattr(static_index, "_MOST_BYTES", 50 * most)
        assert pairs(index, columns(rows), outer=outer) == expected


def test_a_key_with_many_matches_comes_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes: 100,000 rows of the table are not copied at once for one row of a stream."""
    monkeypatch.setattr(static_index, "_MOST_BYTES", 1 << 20)
    index = StaticIndex(pa.table({"k": ["a"] * 100_000, "v": ["x" * 50] * 100_000}), ["k"])
    made = list(index.matches([pa.array(["a"])], np.ones(1, dtype=np.int64), outer=False))
    assert sum(len(mine) for mine, _ in made) == 100_000
    assert len(made) > 4
    assert np.array_equal(np.concatenate([theirs for _, theirs in made]), np.arange(100_000))


def test_keys_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys themselves decide."""
    monkeypatch.setattr(static_index, "content_hashes", lambda _columns, rows: np.zeros(rows, dtype=np.int64))
    index = StaticIndex(pa.table({"k": ["a", "b", "a"]}), ["k"])
    assert pairs(index, [pa.array(["b", "a", "c"])], outer=False) == [(0, 1), (1, 0), (1, 2)]


def test_a_fingerprint_is_of_rows_in_any_order() -> None:
    """Of their columns, types and values; the order of the rows follows from their values."""
    table = pa.table({"k": ["b", "a", None], "v": [1.5, NAN, 2.0], "l": [[1], [2], None]})
    turned = table.take(pa.array([2, 0, 1]))
    assert fingerprint(table) == fingerprint(turned)
    assert ordered(table).to_pylist()[0]["k"] == "a"
    assert [row["k"] for row in ordered(table).to_pylist()] == [row["k"] for row in ordered(turned).to_pylist()]
    others = [
        table.slice(1),
        pa.concat_tables([table, table]),
        table.rename_columns(["k", "w", "l"]),
        table.set_column(0, "k", pa.array(["b", "a", "c"])),
        table.set_column(0, "k", table["k"].cast(pa.large_string())),
    ]
    assert len({fingerprint(other) for other in [table, *others]}) == 6
