"""Groups of rows by slice and key, where hashes may collide and keys may be null, NaN or nested (DESIGN 6)."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators import grouping
from penstock.operators.grouping import group_rows, group_runs
from penstock.state import key_codes

KEYS = {
    pa.int64(): st.sampled_from([0, 1, -(2**63), None]),
    pa.int32(): st.sampled_from([0, 1, -1]),
    pa.float64(): st.sampled_from([0.0, 1.5, float("nan"), float("inf"), None]),
    pa.string(): st.sampled_from(["", "a", "ab", None]),
    pa.bool_(): st.sampled_from([True, False, None]),
    pa.timestamp("us", tz="UTC"): st.sampled_from([datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC)]),
    pa.decimal128(5, 2): st.sampled_from([1, 2, None]),
    pa.null(): st.none(),
    pa.struct([("x", pa.float64()), ("y", pa.list_(pa.int64()))]): st.sampled_from(
        [{"x": float("nan"), "y": [1]}, {"x": float("nan"), "y": [1, 2]}, {"x": 1.0, "y": None}, None]
    ),
}


@pytest.mark.sample(9)
@pytest.mark.fault("F43")
@settings(max_examples=examples(16))
@pytest.mark.parametrize("kind", KEYS, ids=str)
@pytest.mark.parametrize("hashes", [1, 2, 1000], ids=lambda n: f"{n} hashes")
@given(data=st.data())
def test_rows_of_equal_key_and_slice_are_one_group_and_others_never(kind, hashes, data):
    """DESIGN 6: a hash collision is correct; 3.4: null is a key of its own, NaN equals NaN."""
    rows = data.draw(st.lists(st.tuples(KEYS[kind], st.integers(0, 2), st.integers(-1, 1)), max_size=12))
    exact = [(repr(key), extra, start) for key, extra, start in rows]
    hashed = np.array([hash((key, extra)) % hashes for key, extra, _ in exact], dtype=np.int64)
    starts = np.array([start for _, _, start in rows], dtype=np.int64)
    columns = [pa.array([key for key, _, _ in rows], kind), pa.array([extra for _, extra, _ in rows], pa.int64())]
    grouped = group_rows(columns, hashed, starts)
    assert len(set(zip(grouped.ids.tolist(), exact, strict=True))) == len(set(exact)) == grouped.groups
    assert [exact.index(exact[row]) for row in grouped.first] == grouped.first.tolist()
    assert grouped.ids[grouped.first].tolist() == list(range(grouped.groups))
    order = [(starts[row], hashed[row]) for row in grouped.first]
    assert order == sorted(order)
    whole = group_rows(columns, hashed)
    assert len({(i, e[:2]) for i, e in zip(whole.ids.tolist(), exact, strict=True)}) == whole.groups


@settings(max_examples=examples(16))
@pytest.mark.parametrize("kind", KEYS, ids=str)
@pytest.mark.parametrize("hashes", [2, 1000], ids=lambda n: f"{n} hashes")
@given(data=st.data())
def test_runs_of_distinct_keys_have_the_groups_of_their_rows(kind, hashes, data):
    """DESIGN 6: whether a key is in each run or in one, and whether two keys share a hash in one run or across two."""
    drawn = [data.draw(st.lists(KEYS[kind], max_size=6, unique_by=repr)) for _ in range(3)]
    hashed = {repr(key): sum(map(ord, repr(key))) % hashes for run in drawn for key in run}
    runs = [sorted(run, key=lambda key: hashed[repr(key)]) for run in drawn]
    rows = [key for run in runs for key in run]
    numbers = np.array([hashed[repr(key)] for key in rows], dtype=np.int64)
    columns = [pa.array(rows, kind)]
    grouped = group_runs(columns, numbers, [len(run) for run in runs])
    expected = group_rows(columns, numbers)
    named = [[repr(rows[row]) for row in grouping.first[grouping.ids]] for grouping in (grouped, expected)]
    assert named[0] == named[1] == [repr(key) for key in rows]
    assert grouped.groups == expected.groups
    assert grouped.first.tolist() == [named[0].index(repr(rows[row])) for row in grouped.first]
    assert numbers[grouped.first].tolist() == sorted(numbers[grouped.first].tolist())


def test_slices_that_collide_with_hashes_are_told_apart():
    """DESIGN 6: what finds groups mixes hash and slice, and two pairs may give one mix."""
    golden = -7046029254386353131
    starts = np.array([0, 1], dtype=np.int64)
    hashes = np.array([golden, 0], dtype=np.int64)
    grouped = group_rows([pa.array([7, 7])], hashes, starts)
    assert grouped.groups == 2


@settings(max_examples=examples(40))
@pytest.mark.parametrize("kind", [pa.int8(), pa.int64()], ids=str)
@given(data=st.data(), soon=st.sampled_from([0, 1, 4]))
def test_whole_numbers_of_a_small_range_have_the_groups_of_their_hashes(kind, data, soon):
    """DESIGN 6: a table of the range gives the groups, and the order, of a table of hashes; also at the type's ends.

    So it does for keys that turn up soon and for those whose first row comes behind many others.
    """
    limits = np.iinfo(kind.to_pandas_dtype())
    least = data.draw(st.sampled_from([limits.min, -2, limits.max - 3]))
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-60, 0, 60, 120])), min_size=8))
    keys = pa.array([least + place for place, _ in rows], kind)
    hashes = np.array([place * 7919 % 5 - 2 for place, _ in rows], dtype=np.int64)
    for starts in (None, np.array([start for _, start in rows], dtype=np.int64)):
        with pytest.MonkeyPatch.context() as looking:
            looking.setattr(grouping, "_SOON", soon)
            ranged = group_rows([keys], hashes, starts)
        with pytest.MonkeyPatch.context() as without:
            without.setattr(grouping, "_places", lambda key, groups: None)
            expected = group_rows([keys], hashes, starts)
        assert (ranged.ids.tolist(), ranged.first.tolist()) == (expected.ids.tolist(), expected.first.tolist())


def test_rows_without_key_columns_are_one_group():
    """API: every keyed operator exists on a stream without keys too."""
    assert group_rows([], np.zeros(3, np.int64)).ids.tolist() == [0, 0, 0]


def test_a_collision_costs_the_rows_that_share_it(monkeypatch):
    """DESIGN 6: only keys of one hash are compared exactly, not the batch that they are in."""
    exact, numbered = grouping._exact_ids, []
    monkeypatch.setattr(grouping, "_exact_ids", lambda keys, *more: numbered.append(len(keys[0])) or exact(keys, *more))
    keys = np.arange(10_000, dtype=np.int64) % 5_000
    hashes = np.where(keys == 4_999, 7, keys)
    grouped = group_rows([pa.array(keys).cast(pa.string())], hashes)
    assert (grouped.groups, numbered) == (5_000, [4])
    assert len(set(zip(grouped.ids.tolist(), keys.tolist(), strict=True))) == 5_000


NESTED = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.struct([("z", pa.string())])))])
nested = st.none() | st.fixed_dictionaries(
    {
        "x": st.sampled_from([None, 0.0, float("nan"), 1.5]),
        "y": st.none()
        | st.lists(st.none() | st.fixed_dictionaries({"z": st.sampled_from([None, "", "a"])}), max_size=2),
    }
)


@given(st.lists(nested, max_size=30), st.integers(0, 3))
def test_nested_keys_are_told_apart_a_column_at_a_time(rows, skipped):
    """3.4: null, a struct of nulls, an empty list and a list of null are keys of their own; also in a slice."""
    column = pa.array(rows, NESTED).slice(skipped)
    rows = [repr(row) for row in column.to_pylist()]
    grouped = group_rows([column], np.zeros(len(rows), np.int64))
    assert len(set(zip(grouped.ids.tolist(), rows, strict=True))) == len(set(rows)) == grouped.groups


def test_no_object_is_made_of_a_struct_key(monkeypatch):
    """DESIGN 6: keys of structs and lists are compared by their columns."""
    monkeypatch.setattr(key_codes, "canonical", None)
    column = pa.array([{"x": n % 3, "y": [n % 2]} for n in range(60)])
    assert group_rows([column], np.zeros(60, np.int64)).groups == 6


def test_zeros_of_both_signs_are_one_in_a_nested_key():
    """DESIGN 6: one zero and one NaN, as Spark hashes them."""
    column = pa.array([{"x": 0.0}, {"x": -0.0}])
    assert group_rows([column], np.zeros(2, np.int64)).groups == 1
