"""What trigger, evictor and aggregates of global windows read is sent, and rows whole where they are needed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from global_disk import KEYS, VISIBLE

from penstock import agg, count
from penstock.errors import BadExpression, JobError
from penstock.evictors import KeepDelta
from penstock.graph.specs.global_windows import GlobalWindows
from penstock.operators.protocol import BoundSide
from penstock.operators.triggers.global_side import GlobalSide
from penstock.operators.triggers.global_step import bind_side
from penstock.triggers import AfterDelta, AfterFirst, Every, Moment, TriggerResult
from penstock.windows import GlobalWindow


def side_of(window: GlobalWindow, types: dict[str, Any], visible: pa.Schema = VISIBLE) -> GlobalSide:
    """Return the map side of a window that sums n."""
    spec = GlobalWindows(window=window, aggregates={"total": agg.sum("n")})
    assert {*spec.reads(0).expressions} == {*types}
    read = visible if spec.reads(0).rows else None
    return bind_side(spec, BoundSide(name="w", side=0, keys=KEYS, columns=("k",), visible=read, inputs=types))


def test_each_expression_travels_once() -> None:
    """Those of the trigger, of the evictor, and of the aggregates."""
    window = GlobalWindow().trigger(AfterFirst(AfterDelta("v", 1), AfterDelta("n", 1))).evict(KeepDelta("v", 1))
    side = side_of(window.late_to("after"), {"v": pa.float64(), "n": pa.int64()})
    assert side.sent.names[-2:] == ["_penstock_input_0", "_penstock_input_1"]
    assert side.sent.names[: len(VISIBLE)] == VISIBLE.names
    rows = side.sent.empty_table()
    assert side.input_of(rows, "n").type == pa.int64()
    assert side.differs(side) is None


class Always:
    """A trigger of the user's."""

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Moment) -> None:
        """Do nothing."""

    def judge(self, state: dict[str, Any], at: Moment) -> TriggerResult:
        """Fire."""
        return TriggerResult.FIRE


def test_whole_rows_travel_only_where_something_reads_them() -> None:
    """Aggregates need keys and inputs; a trigger of the user's and a stream of late rows need the rows."""
    window = GlobalWindow().trigger(Every(count(1)))
    own = [name for name in side_of(window, {"n": pa.int64()}).sent.names if not name.startswith("_penstock")]
    assert own == []
    for whole in (window.late_to("after"), GlobalWindow().trigger(AfterFirst(Always()))):
        assert side_of(whole, {"n": pa.int64()}).sent.names[: len(VISIBLE)] == VISIBLE.names


@pytest.mark.parametrize("kind", [pa.string(), pa.timestamp("us", tz="UTC"), pa.bool_()], ids=str)
def test_what_is_compared_is_a_number(kind: pa.DataType) -> None:
    """Refused when the job starts."""
    with pytest.raises(BadExpression, match="no number"):
        side_of(GlobalWindow().trigger(AfterDelta("v", 1)), {"v": kind, "n": pa.int64()})


def test_late_rows_need_their_names() -> None:
    """A column that late rows get may not be there before, where they go to a stream."""
    visible = pa.schema([*VISIBLE, ("_step", pa.string())])
    window = GlobalWindow().trigger(Every(count(1)))
    side_of(window, {"n": pa.int64()}, visible)
    with pytest.raises(JobError, match="_step"):
        side_of(window.late_to("late"), {"n": pa.int64()}, visible)
