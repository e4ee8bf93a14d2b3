"""Triggers of the user's see each row in order, and their state is a plain value for each key (SEMANTICS 6)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from trigger_runs import Step, firings

from penstock import count
from penstock.errors import UnfitTriggerState, UserFunctionError, WrongTriggerResult
from penstock.operators.triggers.composed_machines import machine_of
from penstock.operators.triggers.machines import TriggerBatch
from penstock.operators.triggers.row_triggers import RowTriggers
from penstock.time.clock import END_OF_TIME
from penstock.triggers import (
    AfterAll,
    AfterCount,
    AfterEach,
    AfterFirst,
    Moment,
    Purging,
    Repeatedly,
    TriggerResult,
    Wake,
)


class Total:
    """Fires when the values since the last firing come to `most`."""

    def __init__(self, most: float = 10, result: TriggerResult = TriggerResult.FIRE) -> None:
        self.most, self.result = most, result
        self.seen: list[Moment] = []

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Moment) -> None:
        """Add up."""
        self.seen.append(at)
        state["total"] = state.get("total", 0) + row["v"]

    def judge(self, state: dict[str, Any], at: Moment) -> TriggerResult:
        """Fire where it is enough, and begin with 0."""
        self.seen.append(at)
        if state.get("total", 0) < self.most:
            return TriggerResult.CONTINUE
        state["total"] = 0
        return self.result


def values(*given: float) -> Step:
    """Return a batch of rows with these values."""
    return Step([(7, value) for value in given])


def test_it_is_judged_once_a_batch_after_its_rows() -> None:
    """SEMANTICS 6: 4 + 7 + 20 come to 10 once; what a firing leaves in the state counts."""
    assert firings(Total(), [values(4), values(7, 20), values(9), values(1)]) == [None, 3, None, 5]


def test_it_purges_where_it_says_so() -> None:
    """By its result, or in Purging."""
    steps = [values(10), values(10)]
    assert firings(Total(result=TriggerResult.FIRE_AND_PURGE), steps) == [1, 1]
    assert firings(Purging(Total()), steps) == [1, 1]
    assert firings(Total(), steps) == [1, 2]


def test_compositions_finish_it_and_reset_it() -> None:
    """AfterFirst lets it fire once; Repeatedly gives it an empty state; a firing that waits leaves its state alone."""
    assert firings(AfterFirst(Total(), AfterCount(100)), [values(10), values(10)]) == [1, None]
    assert firings(Repeatedly(AfterFirst(Total(), AfterCount(2))), [values(9), values(0), values(9)]) == [None, 2, None]
    assert firings(AfterAll(Total(), AfterCount(3)), [values(10), values(0), values(0)]) == [None, None, 3]
    assert firings(AfterEach(AfterCount(1), Total()), [values(10), values(9), values(1)]) == [1, None, 3]


def test_it_knows_the_clocks_and_the_number_of_rows() -> None:
    """Event time of the row, batch time, watermark, and count; `judge` has no event time."""
    trigger = Total()
    firings(trigger, [Step([(7, 1), (8, 1)], time=100, mark=5)])
    at = [(m.event_time, m.batch_time, m.watermark, m.count) for m in trigger.seen]
    moment = [datetime.fromtimestamp(0, UTC).replace(microsecond=micro) for micro in (5, 7, 8, 100)]
    assert at == [
        (moment[1], moment[3], moment[0], 1),
        (moment[2], moment[3], moment[0], 2),
        (None, moment[3], moment[0], 2),
    ]


@pytest.mark.remedy("PEN-OPR-037")
def test_a_decision_that_is_none_stops_the_batch() -> None:
    """With the key, and with what was returned; a TriggerResult is one."""
    with pytest.raises(WrongTriggerResult, match=r"returned True for key 'b'"):
        firings(Total(result=True), [values(10)])  # type: ignore[arg-type]
    assert firings(Total(result=TriggerResult.FIRE), [values(10)]) == [1]


def test_an_error_of_the_trigger_names_key_and_line() -> None:
    """The user's own line."""
    with pytest.raises(UserFunctionError, match=r"on_row of key 'b'.*test_row_triggers"):
        firings(Total(), [Step([(0, None)])])


class Set(Total):
    """A trigger whose state is what a test says."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Moment) -> None:
        """Keep the value."""
        state["value"] = self.value


def kept(trigger: Any, texts: list[str] | None = None) -> list[list[str]]:
    """Return the states as they are kept, after one row of one key."""
    own = RowTriggers("w", [texts])
    machine = machine_of(trigger, own)
    batch = TriggerBatch(
        total=1, ids=np.array([0]), times=np.array([0]), held=np.array([1]), time=0, rows=lambda: [{"v": 2.5}]
    )
    machine.take(np.zeros((1, machine.width), dtype=np.int64), batch, np.array([True]))
    return own.texts()


def test_the_state_is_json_and_is_read_again() -> None:
    """One text for each trigger of the window; an empty state costs nothing."""
    assert kept(Total()) == [['{"total": 2.5}']]
    assert kept(Total(), ['{"total": 4}']) == [['{"total": 6.5}']]
    assert kept(AfterFirst(Total(), Set([1, {"a": None}]), AfterCount(count(9)))) == [
        ['{"total": 2.5}', '{"value": [1, {"a": null}]}']
    ]


@pytest.mark.parametrize(
    "value",
    [(1, 2), {1: 2}, {1}, datetime(2020, 1, 1, tzinfo=UTC), np.int64(3), [b"x"]],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.remedy("PEN-OPR-038")
def test_a_state_that_json_does_not_give_back_stops_the_batch(value: object) -> None:
    """A tuple would come back as a list; what the remedy names is kept."""
    with pytest.raises(UnfitTriggerState, match="which JSON does not keep"):
        kept(Set(value))
    assert kept(Set([None, True, 1, 2.5, "a", {"b": []}]))


class Waking(Total):
    """A trigger that wants to be woken."""

    def __init__(self, wake: object) -> None:
        super().__init__()
        self.wake = wake

    def due(self, state: dict[str, Any]) -> Any:
        """Return what a test says."""
        return self.wake


def test_it_says_when_it_is_due() -> None:
    """By the watermark or the batch time, never for what is over; anything but a Wake stops the batch."""
    ten = datetime.fromtimestamp(10, UTC)
    batch = TriggerBatch(total=1, ids=np.array([0]), times=np.array([0]), held=np.array([1]), time=5, watermark=10**7)
    slots = np.zeros((1, 0), dtype=np.int64)
    for wake, expected in [
        (Wake(watermark=ten, time=ten), (END_OF_TIME, 10**7)),
        (Wake(), (END_OF_TIME, END_OF_TIME)),
        (None, (END_OF_TIME, END_OF_TIME)),
    ]:
        dues = machine_of(Waking(wake), RowTriggers("w", [None])).dues(slots, batch)
        assert (int(dues.watermark[0]), int(dues.time[0])) == expected
    for wrong in (ten, Wake(time=datetime(2020, 1, 1)), Wake(watermark=5)):  # noqa: DTZ001 - what is refused  # type: ignore[arg-type]
        with pytest.raises(WrongTriggerResult, match="not a Wake"):
            machine_of(Waking(wrong), RowTriggers("w", [None])).dues(slots, batch)
