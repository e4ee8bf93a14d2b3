"""Aggregates against Spark's own: the same types and values as one aggregation over the same rows (SEMANTICS 3.3)."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import agg
from penstock.errors import IntegerOverflow
from penstock.graph.aggregates import Aggregate, AggregateKind
from penstock.operators.aggregates import AggregatePlan, Rows

pytestmark = [pytest.mark.spark, pytest.mark.sample(1, of="aggregates equal to Spark's")]

ROWS, GROUPS = 400, 12
NAN, INF = float("nan"), float("inf")
OTHERS = (
    "first",
    "last",
    "count_distinct",
    "approx_count_distinct",
    "approx_quantile",
    "collect",
    "top_k",
    "rows",
    "custom",
)
NUMBERS = [k for k in AggregateKind if k.value not in OTHERS]
ORDERED = [AggregateKind.COUNT, AggregateKind.MIN, AggregateKind.MAX]
START = datetime(2024, 2, 29, tzinfo=UTC)


def decimals(precision: int, scale: int) -> Any:
    return lambda r: Decimal(r.randint(-(10 ** (precision - 2)), 10 ** (precision - 2))).scaleb(-scale)


COLUMNS = {
    "byte": (pa.int8(), NUMBERS, lambda r: r.randint(-128, 127)),
    "short": (pa.int16(), NUMBERS, lambda r: r.randint(-(2**15), 2**15 - 1)),
    "number": (pa.int32(), NUMBERS, lambda r: r.randint(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), NUMBERS, lambda r: r.randint(-(2**55), 2**55)),
    "single": (pa.float32(), NUMBERS, lambda r: r.choice([1.5, -2.25, 0.1, 3e7])),
    "double": (pa.float64(), NUMBERS, lambda r: r.uniform(-1e6, 1e6)),
    "odd": (pa.float64(), NUMBERS, lambda r: r.choice([NAN, INF, -INF, 1.0, 0.0] if r.random() < 0.1 else [2.5, -1.0])),
    "money": (pa.decimal128(10, 2), NUMBERS, decimals(10, 2)),
    "tiny": (pa.decimal128(5, 5), NUMBERS, decimals(5, 5)),
    "fine": (pa.decimal128(30, 20), NUMBERS, decimals(30, 20)),
    "wide": (pa.decimal128(38, 18), NUMBERS, decimals(35, 18)),
    "flag": (pa.bool_(), ORDERED, lambda r: r.random() < 0.5),
    "text": (pa.string(), ORDERED, lambda r: "".join(r.choices("aZé√𝄞", k=r.randint(0, 3)))),
    "blob": (pa.binary(), ORDERED, lambda r: r.randbytes(r.randint(0, 3))),
    "day": (pa.date32(), ORDERED, lambda r: date(1, 1, 1) + timedelta(days=r.randint(0, 3_000_000))),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        ORDERED,
        lambda r: START + timedelta(microseconds=r.randint(-(10**15), 10**15)),
    ),
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Return random rows: group 0 has nulls only, group 1 one row, the others many of each with some nulls."""
    r = random.Random(3)
    groups = [0, 0, 1] + [r.randrange(2, GROUPS) for _ in range(ROWS)]
    made: dict[str, Any] = {"g": groups, "t": [r.randrange(20) for _ in groups], "i": list(range(len(groups)))}
    for name, (kind, _, draw) in COLUMNS.items():
        values = [None if g == 0 or (g > 1 and r.random() < 0.2) else draw(r) for g in groups]
        made[name] = pa.array(values, kind)
    return pa.table(made)


def engine(aggregates: dict[str, Aggregate], rows: pa.Table) -> pa.Table:
    """Reduce the rows in five parts, merge the partials, and return results by group."""
    types = {n: None if a.expression is None else rows.schema.field(a.expression).type for n, a in aggregates.items()}
    plan = AggregatePlan.build(aggregates, types)
    tables, groups = [], []
    for part in range(min(5, rows.num_rows)):
        some = rows.take(list(range(part, rows.num_rows, 5))).combine_chunks()
        known, ids = np.unique(some["g"].to_numpy(), return_inverse=True)
        zeros = np.zeros(len(ids), np.int64)
        given = Rows(
            {a.source: some[a.expression].combine_chunks() for a in plan.aggregates if a.source is not None},
            some["t"].to_numpy(),
            (zeros, zeros, zeros, some["i"].to_numpy()),
        )
        tables.append(
            pa.table(plan.arrays_of(plan.reduce(given, ids, len(known))), names=[f.name for f in plan.fields])
        )
        groups.append(known)
    known, ids = np.unique(np.concatenate(groups), return_inverse=True)
    merged = plan.merge(plan.partials_of(pa.concat_tables(tables)), ids, len(known))
    names = [field.name for field in plan.result_fields]
    return pa.table([pa.array(known), *plan.results(merged)], names=["g", *names])


@pytest.mark.parametrize("column", ["odd", "text", "wide"])
def test_different_values_are_those_of_spark(spark, rows, column):
    """3.3: one query a column, because Spark copies each row for each distinct count of a query."""
    theirs = spark.createDataFrame(rows.select(["g", column])).groupBy("g").agg(_expr(f"count(DISTINCT {column}) AS x"))
    for aggregate in (agg.count_distinct(column), agg.approx_count_distinct(column)):
        assert engine({"x": aggregate}, rows).to_pylist() == theirs.orderBy("g").toArrow().to_pylist()


def agree(ours: object, theirs: object, weight: float) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float) and not (math.isinf(ours) or math.isnan(ours)):
        return abs(ours - theirs) <= 1e-9 * weight
    return repr(ours) == repr(theirs) or (ours == theirs and type(ours) is type(theirs))


def test_types_and_values_are_those_of_one_spark_aggregation(spark, rows):
    """3.3: for every aggregate and every type of input, nulls, NaN, infinities and empty groups included."""
    aggregates = {f"{k.value}_{c}": Aggregate(k, c) for c, (_, kinds, _) in COLUMNS.items() for k in kinds}
    aggregates["rows"] = agg.count()
    sql = [f"{a.kind.value}({a.expression or '*'}) AS {name}" for name, a in aggregates.items()]
    frame = spark.createDataFrame(rows)
    spark_rows = frame.groupBy("g").agg(*map(_expr, sql)).orderBy("g").toArrow()
    ours = engine(aggregates, rows)
    assert {f.name: f.type for f in ours.schema} == {f.name: f.type for f in spark_rows.schema}
    weights = _weights(rows)
    wrong = [
        (name, group, a, b)
        for name in aggregates
        for group, a, b in zip(ours["g"].to_pylist(), *(t[name].to_pylist() for t in (ours, spark_rows)), strict=True)
        if not agree(a, b, weights.get((aggregates[name].expression, group), 0.0))
    ]
    assert wrong == []


def test_first_and_last_are_those_of_an_ordered_spark_aggregation(spark, rows):
    """3.3: by event time, ties by arrival order; a null is a value."""
    names = list(COLUMNS)
    asked = {f"{k}_{c}": getattr(agg, k)(c) for k, c in product(("first", "last"), names)}
    by = {"first": "min_by", "last": "max_by"}
    sql = [f"{by[k]}({c}, struct(t, i)) AS {k}_{c}" for k, c in product(("first", "last"), names)]
    expected = spark.createDataFrame(rows).groupBy("g").agg(*map(_expr, sql)).orderBy("g").toArrow()
    ours = engine(asked, rows)
    assert ours.schema.types == expected.schema.types
    assert repr(ours.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    ("expression", "values", "kind"),
    [
        ("sum", [2**63 - 1, 1], pa.int64()),
        ("sum", [Decimal(10**38 - 1), Decimal(1)], pa.decimal128(38, 0)),
        ("mean", [Decimal(10**36), Decimal(10**36)], pa.decimal128(38, 0)),
    ],
    ids=["bigint", "decimal", "mean of decimals"],
)
def test_what_overflows_in_spark_overflows_here(spark, expression, values, kind):
    """3.3: integer overflow raises, as in Spark."""
    rows = pa.table({"g": [0, 0], "t": [0, 0], "i": [0, 1], "v": pa.array(values, kind)})
    with pytest.raises(Exception, match=r"OVERFLOW|OUT_OF_RANGE"):
        spark.createDataFrame(rows).groupBy("g").agg(_expr(f"{expression}(v)")).collect()
    with pytest.raises(IntegerOverflow):
        engine({"a": getattr(agg, expression)("v")}, rows)


def _expr(text: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(text)


def _weights(rows: pa.Table) -> dict[tuple[str, int], float]:
    """Return by column and group the sum of absolute values, squared where that is more, for variances."""
    weights: dict[tuple[str, int], float] = {}
    for name, (_, kinds, _) in COLUMNS.items():
        if kinds is NUMBERS:
            for group, value in zip(rows["g"].to_pylist(), rows[name].to_pylist(), strict=True):
                size = abs(float(value)) if value is not None and math.isfinite(value) else 0.0
                weights[name, group] = weights.get((name, group), 0.0) + max(size, size * size)
    return weights
