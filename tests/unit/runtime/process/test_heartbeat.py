"""A driver's heartbeat goes on beside it, survives the store's failures, and ends by itself (DESIGN 4)."""

from __future__ import annotations

import threading
import time

import pytest
from checkpoint_samples import commit
from structlog.testing import capture_logs

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import StorageUnavailable
from penstock.runtime.driver.stages import Hook
from penstock.runtime.process.heartbeat import DriverStatus, Heartbeat, StatusRecords
from penstock.time.clock import SystemClock


class Flaky:
    """Records whose store fails for the first `failures` puts."""

    def __init__(self, records: StatusRecords, failures: int) -> None:
        self._records = records
        self.failures = failures
        self.put_again = threading.Event()

    def put(self, body):
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("no route to the store")
        seq = self._records.put(body)
        self.put_again.set()
        return seq


@pytest.fixture
def records():
    return StatusRecords(MemoryStore(), "orders")


def status() -> DriverStatus:
    return DriverStatus({"writer": "w1", "holder": "h:1:2"}, SystemClock())


def until(condition):
    """Wait until something has happened in the other thread."""
    for _ in range(3_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def test_it_beats_without_news_and_sooner_with(records):
    """The number goes up though nothing is committed; a commit is in a record soon after."""
    now = status()
    heart = Heartbeat(records, now, every=0.05, least=0.01)
    heart.start()
    until(lambda: (records.newest_of("w1") or 0) >= 3)
    now.on_progress(commit(7, accounting={"source:s": {"read": 50}}), ms=100.0, left={"s": None})
    heart.wake()
    until(lambda: records.newest().body.get("last", {}).get("batch") == 7)
    heart.stop()
    body = records.newest().body
    assert (body["writer"], body["state"], body["ms"]) == ("w1", "running", 100.0)


class Hands(SystemClock):
    """A clock that is moved by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def batches_of(driver_status: DriverStatus, clock: Hands, *, count: int, every: float, rows: int = 400) -> None:
    """Have a batch of so many rows come so often, each of them computed in an instant."""
    for number in range(count):
        clock.now += every
        driver_status.on_progress(commit(number, accounting={"source:s": {"read": rows}}), ms=1.0, left={})


def test_rows_a_second_are_of_the_time_that_passed_with_its_waits():
    """400 rows every 3 s are 133 rows a second, however fast a batch computes (issue 17, finding 19)."""
    clock = Hands()
    driver_status = DriverStatus({}, clock)
    driver_status.on_takeover(recover(Log(MemoryStore())), {})
    assert driver_status.body()["rows_per_second"] is None
    batches_of(driver_status, clock, count=100, every=3.0)
    assert driver_status.body()["rows_per_second"] == pytest.approx(400 / 3, rel=0.01)
    clock.now += 60  # nothing comes for a minute
    assert driver_status.body()["rows_per_second"] == pytest.approx(10 * 400 / 90, rel=0.01)


def test_rows_a_second_of_rare_batches_are_of_the_last_ten():
    """Else the number would jump with each batch."""
    clock = Hands()
    driver_status = DriverStatus({}, clock)
    driver_status.on_takeover(recover(Log(MemoryStore())), {})
    batches_of(driver_status, clock, count=30, every=300.0)
    assert driver_status.body()["rows_per_second"] == pytest.approx(400 / 300, rel=0.1)


def test_only_the_writer_asked_for_counts(records):
    """The record of another driver is no sign of life of this one."""
    records.put(status().body())
    assert (records.newest_of("w1"), records.newest_of(None), records.newest_of("w2")) == (0, 0, None)


def test_it_writes_nothing_before_it_is_started_nor_after_it_was_stopped(records):
    """A driver that waits for its turn must not look like the holder."""
    heart = Heartbeat(records, status(), every=0.01, least=0.001)
    heart.stop()
    assert records.newest() is None
    heart = Heartbeat(records, status(), every=0.01, least=0.001)
    heart.start()
    until(lambda: records.newest() is not None)
    heart.stop(last=False)
    seen = records.newest().seq
    time.sleep(0.1)
    assert records.newest().seq == seen
    assert not [t for t in threading.enumerate() if t.name == "penstock-heartbeat"]


def test_the_last_record_says_how_it_ended(records):
    """Written by the one who stops it."""
    now = status()
    heart = Heartbeat(records, now, every=60)
    heart.start()
    now.on_hook(Hook("Compute", "before", 3))
    now.end("stopped")
    heart.stop()
    body = records.newest().body
    assert (body["state"], body["stage"]["name"], body["stage"]["batch"]) == ("stopped", "Compute", 3)


def test_a_store_that_fails_is_told_of_once_and_tried_again(records):
    """The driver goes on meanwhile: its log is what counts."""
    flaky = Flaky(records, failures=3)
    heart = Heartbeat(flaky, status(), every=0.02, least=0.001)
    with capture_logs() as events:
        heart.start()
        assert flaky.put_again.wait(30)
        heart.stop()
    assert [(e["event"], e["log_level"]) for e in events] == [("status.not_written", "warning")]
    assert "no route to the store" in events[0]["reason"]
    assert records.newest() is not None


def test_old_records_are_pruned():
    """A driver that runs for a year leaves a few hundred files."""
    store = MemoryStore()
    records = StatusRecords(store, "orders")
    for _ in range(300):
        records.put({"writer": "w1"})
    assert records.newest().seq == 299
    assert len(store.list("_control/status/orders")) < 150


def test_data_that_waits_is_in_the_status_until_it_is_committed():
    """A batch that goes from stage to stage is no progress before its Commit; a pending one counts from Compute on."""
    for first in ("FixOffsets", "Compute"):
        driver_status = status()
        assert driver_status.body()["waits_since"] is None
        driver_status.on_hook(Hook(first, "before", 1))
        began = driver_status.body()["waits_since"]
        for stage in ("Compute", "CommitBatch"):
            driver_status.on_hook(Hook(stage, "before", 1))
            assert driver_status.body()["waits_since"] == began
        driver_status.on_hook(Hook("CommitBatch", "after", 1))
        assert driver_status.body()["waits_since"] is None


def test_a_record_has_the_limits_in_force_and_the_rule_that_bound_each_source(records):
    """SEMANTICS 8: as the Offsets of the newest batch have them, with the partitions that it left rows in."""
    now = status()
    first = {"rows": 2_000, "max_rate": 50, "rate": 90.5, "bound": {"orders": "max_rate"}}
    seen = []
    for told in ((first, {"orders": ["0"]}), ({"paused": True}, {})):
        heart = Heartbeat(records, now, every=60)
        heart.start()
        now.on_limits(*told)
        heart.stop()
        body = records.newest().body
        seen.append((body["limits"], body["held_back"]))
    assert seen == [(first, {"orders": ["0"]}), ({"paused": True}, {})]
