"""What the ready-made triggers of a global window take, and what the graph knows of them (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import count, seconds
from penstock.errors import BadExpression, JobError
from penstock.state import EVENT
from penstock.triggers import AfterCount, AfterDelta, AfterEventTime, AfterProcessingTime, AtEnd, Every, Never

TRIGGERS: dict[str, Any] = {
    "AfterCount(3)": AfterCount(count(3)),
    "AfterProcessingTime(5 s)": AfterProcessingTime(seconds(5)),
    "AfterEventTime(5 s)": AfterEventTime(seconds(5)),
    "AfterDelta('v * 2', 0.5)": AfterDelta("v * 2", 0.5),
    "Every(count(3))": Every(count(3)),
    "Every(5 s)": Every(seconds(5)),
    "Every(5 s, clock=EVENT)": Every(seconds(5), clock=EVENT),
    "AtEnd()": AtEnd(),
    "Never()": Never(),
}


@pytest.mark.parametrize("text", TRIGGERS)
def test_a_trigger_prints_as_the_job_writes_it(text: str) -> None:
    """Its text is what the state says of it, too."""
    assert str(TRIGGERS[text]) == text


def test_the_graph_knows_which_fire_finish_and_go_by_event_time() -> None:
    """Every goes on for ever; AtEnd and Never do not fire while rows come."""
    assert {text for text, t in TRIGGERS.items() if not t.fires} == {"AtEnd()", "Never()"}
    assert {text for text, t in TRIGGERS.items() if not t.finishes} == {
        *(t for t in TRIGGERS if "Every" in t),
        "Never()",
    }
    assert {text for text, t in TRIGGERS.items() if t.event} == {
        "AfterEventTime(5 s)",
        "Every(5 s, clock=EVENT)",
        "AtEnd()",
    }
    assert TRIGGERS["AfterDelta('v * 2', 0.5)"].reads == ("v * 2",)
    assert not any(trigger.purges for trigger in TRIGGERS.values())


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: AfterCount(0), id="no rows"),
        pytest.param(lambda: AfterCount(rows=True), id="a boolean"),
        pytest.param(lambda: AfterProcessingTime(5), id="an int as a delay"),
        pytest.param(lambda: AfterEventTime(seconds(-1)), id="a delay below 0"),
        pytest.param(lambda: AfterDelta("v", -1), id="a threshold below 0"),
        pytest.param(lambda: AfterDelta("v", float("nan")), id="NaN as a threshold"),
        pytest.param(lambda: AfterDelta("v", "1"), id="a text as a threshold"),
        pytest.param(lambda: Every(3), id="an int as a period"),
        pytest.param(lambda: Every(seconds(0)), id="a period of 0"),
        pytest.param(lambda: Every(count(3), clock=EVENT), id="a clock of rows"),
        pytest.param(lambda: Every(seconds(3), clock="event"), id="a text as a clock"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_users_line(wrong: Callable[[], object]) -> None:
    """A bare int is no duration, as everywhere."""
    with pytest.raises(JobError) as refused:
        wrong()
    assert __file__ in str(refused.value)


def test_a_delta_needs_an_expression() -> None:
    """Text that Spark cannot parse is refused when the job starts."""
    with pytest.raises(BadExpression):
        AfterDelta(" ", 1)
