"""Aggregates against plain Python: rows reduced in any parts and merged give one answer (SEMANTICS 3.3)."""

from __future__ import annotations

import pickle
from datetime import UTC, date
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock import agg
from penstock.errors import BadExpression, IntegerOverflow
from penstock.graph.aggregates import Aggregate, AggregateKind
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import ROWS, AggregatePlan, Rows
from penstock.operators.aggregates.kinds import ONE_CELL
from penstock.operators.aggregates.wide import Wide, group_sum
from penstock.testing.model import WindowModel

ITEMS = (AggregateKind.COLLECT, AggregateKind.TOP_K, AggregateKind.ROWS, AggregateKind.CUSTOM)
KINDS = [kind for kind in AggregateKind if kind not in ITEMS]
ODD = [0.0, -0.0, 1e17, 1e17 + 16, -1e17, float("inf"), float("-inf"), float("nan"), 1e-300, 1.0]
DOUBLES = st.one_of(st.sampled_from(ODD), st.floats(-1e6, 1e6))
VALUES = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63) // 64, 2**63 // 64 - 1),
    pa.float64(): DOUBLES,
    pa.decimal128(10, 2): st.decimals(Decimal(-99999999), Decimal(99999999), places=2),
    pa.decimal128(38, 10): st.decimals(-(Decimal(10) ** 23), Decimal(10) ** 23, places=10),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(UTC)),
}
OF_ALL_TYPES = (AggregateKind.FIRST, AggregateKind.LAST, AggregateKind.COUNT)


def asked(kind: pa.DataType) -> dict[str, Aggregate]:
    """Return every aggregate that this type has, of the column v."""
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    of_one_cell = [k for k, of in ONE_CELL.items() if of.accepts(kind)]
    kinds = [*of_one_cell, *(k for k in (KINDS if numeric else OF_ALL_TYPES) if k not in ONE_CELL)]
    return {"rows": agg.count(), "collect": agg.collect("v", limit=25)} | {
        k.value: Aggregate(k, "v", 0.4 if k is AggregateKind.APPROX_QUANTILE else None) for k in kinds
    }


def built(aggregates: dict[str, Aggregate], kind: pa.DataType) -> AggregatePlan:
    return AggregatePlan.build(aggregates, {n: None if a.expression is None else kind for n, a in aggregates.items()})


def given_rows(rows: list[dict], kind: pa.DataType, lo: int, hi: int) -> Rows:
    """Return some of the rows, in an order of arrival that repeats none of its parts alone."""
    return Rows(
        inputs={"_in0": pa.array([row["v"] for row in rows[lo:hi]], kind)},
        times=np.array([row["t"] for row in rows[lo:hi]], np.int64),
        order=tuple(np.array([n // w % m for n in range(lo, hi)]) for w, m in ((27, 99), (9, 3), (3, 3), (1, 3))),
    )


def engine(plan: AggregatePlan, kind: pa.DataType, rows: list[dict], bounds: list[int]) -> dict[int, dict]:
    """Reduce each part between bounds, merge the parts' partials, and return the results by group."""
    names = [field.name for field in plan.fields]
    parts, groups = [], []
    for lo, hi in pairwise([0, *bounds, len(rows)]):
        if lo == hi:
            continue
        known, ids = np.unique([row["g"] for row in rows[lo:hi]], return_inverse=True)
        partials = plan.reduce(given_rows(rows, kind, lo, hi), ids.astype(np.int64), len(known))
        parts.append(pa.table(plan.arrays_of(partials), names=names))
        groups.extend(known.tolist())
    table = pa.concat_tables(parts)
    # What is stored in files comes back as it was; columns of several chunks are the rule there.
    known, ids = np.unique(groups, return_inverse=True)
    merged = plan.merge(plan.partials_of(table), ids.astype(np.int64), len(known))
    columns = plan.results(merged)
    assert [c.type for c in columns] == [field.type for field in plan.result_fields]
    return {
        int(g): {f.name: c[i].as_py() for f, c in zip(plan.result_fields, columns, strict=True)}
        for i, g in enumerate(known)
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", VALUES, ids=str)
@settings(max_examples=examples(24))
@given(data=st.data())
def test_any_cut_of_the_rows_gives_what_plain_python_gives(kind, data):
    """3.3: results equal a one-shot aggregation over the same rows, with nulls, NaN, infinities and 1e17 among them."""
    row = st.fixed_dictionaries({"g": st.integers(0, 2), "v": st.none() | VALUES[kind], "t": st.integers(0, 3)})
    rows = data.draw(st.lists(row, min_size=1, max_size=25))
    bounds = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    aggregates = asked(kind)
    oracle = WindowModel(TimeWindow(size=10, every=10), ["g"], aggregates, time=lambda row: row["t"])
    expected = {w.key[0]: w.results for w in oracle.batch(rows, late=None, close=10).windows}
    actual = engine(built(aggregates, kind), kind, rows, bounds)
    assert actual.keys() == expected.keys()
    for group, results in expected.items():
        wrong = {n: (actual[group][n], r) for n, r in results.items() if not r.matches(actual[group][n])}
        assert not wrong


EXTREME = [np.finfo(np.float64).max, np.finfo(np.float64).min, *ODD]


@pytest.mark.parametrize("kind", VALUES, ids=str)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_partial_that_is_alone_is_merged_to_itself(kind, data):
    """3.3: results do not depend on how often partials are merged, also where doubles overflow."""
    values = st.sampled_from(EXTREME) if pa.types.is_floating(kind) else VALUES[kind]
    row = st.fixed_dictionaries({"g": st.integers(0, 2), "v": st.none() | values, "t": st.integers(0, 3)})
    rows = data.draw(st.lists(row, min_size=1, max_size=8))
    known, ids = np.unique([row["g"] for row in rows], return_inverse=True)
    plan = built(asked(kind), kind)
    partials = plan.reduce(given_rows(rows, kind, 0, len(rows)), ids.astype(np.int64), len(known))
    again = plan.merge(partials, np.arange(len(known)), len(known))
    for name, before, after in zip(partials, plan.arrays_of(partials), plan.arrays_of(again), strict=True):
        assert repr(after.to_pylist()) == repr(before.to_pylist()), name


def summed(values: list[int], kind: pa.DataType = None) -> int:
    plan = built({"s": agg.sum("v")}, kind or pa.int64())
    rows = [{"g": 0, "v": v, "t": 0} for v in values]
    return engine(plan, kind or pa.int64(), rows, list(range(len(rows))))[0]["s"]


def test_a_sum_beyond_a_bigint_raises():
    """3.3: integer overflow raises, as in Spark, and never wraps."""
    with pytest.raises(IntegerOverflow, match=r"s = sum\(v\)"):
        summed([2**63 - 1, 1])
    with pytest.raises(IntegerOverflow):
        summed([-(2**63), -1])


def test_only_the_sum_of_all_rows_must_fit():
    """3.3: the order in which rows come, merge and leave does not decide whether a sum overflows."""
    assert summed([2**63 - 1, 2**63 - 1, -(2**63)]) == 2**63 - 2
    assert summed([-(2**63), -(2**63), 2**63 - 1, 2**63 - 1]) == -2


def test_a_decimal_sum_of_more_digits_than_its_type_raises():
    """3.3: decimal(p, s) sums to decimal(min(38, p + 10), s), and what has more digits raises, as in Spark."""
    kind = pa.decimal128(38, 0)
    assert summed([Decimal(10**38 - 2), Decimal(1)], kind) == 10**38 - 1
    with pytest.raises(IntegerOverflow):
        summed([Decimal(10**38 - 1), Decimal(1)], kind)
    with pytest.raises(IntegerOverflow):
        summed([Decimal(10**38 - 1)] * 3, kind)


@pytest.mark.parametrize(
    ("number", "n", "expected"),
    [("0.05", 2, "0.02500"), ("0.01", 3, "0.00333"), ("0.05", 3, "0.01667"), ("-0.05", 3, "-0.01667")],
)
def test_a_decimal_mean_has_four_more_digits_half_up(number, n, expected):
    """3.3: the mean of decimal(p, s) is decimal(p + 4, s + 4), rounded half up away from zero."""
    plan = built({"m": agg.mean("v")}, pa.decimal128(5, 2))
    rows = [{"g": 0, "v": Decimal(v), "t": 0} for v in [number] + ["0"] * (n - 1)]
    assert plan.result_fields[0].type == pa.decimal128(9, 6)
    mean = engine(plan, pa.decimal128(5, 2), rows, [])[0]["m"]
    assert mean == (Decimal(number) / n).quantize(Decimal("0.000001"))
    assert mean.quantize(Decimal(expected)) == Decimal(expected)


@settings(max_examples=examples(80))
@example(numbers=[(2**127 - 1, 1), (2**127 - 1, -1)], groups=1)
@example(numbers=[(-(2**127), 1), (2**127 - 1, 1)], groups=1)
@given(
    numbers=st.lists(st.tuples(st.integers(-(2**126), 2**126), st.sampled_from([1, -1])), max_size=12),
    groups=st.integers(1, 3),
)
def test_sums_of_128_bits_are_those_of_python(numbers, groups):
    """3.3: integer and decimal sums are exact, and so is what is left when rows leave."""
    low = np.array([n & (2**64 - 1) for n, _ in numbers], dtype=np.uint64).view(np.int64)
    high = np.array([n >> 64 for n, _ in numbers], dtype=np.int64)
    ids = np.arange(len(numbers)) % groups
    expected = [sum(n * s for (n, s), i in zip(numbers, ids, strict=True) if i == g) for g in range(groups)]
    sign = np.array([s for _, s in numbers], dtype=np.int64)
    if any(not -(2**127) <= e < 2**127 for e in expected):
        with pytest.raises(IntegerOverflow):
            group_sum(Wide(low, high), ids, groups, sign)
        return
    total = group_sum(Wide(low, high), ids, groups, sign)
    assert total.to_list() == expected
    assert Wide.from_carry(total.low, total.carry).to_list() == expected
    for limit in (1, 10**18, 2**63, 10**20, 10**38, abs(expected[0])):
        if limit:
            assert total.reaches(limit).tolist() == [abs(e) >= limit for e in expected]
    kind = pa.decimal128(38, 0)
    assert Wide.from_decimals(total.to_decimals(kind)[1:]).to_list() == expected[1:]


def test_sums_of_few_large_numbers_stay_on_the_fast_way_and_exact():
    """3.3: large values in many groups need no wide sum, as long as no group can leave 64 bits."""
    numbers = np.full(1000, 2**60, dtype=np.int64)
    assert group_sum(Wide(numbers), np.arange(1000), 1000).high is None
    assert group_sum(Wide(numbers), np.zeros(1000, np.int64), 1).to_list() == [1000 * 2**60]


def test_zeros_and_nan_are_ordered_once_and_for_all():
    """3.3, 3.4: NaN is greatest as in Spark; of the two zeros, which Spark calls equal, -0.0 stands before 0.0."""
    plan = built({"low": agg.min("v"), "high": agg.max("v")}, pa.float64())
    odd = [(0.0, -0.0), (float("nan"), 1.0), (-0.0,), (-float("nan"), 1.0)]
    rows = [{"g": g, "v": v, "t": 0} for g, vs in enumerate(odd) for v in vs]
    results = engine(plan, pa.float64(), rows, [1, 3])
    assert [repr(results[g]["low"]) for g in range(4)] == ["-0.0", "1.0", "-0.0", "1.0"]
    assert [repr(results[g]["high"]) for g in range(4)] == ["0.0", "nan", "-0.0", "nan"]


def test_partials_are_shared_between_aggregates_of_one_expression():
    """DESIGN 6: state holds what is needed once."""
    plan = AggregatePlan.build(
        {"s": agg.sum("a"), "m": agg.mean("a"), "v": agg.var_pop("b"), "d": agg.stddev_samp("b"), "n": agg.count("a")},
        dict.fromkeys("smvdn", pa.float64()),
    )
    assert {a.source: a.expression for a in plan.aggregates} == {"_in0": "a", "_in1": "b"}
    names = [f.name for f in plan.fields]
    assert names == [ROWS, "_doubles_a", "_double_a", "_mn_b", "_mean_b", "_squares_b", "_n_a"]
    first = AggregatePlan.build({"f": agg.first("a"), "g": agg.first("b")}, dict.fromkeys("fg", pa.string()))
    assert sum(f.name.startswith("_first_") for f in first.fields) == 2 * (5 + 1)  # where each stands, and its value
    assert first.needs_order
    assert not plan.needs_order


@pytest.mark.parametrize(
    ("aggregate", "kind", "exact"),
    [
        (agg.count(), None, True),
        (agg.count("v"), pa.float64(), True),
        (agg.sum("v"), pa.int32(), True),
        (agg.sum("v"), pa.decimal128(10, 2), True),
        (agg.sum("v"), pa.float64(), False),
        (agg.sum("v"), pa.float32(), False),
        (agg.mean("v"), pa.int64(), False),
        (agg.mean("v"), pa.decimal128(10, 2), False),
        (agg.min("v"), pa.int64(), False),
        (agg.var_pop("v"), pa.int64(), False),
        (agg.last("v"), pa.int64(), False),
    ],
    ids=str,
)
def test_each_aggregate_declares_whether_it_has_an_exact_inverse(aggregate, kind, exact):
    """3.3: counts, integer and decimal sums have an exact inverse; nothing else has."""
    assert AggregatePlan.build({"a": aggregate}, {"a": kind}).exact_inverse is exact


def test_what_has_no_inverse_is_never_subtracted():
    """3.3: a floating sum that would be asked to subtract refuses."""
    plan = built({"s": agg.sum("v")}, pa.float64())
    partials = plan.reduce(Rows({"_in0": pa.array([1.0])}, np.zeros(1, np.int64)), np.zeros(1, np.int64), 1)
    with pytest.raises(ValueError, match="no exact inverse"):
        plan.merge(partials, np.zeros(1, np.int64), 1, np.array([-1]))


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        (agg.sum("v"), pa.string()),
        (agg.mean("v"), pa.timestamp("us")),
        (agg.var_pop("v"), pa.bool_()),
        (agg.max("v"), pa.list_(pa.int64())),
        (agg.sum("v"), None),
    ],
    ids=str,
)
def test_a_type_without_such_an_aggregate_is_refused_by_name(aggregate, kind):
    """API: columns, types and SQL are refused when the job is analysed."""
    with pytest.raises(BadExpression, match=r"total = \w+\(v\)"):
        AggregatePlan.build({"total": aggregate}, {"total": kind})


def test_a_plan_travels():
    """A plan goes to the tasks as a plain value."""
    plan = built(asked(pa.float64()), pa.float64())
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_first_and_last_refuse_rows_without_arrival_order():
    """1.6: what depends on order sorts by it."""
    plan = built({"f": agg.first("v")}, pa.int64())
    with pytest.raises(ValueError, match="arrival order"):
        plan.reduce(Rows({"_in0": pa.array([1])}, np.zeros(1, np.int64)), np.zeros(1, np.int64), 1)


def test_first_and_last_break_ties_by_each_part_of_the_arrival_order():
    """1.6, 3.3: among rows of one event time: batch, then source, then partition, then position."""
    plan = built({"f": agg.first("v"), "l": agg.last("v")}, pa.int64())
    places = [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 0)]
    for some in range(1, len(places) + 1):
        chosen = places[:some]
        given = Rows(
            {"_in0": pa.array(range(some))},
            np.zeros(some, np.int64),
            tuple(np.array(part) for part in zip(*chosen, strict=True)),
        )
        first, last = plan.results(plan.reduce(given, np.zeros(some, np.int64), 1))
        assert (first[0].as_py(), last[0].as_py()) == (chosen.index(min(chosen)), chosen.index(max(chosen)))
