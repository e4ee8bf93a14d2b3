"""Different values and quantiles: exact counts, what leaves without a trace, and how far estimates are (SEMANTICS 3.3)."""

from __future__ import annotations

import math
import random
import sys

import numpy as np
import pyarrow as pa
import pytest

from penstock import agg
from penstock.errors import BadExpression, JobError
from penstock.graph.aggregates import Aggregate
from penstock.operators.aggregates import AggregatePlan, Rows

NAN, INF = float("nan"), float("inf")
DOUBLE = pa.float64()


def partials(aggregate: Aggregate, values: list, kind: pa.DataType, groups: int = 1) -> tuple[AggregatePlan, dict]:
    """Return the partials of values that are spread over groups, one after the other."""
    plan = AggregatePlan.build({"x": aggregate}, {"x": kind})
    rows = Rows({"_in0": pa.array(values, kind)}, np.zeros(len(values), dtype=np.int64))
    return plan, plan.reduce(rows, np.arange(len(values)) % groups, groups)


def result(aggregate: Aggregate, values: list, kind: pa.DataType = DOUBLE) -> object:
    """Return the aggregate of values, merged from seven parts."""
    plan, parts = partials(aggregate, values, kind, groups=7)
    return plan.results(plan.merge(parts, np.zeros(7, dtype=np.int64), 1))[0][0].as_py()


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], 0), ([None], 0), ([0.0, -0.0], 1), ([NAN, -NAN, 1.0], 2), ([1.0, 1.0, 2.0, None], 2), ([INF, -INF], 2)],
    ids=["none", "a null", "zeros", "NaN", "repeated", "infinities"],
)
def test_values_are_told_apart_as_in_spark(values, expected):
    """3.3: nulls are left out, NaN is one value, and so is zero."""
    for aggregate in (agg.count_distinct("v"), agg.approx_count_distinct("v")):
        assert result(aggregate, values) == expected


def test_values_that_leave_leave_no_trace():
    """3.3: a tally has an exact inverse: the value goes with its last row."""
    for aggregate, before, after in ((agg.count_distinct("v"), 3, 1), (agg.approx_quantile("v", 0.0), -9, 5)):
        plan, whole = partials(aggregate, [5.0, -9.0, 7.0, 5.0], pa.float64())
        _, leaving = partials(aggregate, [-9.0, 7.0, 5.0], pa.float64())
        assert plan.exact_inverse
        assert plan.results(whole)[0][0].as_py() == pytest.approx(before, rel=0.01)
        both = {
            name: pa.concat_arrays([whole[name], leaving[name]])
            if isinstance(whole[name], pa.Array)
            else np.concatenate([whole[name], leaving[name]])
            for name in whole
        }
        left = plan.merge(both, np.zeros(2, dtype=np.int64), 1, np.array([1, -1]))
        assert plan.results(left)[0][0].as_py() == pytest.approx(after, rel=0.01)
        (items,) = (left[field.name] for field in plan.fields if pa.types.is_list(field.type))
        assert items[0].as_py()[0]["n"] == 1
        assert len(items[0]) == 1


def test_estimates_do_not_depend_on_order_or_parts():
    """1.6: no result may depend on the number of partitions or tasks."""
    values = [random.Random(4).gauss(0, 100) for _ in range(5_000)]
    shuffled = random.Random(5).sample(values, len(values))
    for aggregate in (agg.approx_count_distinct("v"), agg.approx_quantile("v", 0.3)):
        plan, whole = partials(aggregate, shuffled, pa.float64())
        assert plan.results(whole)[0][0].as_py() == result(aggregate, values)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [3, 1, 2, 1, None]),
        (pa.float64(), [NAN, 0.5, -INF, 0.0, 7.0]),
        (pa.string(), ["b", "", "é", "a", "b"]),
        (pa.bool_(), [True, False, None, True]),
        (pa.decimal128(10, 2), [None, 3, 1, 2]),
        (pa.binary(), [b"b", b"a", b""]),
        (pa.timestamp("us", tz="UTC"), [5, -3, 4]),
    ],
    ids=str,
)
def test_partials_do_not_depend_on_order(kind, values):
    """1.6, 10.3: state of the same rows is the same in whatever order they came, so that a diff of it is empty."""
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    for aggregate in (
        agg.count_distinct("v"),
        agg.approx_count_distinct("v"),
        *([agg.approx_quantile("v", 0.5)] if numeric else []),
    ):
        _, one = partials(aggregate, values, kind)
        plan, other = partials(aggregate, values[::-1], kind)
        assert [str(array) for array in plan.arrays_of(one)] == [str(array) for array in plan.arrays_of(other)]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.25, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("spread", [1e-9, 1.0, 1e12])
def test_a_quantile_is_within_a_hundredth(share, spread):
    """3.3: of the value that the share says, whatever its size and sign."""
    drawn = random.Random(6)
    values = [drawn.gauss(0, 1) * spread for _ in range(999)]
    expected = sorted(values)[max(math.ceil(share * 999), 1) - 1]
    assert result(agg.approx_quantile("v", share), values) == pytest.approx(expected, rel=0.0101)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([None], 0.5, None),
        ([0.0, -0.0], 0.5, 0.0),
        ([NAN, 1.0], 1.0, "nan"),
        ([NAN, INF], 0.5, INF),
        ([-INF, 3.0], 0.5, -INF),
        ([5e-324], 0.5, 0.0),
        ([1e308], 0.5, 1e308),
        ([-1.75e308], 0.5, -1.75e308),
        ([sys.float_info.max], 0.5, sys.float_info.max),
    ],
    ids=str,
)
def test_odd_numbers_have_their_place(values, share, expected):
    """3.4: NaN is greater than every number; infinities are themselves, and nothing else is infinite."""
    found = result(agg.approx_quantile("v", share), values)
    known = expected in (None, "nan")
    assert str(found) == str(expected) if known else found == pytest.approx(expected, rel=0.0101, abs=1e-300)


@pytest.mark.parametrize("hundredths", range(1, 101))
def test_a_share_is_the_number_that_is_written(hundredths):
    """3.3: of 100 values 0.07 asks for the seventh, though the double 0.07 times 100 is more than 7."""
    share = float(f"0.{hundredths:02}") if hundredths < 100 else 1.0
    found = result(agg.approx_quantile("v", share), [2.0**n for n in range(1, 101)])
    assert found == pytest.approx(2.0**hundredths, rel=0.0101)


@pytest.mark.parametrize("share", [-0.1, 1.1, NAN, "0.5", True, None], ids=repr)
def test_a_share_is_from_0_to_1(share):
    """API: refused where the job is written."""
    with pytest.raises(JobError, match="share"):
        agg.approx_quantile("v", q=share)


def test_values_that_cannot_be_told_apart_are_refused():
    """3.3: by name, when the job is bound."""
    with pytest.raises(BadExpression, match="cannot be compared"):
        AggregatePlan.build({"x": agg.count_distinct("v")}, {"x": pa.list_(pa.int64())})
    with pytest.raises(BadExpression, match="not a number"):
        AggregatePlan.build({"x": agg.approx_quantile("v", 0.5)}, {"x": pa.string()})
