"""Rows that a window keeps one by one: their order, their bound, and what equal ones do (SEMANTICS 1.6, 3.3)."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg
from penstock.errors import AccumulatorTooLarge, BadExpression, JobError
from penstock.graph.aggregates import Aggregate
from penstock.operators.aggregates import AggregatePlan, Rows

NAN, INF = float("nan"), float("inf")
TOP = pa.struct([("by", pa.float64()), ("value", pa.string())])


def plan_of(kind: pa.DataType, **aggregates: Aggregate) -> AggregatePlan:
    return AggregatePlan.build(aggregates, dict.fromkeys(aggregates, kind))


def reduced(plan: AggregatePlan, values: list, kind: pa.DataType, places: list[tuple[int, ...]]) -> dict:
    """Return the partials of one group."""
    none = np.zeros(len(values), dtype=np.int64)
    order = tuple(np.array([place[part] for place in places], dtype=np.int64) for part in range(4))
    return plan.reduce(Rows({"_in0": pa.array(values, kind)}, none, order), none, 1)


def merged(plan: AggregatePlan, parts: list[dict]) -> list:
    """Return the results of one group that was reduced in parts."""
    tables = [pa.table(plan.arrays_of(part), names=[f.name for f in plan.fields]) for part in parts]
    partials = plan.merge(plan.partials_of(pa.concat_tables(tables)), np.zeros(len(parts), dtype=np.int64), 1)
    return [column[0].as_py() for column in plan.results(partials)]


def whole(aggregate: Aggregate, values: list, kind: pa.DataType) -> list:
    """Return the result of values that have come in this order, reduced at once."""
    plan = plan_of(kind, x=aggregate)
    return merged(plan, [reduced(plan, values, kind, [(0, 0, 0, n) for n in range(len(values))])])[0]


@settings(max_examples=examples(60))
@given(data=st.data())
def test_order_is_that_of_arrival_however_rows_were_cut_and_merged(data):
    """1.6: batch, source, partition, position; parts that come in any order give one result."""
    place = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1), st.integers(0, 20))
    places = data.draw(st.lists(place, min_size=1, max_size=20, unique=True))
    numbers = st.none() | st.sampled_from([NAN, INF, 0.0, -0.0, 1.0, -1.0])
    rows = [{"by": data.draw(numbers), "value": data.draw(st.none() | st.sampled_from("abc"))} for _ in places]
    bounds = sorted({0, *data.draw(st.lists(st.integers(1, len(rows)), max_size=4))})
    k = data.draw(st.integers(1, 5))
    plan = plan_of(TOP, all=agg.collect("v", limit=20), top=agg.top_k("w", k, by="d"))
    same = AggregatePlan.read(plan.described())
    assert same.cells == plan.cells
    source = {a.name: a.source for a in plan.aggregates}
    parts = []
    for lo, hi in pairwise([*bounds, len(rows)]):
        none = np.zeros(hi - lo, dtype=np.int64)
        order = tuple(np.array([p[part] for p in places[lo:hi]], dtype=np.int64) for part in range(4))
        column = pa.array(rows[lo:hi], TOP)
        parts.append(plan.reduce(Rows(dict.fromkeys(source.values(), column), none, order), none, 1))
    arrived = [row for _, row in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])]
    ranked = sorted(
        (row for row in arrived if row["by"] is not None),
        key=lambda row: (row["by"] == row["by"], 0.0 if row["by"] != row["by"] else -row["by"]),
    )
    everything, top = merged(plan, data.draw(st.permutations(parts)))
    assert repr(everything) == repr(arrived)
    assert top == [row["value"] for row in ranked[:k]]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "a", "b", "é"]),
        (pa.int8(), [-128, 0, 127, None]),
        (pa.decimal128(10, 2), [Decimal("-1.00"), Decimal("0.50"), Decimal(3), None]),
        (pa.bool_(), [False, True]),
        (pa.binary(), [b"", b"\x00", b"\xff"]),
    ],
    ids=str,
)
def test_whatever_has_an_order_can_be_compared(kind, values):
    """3.3: the greatest first, and rows without a value are left out."""
    rows = [{"by": value, "value": n} for n, value in enumerate(values)]
    compared = len(values) - values.count(None)
    found = whole(agg.top_k("n", 9, by="v"), rows, pa.struct([("by", kind), ("value", pa.int64())]))
    assert found == list(range(compared))[::-1]


def test_nothing_to_keep_is_an_empty_list():
    """3.3: as collect_list of Spark has it."""
    assert whole(agg.collect("v", limit=1), [None, None], pa.int64()) == []
    assert whole(agg.top_k("w", 1, by="d"), [{"by": None, "value": "x"}], TOP) == []
    assert whole(agg.top_k("w", 1, by="d"), [{"by": 0.0, "value": None}], TOP) == [None]


def test_values_over_the_limit_are_refused_where_they_are_kept():
    """Issue 20: an accumulator over its limit is stopped with a named error, in one part of the rows or in several."""
    assert whole(agg.collect("v", limit=3), [1, None, 2, 3], pa.int64()) == [1, 2, 3]
    with pytest.raises(AccumulatorTooLarge, match="its limit is 3"):
        whole(agg.collect("v", limit=3), [1, 2, 3, 4], pa.int64())
    plan = plan_of(pa.int64(), x=agg.collect("v", limit=3))
    parts = [reduced(plan, [1, 2], pa.int64(), [(n, 0, 0, 0), (n, 0, 0, 1)]) for n in range(2)]
    with pytest.raises(AccumulatorTooLarge, match="limit"):
        merged(plan, parts)


def test_two_limits_of_one_expression_keep_its_values_once():
    """DESIGN 6: state holds what is needed once; each aggregate has its own limit."""
    plan = plan_of(pa.int64(), few=agg.collect("v", limit=2), many=agg.collect("v", limit=5))
    assert [f.name for f in plan.fields] == ["_rows", "_items_v"]
    place = [(0, 0, 0, n) for n in range(3)]
    with pytest.raises(AccumulatorTooLarge, match=r"few = collect\(v, limit=2\)"):
        merged(plan, [reduced(plan, [1, 2, 3], pa.int64(), place)])
    assert merged(plan, [reduced(plan, [1, 2], pa.int64(), place[:2])]) == [[1, 2], [1, 2]]


def test_another_k_keeps_rows_of_its_own():
    """DESIGN 6: the greatest five are not among the greatest two, which an older state has kept."""
    plan = plan_of(TOP, two=agg.top_k("w", 2, by="d"), five=agg.top_k("w", 5, by="d"))
    assert len(plan.fields) == 3
    assert len(set(plan.item_lists)) == 2
    assert plan.needs_order
    assert not plan.exact_inverse


def test_rows_without_arrival_order_are_refused():
    """1.6: what depends on order sorts by it."""
    plan = plan_of(pa.int64(), x=agg.collect("v", limit=1))
    none = np.zeros(1, dtype=np.int64)
    with pytest.raises(ValueError, match="arrival order"):
        plan.reduce(Rows({"_in0": pa.array([1])}, none), none, 1)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None, 1_000_001], ids=repr)
def test_a_size_is_a_whole_number(size):
    """API: refused where the job is written."""
    with pytest.raises(JobError, match="limit"):
        agg.collect("v", limit=size)
    with pytest.raises(JobError, match="k of"):
        agg.top_k("v", size, by="v")


def test_what_is_compared_has_an_order():
    """API: refused when the job is bound, and by the words of the job."""
    with pytest.raises(JobError, match="column or an expression"):
        agg.top_k("v", 1, by=" ")
    with pytest.raises(BadExpression, match=r"x = top_k\(w, 3, by=d\) compares list"):
        plan_of(pa.struct([("by", pa.list_(pa.int8())), ("value", pa.int8())]), x=agg.top_k("w", 3, by="d"))


def test_whether_an_input_may_be_null_makes_no_difference():
    """API: a literal or a coalesce is no other type than a column, for Spark's words of it."""
    strict = pa.struct([pa.field("by", pa.float64(), nullable=False), pa.field("value", pa.string(), nullable=False)])
    plan = plan_of(strict, all=agg.collect("v", limit=5), top=agg.top_k("w", 1, by="1"))
    assert plan.fields == plan_of(TOP, all=agg.collect("v", limit=5), top=agg.top_k("w", 1, by="1")).fields
    for kind in (TOP, strict):
        column, none = pa.array([{"by": 1.0, "value": "x"}], kind), np.zeros(1, dtype=np.int64)
        inputs = {str(a.source): column for a in plan.aggregates}
        part = plan.reduce(Rows(inputs, none, (none,) * 4), none, 1)
        assert merged(plan, [part]) == [[{"by": 1.0, "value": "x"}], ["x"]]
