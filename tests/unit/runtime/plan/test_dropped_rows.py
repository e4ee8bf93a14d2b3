"""Of a row that a filter drops nothing goes on but that it was dropped (SEMANTICS 2.10)."""

from __future__ import annotations

import pytest

from penstock.graph.nodes import FilterNode, Node
from penstock.runtime.plan.branch_frame import BranchFrame
from penstock.runtime.plan.projection import Projection
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.testing.environment import session_of_tests

pytestmark = pytest.mark.spark


def test_a_row_that_a_filter_drops_crosses_into_python_without_its_values() -> None:
    """P5: its fate is there to be counted; a row in quarantine and one that is kept have all of theirs."""
    spark = session_of_tests()
    given = spark.createDataFrame(
        [(1, "low", 0), (9, "kept", 0), (5, "bad", -2)], f"v int, `s.t` string, {ROW_STATUS} int"
    )
    start = BranchFrame(given, ("v", "s.t"), (ROW_STATUS,))
    chain = start.followed(FilterNode(parent=Node(), predicate="v > 4", name="high"))
    end = Projection(chain)
    end.keep_visible()
    end.add("w", chain.alive("v * 2"))
    end.hide(ROW_STATUS)
    frame = end.frame()
    assert frame.columns == ["v", "s.t", "w", ROW_STATUS]
    assert sorted(map(tuple, frame.collect()), key=lambda row: row[3]) == [
        (5, "bad", None, -2),
        (9, "kept", 18, 0),
        (None, None, None, 1),
    ]
