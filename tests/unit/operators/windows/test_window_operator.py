"""SEMANTICS 2.6, 3.1: a step of time windows is bound to the columns that it reads."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import agg, seconds
from penstock.errors import JobError
from penstock.graph.specs.time_windows import TimeWindows
from penstock.operators.protocol import BoundSide, StepContext
from penstock.operators.windows.window_operator import bind, bind_side
from penstock.windows import Tumbling

WINDOW = Tumbling(seconds(10)).late_to("late")
KEYS = pa.schema([("k", pa.int64())])


def spec_of(window) -> TimeWindows:
    return TimeWindows(window=window, aggregates={"n": agg.count()})


def side(visible: str = "v") -> BoundSide:
    columns = pa.schema([(visible, pa.int64())])
    return BoundSide(name="w", side=0, keys=KEYS, columns=("k",), visible=columns, inputs={})


def test_the_output_has_keys_bounds_and_aggregates() -> None:
    """3.1: in this order."""
    step = bind(spec_of(WINDOW), [bind_side(spec_of(WINDOW), side())], StepContext(name="w", event=True, timed=False))
    assert step.outlets[""].names == ["k", "window_start", "window_end", "n"]


def test_a_column_that_late_rows_get_is_refused() -> None:
    """API: late rows carry `_event_time`, `_watermark` and `_step`."""
    with pytest.raises(JobError, match="_watermark"):
        bind_side(spec_of(WINDOW), side("_watermark"))
