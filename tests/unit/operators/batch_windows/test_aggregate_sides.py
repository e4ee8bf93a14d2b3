"""What aggregates of windows of batch time send to the state: partials, or values in order (SEMANTICS 1.6, 2.10, 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from penstock import agg, micros
from penstock.errors import BadExpression
from penstock.graph.batch_window import BatchWindow
from penstock.operators.batch_windows.aggregate_sides import InputSide, PartialSide, aggregate_side
from penstock.operators.protocol import HASHED, TIME, BoundSide, RowsOfBranch, Send, StepFacts, Tally
from penstock.sources.base import PARTITION, POSITION

WINDOW = BatchWindow(micros(2), slide=micros(5))
IN_A_WINDOW, IN_NONE = (StepFacts(batch=7, time=time, watermark=None, interval=1) for time in (5, 3))


def side(aggregates: Mapping[str, Any], kind: pa.DataType | None = None) -> PartialSide | InputSide:
    """Return the map side of aggregates over the column `v`, by the key `k`."""
    inputs = {"v": kind or pa.int64()}
    keys = pa.schema([("k", pa.string())])
    bound = BoundSide(name="w", side=0, keys=keys, columns=("k",), visible=None, inputs=inputs)
    return aggregate_side(aggregates, WINDOW, bound)


def branch(*rows: tuple[str, int], more: Mapping[str, Any] | None = None) -> RowsOfBranch:
    """Return rows of a task; those of one letter have one hash."""
    keys, values = zip(*rows, strict=True)
    table = {
        "k": pa.array(keys),
        "v": pa.array(values),
        **(more or {}),
        TIME: pa.nulls(len(rows), pa.int64()),
        "h": pa.array([ord(key) for key in keys], pa.int64()),
        PARTITION: pa.array([0] * len(rows), pa.int32()),
        POSITION: pa.array(range(len(rows)), pa.int64()),
    }
    return RowsOfBranch(
        table=pa.table(table), visible=(), keys={"k": "k"}, inputs={"v": "v"}, hash_column="h", place=0, way=0, ways=1
    )


def sent(of: PartialSide | InputSide, rows: RowsOfBranch, facts: StepFacts = IN_A_WINDOW) -> list[pa.Table]:
    """Return the tables that go to the state."""
    return [piece.rows for piece in of.prepare(rows, facts) if isinstance(piece, Send)]


def test_a_task_sends_one_row_of_partials_for_each_key() -> None:
    """3.3: partials of tasks merge, whatever their order."""
    partials = side({"n": agg.count(), "total": agg.sum("v")})
    assert isinstance(partials, PartialSide)
    (first,) = sent(partials, branch(("a", 1), ("b", 2), ("a", 3)))
    (second,) = sent(partials, branch(("a", 5)))
    assert [(r["k"], r["_rows"]) for r in first.to_pylist()] == [("a", 2), ("b", 1)]
    merged = partials.received([second, first])
    assert [(r[HASHED], r["k"], r["_rows"]) for r in merged.to_pylist()] == [(97, "a", 3), (98, "b", 1)]
    assert partials.plan.results(partials.plan.partials_of(merged))[1].to_pylist() == [9, 2]


def test_values_travel_where_the_order_of_arrival_counts() -> None:
    """1.6: rows are put in order after the shuffle, also those of a column named as an input."""
    ordered = side({"first": agg.first("v"), "last": agg.last("v")})
    assert isinstance(ordered, InputSide)
    tables = sent(ordered, branch(("a", 1), ("a", 2), more={"_in0": pa.array([8, 9])}))
    assert tables[0]["_in0"].to_pylist() == [1, 2]
    partials = ordered.reduced([tables[0].slice(1), tables[0].slice(0, 1)], IN_A_WINDOW)
    results = ordered.plan.results(ordered.plan.partials_of(partials))
    assert [column.to_pylist() for column in results] == [[1], [2]]


@pytest.mark.parametrize("aggregates", [{"n": agg.count()}, {"n": agg.first("v")}], ids=["partials", "values"])
def test_rows_that_no_window_has_stay_behind(aggregates: Mapping[str, Any]) -> None:
    """2.10: they are counted as in no window, and nothing is sent."""
    pieces = list(side(aggregates).prepare(branch(("a", 1)), IN_NONE))
    assert pieces == [Tally({"rows": 1, "counted": 0, "in_no_window": 1})]


def test_branches_with_other_types_share_no_state() -> None:
    """The streams of a union send alike, or the step is refused."""
    assert side({"n": agg.sum("v")}).differs(side({"n": agg.sum("v")})) is None
    assert side({"n": agg.sum("v")}).differs(side({"n": agg.sum("v")}, pa.float64())) == "other types"


def test_an_aggregate_that_its_type_has_not_is_refused() -> None:
    """3.3: as in windows of event time."""
    with pytest.raises(BadExpression, match="sum"):
        side({"n": agg.sum("v")}, pa.string())
