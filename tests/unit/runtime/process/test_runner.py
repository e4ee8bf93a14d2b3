"""A run leaves a record of how it ended, also where its start was refused."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from checkpoint_samples import offsets

from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CannotListen, ComputeFailed, Fenced, PenstockError, SinkSchemaMismatch
from penstock.runtime.driver.stages import Hook
from penstock.runtime.process.heartbeat import DriverStatus, Heartbeat, StatusRecords
from penstock.runtime.process.runner import Runner
from penstock.runtime.process.signals import Ending, StopSwitch
from penstock.time.clock import SystemClock


class Refused:
    """A driver whose start is refused, as soon as it has the log or before."""

    def __init__(self, why: PenstockError, *, owns: bool) -> None:
        self.why, self.owns = why, owns
        self.engine = SimpleNamespace(cancel=lambda: None)
        self.rates = SimpleNamespace(left={})

    def run(self) -> Iterator[Hook]:
        yield Hook("TakeOver", "before")
        if self.owns:
            yield Hook("TakeOver", "after")
        raise self.why


def records_after(why: PenstockError, *, owns: bool) -> StatusRecords:
    """Return the status records of a job after a start that was refused; its driver before held batch 3."""
    records, clock = StatusRecords(MemoryStore(), "orders"), SystemClock()
    records.put({"writer": "w1", "state": "finished", "held": [3]})
    status = DriverStatus({"writer": "w2"}, clock)
    runner = Runner(StopSwitch(60.0, clock=clock), clock, SimpleNamespace(), status, Heartbeat(records, status))
    with pytest.raises(type(why)):
        runner.run(Refused(why, owns=owns))
    return records


def test_a_start_that_is_refused_says_why_in_the_status():
    """Its Takeover is the newest, so a record of another writer tells nothing; held batches stay known."""
    body = records_after(SinkSchemaMismatch("v is another type", where="tables/t"), owns=True).newest().body
    assert (body["writer"], body["state"], body["exit_code"]) == ("w2", "failed", 78)
    assert (body["error"]["code"], body["error"]["where"], body["held"]) == ("PEN-SNK-003", "tables/t", [3])


def test_the_limits_of_a_wait_are_in_the_status():
    """A pause makes no batch, and the operator sees a driver that runs and rows that wait."""
    status = DriverStatus({"writer": "w2"}, SystemClock())
    records = StatusRecords(MemoryStore(), "orders")
    clock = SystemClock()
    runner = Runner(StopSwitch(60.0, clock=clock), clock, SimpleNamespace(), status, Heartbeat(records, status))
    limits, ranges = {"rows": 9, "bound": {"orders": "rows"}}, {"orders": {"end": {"0": 5}, "held_back": ["0"]}}
    runner.on_batch_started(offsets(3, limits=limits, ranges=ranges))
    assert [status.body()[name] for name in ("limits", "held_back")] == [limits, {"orders": ["0"]}]
    runner.on_waiting({"paused": True}, {})
    assert [status.body()[name] for name in ("limits", "held_back")] == [{"paused": True}, {}]


@pytest.mark.parametrize(
    ("why", "ending"),
    [(CannotListen("no receiver can listen"), Ending.ABANDONED), (ComputeFailed("a job was cancelled"), Ending.ABANDONED),
     (SinkSchemaMismatch("v is another type"), None)],
)  # fmt: skip
def test_what_a_stop_has_overtaken_is_no_failure(why, ending):
    """A job that Spark cancelled, and a port that a start waited for. Other errors stay what they are."""
    status, clock = DriverStatus({"writer": "w2"}, SystemClock()), SystemClock()
    switch = StopSwitch(60.0, clock=clock)
    switch.heard = True
    switch._told.set()
    runner = Runner(switch, clock, MagicMock(), status, Heartbeat(StatusRecords(MemoryStore(), "orders"), status))
    driver = Refused(why, owns=True)
    driver.release = lambda: ()
    if ending is None:
        with pytest.raises(type(why)):
            runner.run(driver)
    else:
        assert (runner.run(driver), status.body()["state"], status.body()["error"]) == (ending, "stopped", None)


@pytest.mark.parametrize(
    ("why", "owns"), [(SinkSchemaMismatch("too early"), False), (Fenced("too late"), True)], ids=["before", "fenced"]
)
def test_who_does_not_own_the_log_leaves_the_record_to_its_owner(why, owns):
    """The newest record is that of the driver that owns the log."""
    assert records_after(why, owns=owns).newest().body["writer"] == "w1"
