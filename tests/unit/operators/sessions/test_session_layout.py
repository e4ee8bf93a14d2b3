"""The columns of sessions in the state and in the output, and when their keys are due (SEMANTICS 3.1, 3.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock import agg
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.sessions.session_layout import NEVER, SessionLayout, deadlines, least
from penstock.time.clock import END_OF_TIME

KEYS = pa.schema([("k", pa.string())])


def layout_of(lateness: int) -> SessionLayout:
    """Return the layout of a count of rows."""
    return SessionLayout(plan=AggregatePlan.build({"n": agg.count()}, {"n": None}), keys=KEYS, lateness=lateness)


def test_only_sessions_that_late_rows_revise_have_panes():
    """API: without such settings the columns _pane and _revision do not exist."""
    once, revised = layout_of(0), layout_of(5)
    assert once.output.names == ["k", "window_start", "window_end", "n"]
    assert revised.output.names == [*once.output.names, "_pane", "_revision"]
    assert [*once.parts] == ["sessions", "deadlines"]
    assert [*revised.parts] == ["sessions", "deadlines", "lateness"]
    assert {*revised.shown.names} - {*once.shown.names} == revised.of_panes == {"_revision", "_closed"}


@pytest.mark.parametrize("lateness", [0, 7, 2**62], ids=["none", "some", "longer than time"])
def test_a_key_is_due_when_the_watermark_is_past_its_earliest_end(lateness):
    """3: a session closes when the watermark > end, and is forgotten when it is > end + lateness."""
    ends = least(np.array([0, 0, 2]), np.array([30, 20, -5]), 3)
    assert ends.tolist() == [20, NEVER, -5]
    assert deadlines(ends, lateness)[[0, 2]].tolist() == [21 + lateness, -4 + lateness]
    assert deadlines(np.array([NEVER - 1]), lateness).max() <= END_OF_TIME
