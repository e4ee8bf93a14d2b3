"""Sketches of different values: how far an estimate is, and what no cut into batches changes (SEMANTICS 1.6, 3.3)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from datasketches import compact_theta_sketch
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.aggregates import Rows
from penstock.operators.aggregates.theta import ThetaSketches, count_of_sketches

CELL = ThetaSketches(("sketch",), "v", pa.int64())


def sketched(values: list[int | None], ids: list[int], groups: int) -> pa.Array:
    """Return the sketches of values, each in its group."""
    rows = Rows({"v": pa.array(values, pa.int64())}, np.zeros(len(values), dtype=np.int64))
    return CELL.reduce(rows, np.array(ids, dtype=np.int64), groups)["sketch"]


def united(sketches: list[pa.Array], ids: list[int], groups: int) -> pa.Array:
    """Return the sketches of groups, of partials one after the other."""
    return CELL.merge({"sketch": pa.concat_arrays(sketches)}, np.array(ids, dtype=np.int64), groups)["sketch"]


@pytest.mark.parametrize("distinct", [1000, 1024, 5000, 200_000])
def test_many_values_are_counted_within_some_percent(distinct):
    """3.3: exactly up to 1,024; then with a standard error of 3.1%, here within four of them."""
    values = list(range(distinct)) * 2
    half = sketched(values[: distinct + 1], [0] * (distinct + 1), 1)
    rest = sketched(values[distinct + 1 :], [0] * (distinct - 1), 1)
    (counted,) = count_of_sketches(united([half, rest], [0, 0], 1)).to_pylist()
    assert abs(counted - distinct) <= (0 if distinct <= 1024 else 0.125 * distinct)


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data(), different=st.sampled_from([3, 1000, 1025, 1500, 4000]))
def test_a_sketch_is_the_same_however_its_rows_are_cut(data, different):
    """1.6, 10.3: to the byte, in any order of rows and of merges, so that a diff of equal state is empty."""
    drawn = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = drawn.integers(0, different, 3 * different).tolist()
    whole = sketched(values, [0] * len(values), 1)
    shuffled = drawn.permutation(values).tolist()
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4))), len(values)]
    parts = [sketched(shuffled[start:end], [0] * (end - start), 1) for start, end in pairwise(cuts)]
    merged = parts[0]
    for part in parts[1:]:
        merged = united([part, merged], [0, 0], 1)
    assert merged.equals(whole)
    assert united(parts[::-1], [0] * len(parts), 1).equals(whole)


def test_each_group_has_its_own_and_one_without_values_has_none():
    """3.3: nulls are left out; a group of nulls, or without rows, counts 0."""
    sketches = sketched([7, None, 7, 8, None], [2, 2, 0, 2, 3], 5)
    assert count_of_sketches(sketches).to_pylist() == [1, 0, 2, 0, 0]
    assert [sketch is None for sketch in sketches.to_pylist()] == [False, True, False, True, True]
    assert count_of_sketches(united([sketches, sketches], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 3)).to_pylist() == [2, 2, 0]


def test_other_programs_read_the_sketches():
    """3.3: they are compact theta sketches of Apache DataSketches, with its default seed, and bounds of the estimate."""
    (stored,) = sketched(list(range(50_000)), [0] * 50_000, 1).to_pylist()
    sketch = compact_theta_sketch.deserialize(stored)
    assert sketch.get_lower_bound(3) <= 50_000 <= sketch.get_upper_bound(3)
    assert len(stored) <= 8 * 1024 + 24
