"""The places of rows beside partials: numbers of a source's rows, and ranks of what steps have emitted (SEMANTICS 1.6)."""

from __future__ import annotations

import pyarrow as pa

from penstock import agg
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.protocol import TIME
from penstock.operators.windows.arrival_places import placed, ranked_together
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.time_windows import preaggregate
from penstock.sources.base import PARTITION, POSITION
from penstock.time.arrival import ARRIVAL, of_source
from tests.support.window_samples import array, rows_of_branch

KEYS = pa.schema([("k", pa.string())])
EDGES = {"first": agg.first("v"), "last": agg.last("v")}
PLAN = AggregatePlan.build(EDGES, dict.fromkeys(EDGES, pa.int64()))
TOP, TOP_INPUT = agg.top_k("v", 2, by="0"), pa.struct([("by", pa.int32()), ("value", pa.int64())])
WINDOW = TimeWindow(size=10, every=10)


def partials(positions: list[int], *, chained: bool, plan: AggregatePlan = PLAN) -> pa.Table:
    """Return what one task makes of rows of one time, whose values are their positions."""
    n = len(positions)
    table = pa.table(
        {
            "k": ["a"] * n,
            "h": array(*[7] * n),
            TIME: array(*[3] * n),
            "v": array(*positions),
            "top": pa.array([{"by": 0, "value": v} for v in positions], TOP_INPUT),
            PARTITION: pa.array([0] * n, pa.int32()),
            POSITION: array(*positions),
            ARRIVAL: of_source(0, array(*[0] * n), array(*positions)),
        }
    )
    read = {"v": "v", str(TOP.expression): "top"}
    kept = placed(rows_of_branch(table, ["k"], read), plan, batch=5, chained=chained)
    return kept.beside(preaggregate(kept.rows, kept.order, plan=plan, window=WINDOW), plan)


def edges(tables: list[pa.Table]) -> list[int]:
    """Return the first and last value after a merge."""
    layout = PartialLayout(plan=PLAN, keys=KEYS)
    merged = layout.combine(ranked_together(tables, PLAN))
    return [column[0].as_py() for column in PLAN.results(PLAN.partials_of(merged))]


def test_ties_are_broken_by_arrival_across_tasks():
    """3.3: first and last of equal event times are those of the order of arrival, whatever tasks the rows were in."""
    tasks = [[4, 9], [2], [300, 5]]
    for chained in (False, True):
        assert edges([partials(task, chained=chained) for task in tasks]) == [2, 300]


def test_aggregates_without_order_carry_no_places():
    """DESIGN 6: only those that ask for the order of arrival pay for it."""
    plan = AggregatePlan.build({"n": agg.count()}, {"n": None})
    branch = rows_of_branch(pa.table({TIME: array(1)}), [], {})
    assert placed(branch, plan, batch=1, chained=True).order == ()
    assert ranked_together([pa.table({"x": [1]})], plan) == [pa.table({"x": [1]})]


def test_rows_that_a_window_keeps_stand_in_the_order_of_arrival_across_tasks():
    """1.6: collect and top_k order rows as they came, also those that a step has emitted."""
    kept = {"all": agg.collect("v", limit=9), "top": TOP}
    plan = AggregatePlan.build(kept, {"all": pa.int64(), "top": TOP_INPUT})
    for chained in (False, True):
        tables = [partials(task, chained=chained, plan=plan) for task in ([4, 9], [2], [300, 5])]
        merged = PartialLayout(plan=plan, keys=KEYS).combine(ranked_together(tables, plan))
        results = [column[0].as_py() for column in plan.results(plan.partials_of(merged))]
        assert results == [[2, 4, 5, 9, 300], [2, 4]]
