"""An aggregate that Penstock does not have, by its cell and one line of the table (decision 204)."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from operator import xor

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadExpression
from penstock.graph.aggregates import Aggregate, AggregateKind
from penstock.operators.aggregates import AggregatePlan, Rows
from penstock.operators.aggregates.cells import InvertibleCell, Partials, values_of
from penstock.operators.aggregates.kinds import ONE_CELL
from penstock.operators.aggregates.one_cell import OneCell
from penstock.state.keys import Ints

BITS = AggregateKind.MIN
"""The kind whose line the tests replace: an enum takes no member at run time."""


class Xor(InvertibleCell):
    """The bits that an odd number of values has; a value takes itself off."""

    __slots__ = ()
    types = (pa.int64(),)

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        return self._by_group(values_of(self.read(rows)).astype(np.int64), ids, groups)

    def merge(self, partials: Partials, ids: Ints, groups: int, sign: Ints | None = None) -> Partials:
        return self._by_group(partials[self.columns[0]], ids, groups)

    def _by_group(self, numbers: Ints, ids: Ints, groups: int) -> Partials:
        bits = np.zeros(groups, dtype=np.int64)
        np.bitwise_xor.at(bits, ids, numbers)
        return {self.columns[0]: bits}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = OneCell(part="bits", cell=Xor, accepts=pa.types.is_integer, refused="which has no bits", kept="bits of {}")
    monkeypatch.setitem(ONE_CELL, BITS, made)  # type: ignore[arg-type] - a Mapping for everybody else


def planned(kind: pa.DataType) -> AggregatePlan:
    """Return the plan of the bits of v."""
    return AggregatePlan.build({"bits": Aggregate(BITS, "v")}, {"bits": kind})


@settings(max_examples=examples(20), deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**40)), min_size=1), at=st.integers(0, 50))
def test_results_are_those_of_the_model_however_rows_are_cut(rows: list[tuple[int, int]], at: int) -> None:
    """1.6, 3.3: of two pieces that are merged, and with one of them taken off again."""
    plan, model, all_rows = planned(pa.int64()), defaultdict[int, list[int]](list), [*rows, (0, 0), (1, 0), (2, 0)]
    for group, value in all_rows:
        model[group].append(value)
    pieces = [[*piece, (0, 0), (1, 0), (2, 0)] for piece in (all_rows[:at], all_rows[at:])]
    partials = [
        plan.reduce(
            Rows({"_in0": pa.array([value for _, value in piece], pa.int64())}, np.zeros(len(piece), dtype=np.int64)),
            np.array([group for group, _ in piece]),
            3,
        )
        for piece in pieces
    ]
    ids = np.tile(np.arange(3), 2)
    both = {name: np.concatenate([partials[0][name], partials[1][name]]) for name in partials[0]}
    merged = plan.merge(both, ids, 3)
    (results,) = plan.results(merged)
    assert results.to_pylist() == [reduce(xor, model[group]) for group in range(3)]
    again = {name: np.concatenate([merged[name], partials[0][name]]) for name in merged}
    (rest,) = plan.results(plan.merge(again, ids, 3, np.repeat([1, -1], 3)))
    assert rest.to_pylist() == [reduce(xor, [v for g, v in pieces[1] if g == group]) for group in range(3)]


def test_the_plan_says_what_the_line_says() -> None:
    """3.3: the type of the result, whether rows can leave, and what the layout has."""
    (bits,) = planned(pa.int32()).aggregates
    assert (bits.result, bits.exact_inverse, bits.values_kept) == (pa.int32(), True, "bits of int32")
    with pytest.raises(BadExpression, match=r"bits = min\(v\) reads string, which has no bits"):
        planned(pa.string())
