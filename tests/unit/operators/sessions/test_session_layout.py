"""The columns of sessions in the state and in the output, and when their keys are due (SEMANTICS 3.1, 3.2)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock import agg
from penstock.graph.policies import Accumulation
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.sessions.session_layout import NEVER, SessionLayout, deadlines, least
from penstock.time.clock import END_OF_TIME

KEYS = pa.schema([("k", pa.string())])


def layout_of(lateness: int, *, early: bool = False) -> SessionLayout:
    """Return the layout of a count of rows."""
    plan = AggregatePlan.build({"n": agg.count()}, {"n": None})
    return SessionLayout(plan=plan, keys=KEYS, lateness=lateness, early=early)


def test_only_sessions_that_late_rows_revise_have_panes():
    """API: without such settings the columns _pane and _revision do not exist."""
    once, revised = layout_of(0), layout_of(5)
    assert once.output.names == ["k", "window_start", "window_end", "n"]
    assert revised.output.names == [*once.output.names, "_pane", "_revision"]
    assert [*once.parts] == ["sessions", "deadlines"]
    assert [*revised.parts] == ["sessions", "deadlines", "lateness"]
    assert {*revised.shown.names} - {*once.shown.names} == revised.of_panes == {"_revision", "_closed"}


def test_early_panes_that_replace_each_other_may_stand_in_a_table():
    """3.2: those that discard add up, and so nothing of them is ever taken back."""
    whole = layout_of(0, early=True)
    parts = replace(whole, accumulation=Accumulation.DISCARDING)
    assert whole.of_panes - parts.of_panes == {"_standing"}


@pytest.mark.parametrize("lateness", [0, 7, 2**62], ids=["none", "some", "longer than time"])
def test_a_key_is_due_when_the_watermark_is_past_its_earliest_end(lateness):
    """3: a session closes when the watermark > end, and is forgotten when it is > end + lateness."""
    ends = least(np.array([0, 0, 2]), np.array([30, 20, -5]), 3)
    assert ends.tolist() == [20, NEVER, -5]
    assert deadlines(ends, lateness)[[0, 2]].tolist() == [21 + lateness, -4 + lateness]
    assert deadlines(np.array([NEVER - 1]), lateness).max() <= END_OF_TIME
