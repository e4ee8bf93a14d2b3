"""SEMANTICS 3.2: windows with early panes are made by a step of their own."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import agg, count, seconds
from penstock.errors import JobError
from penstock.graph.specs.time_windows import TimeWindows
from penstock.operators.protocol import BoundSide, StepContext
from penstock.operators.windows.early_step import EarlyWindowStep
from penstock.operators.windows.window_operator import bind, bind_side
from penstock.operators.windows.window_step import WindowStepWork
from penstock.windows import Tumbling

WINDOW = Tumbling(seconds(10)).late_to("late")
KEYS = pa.schema([("k", pa.int64())])


def spec_of(window) -> TimeWindows:
    return TimeWindows(window=window, aggregates={"n": agg.count()})


def side(visible: str = "v") -> BoundSide:
    columns = pa.schema([(visible, pa.int64())])
    return BoundSide(name="w", side=0, keys=KEYS, columns=("k",), visible=columns, inputs={})


@pytest.mark.parametrize(
    ("window", "kind", "panes"),
    [
        (WINDOW, WindowStepWork, []),
        (WINDOW.emit_on(count(5)), EarlyWindowStep, ["_pane", "_revision"]),
        (WINDOW.emit_every(seconds(5)), EarlyWindowStep, ["_pane", "_revision"]),
    ],
    ids=["once", "by rows", "by time"],
)
def test_the_step_follows_from_the_windows(window, kind: type, panes: list[str]) -> None:
    """API: without such settings there are no columns of panes."""
    step = bind(spec_of(window), [bind_side(spec_of(window), side())], StepContext(name="w", event=True, timed=False))
    assert type(step) is kind
    assert step.outlets[""].names == ["k", "window_start", "window_end", "n", *panes]


def test_a_column_that_late_rows_get_is_refused() -> None:
    """API: late rows carry `_event_time`, `_watermark` and `_step`."""
    with pytest.raises(JobError, match="_watermark"):
        bind_side(spec_of(WINDOW), side("_watermark"))
