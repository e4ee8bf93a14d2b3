"""Listeners of a job hear of each batch in order, and can harm none (API: `job.listen`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_samples import commit, offsets
from structlog.testing import capture_logs

from penstock import BatchInfo, Job
from penstock.runtime.process.batch_events import BatchEvents
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.time.clock import ManualClock

pytestmark = pytest.mark.spark


class Notes:
    """Note each event."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, BatchInfo]] = []

    def on_batch_submitted(self, info: BatchInfo) -> None:
        self.heard.append(("submitted", info))

    def on_batch_started(self, info: BatchInfo) -> None:
        self.heard.append(("started", info))

    def on_batch_completed(self, info: BatchInfo) -> None:
        self.heard.append(("completed", info))


class Deaf:
    """Hear one event, and fail."""

    def on_batch_started(self, info: BatchInfo) -> None:
        raise ZeroDivisionError(f"in batch {info.batch}")


def heard_job(*listeners: object) -> Job:
    """Return a job that copies rows, with listeners."""
    job = Job("heard")
    job.source("s", MemorySource("x int")).write("out", MemorySink())
    for listener in listeners:
        job.listen(listener)
    return job


def test_each_batch_is_submitted_started_and_completed(tmp_path: Path) -> None:
    """With its rows at the end, and with delays."""
    notes = Notes()
    with Harness(heard_job(notes), tmp_path) as h:
        h.batch({"s": [{"x": 1}, {"x": 2}]})
        h.batch({"s": [{"x": 3}]})
    assert [(event, info.batch) for event, info in notes.heard] == [
        (event, batch) for batch in (0, 1) for event in ("submitted", "started", "completed")
    ]
    assert {(info.rows, info.output) for event, info in notes.heard if event != "completed"} == {(None, None)}
    _, last = notes.heard[-1]
    assert (last.rows, last.output) == ({"s": 1}, {"out": 1})
    assert last.total_delay is not None
    assert last.total_delay >= 0
    assert last.late_by is not None


def test_a_completed_batch_says_how_busy_the_job_is() -> None:
    """As status reads it in the Commits of this driver: two batches are the least that advise on cores."""
    notes = Notes()
    events = BatchEvents([notes], ManualClock(9_000_000))
    for batch in range(3):
        load = {"late_ms": 250.0, "waiting": 1_500, "task_ms": 1_500, "gc_ms": 150, "spilled_bytes": 9} if batch else {}
        events.on_batch_submitted(offsets(batch))
        counts = {"source:orders": {"read": 1_000}}
        events.on_batch_completed(commit(batch, accounting=counts, load=load))
    infos = [info for event, info in notes.heard if event == "completed"]
    assert [(i.late_by, i.waiting, i.gc_share, i.spilled_bytes, i.cores) for i in infos] == [
        (None, None, None, None, None), (0.25, 1_500, 0.1, 9, None), (0.25, 1_500, 0.1, 9, 2),
    ]  # fmt: skip
    assert all(info.cores is None for event, info in notes.heard if event != "completed")


def test_a_listener_that_fails_is_logged_and_harms_nothing(tmp_path: Path) -> None:
    """Others hear what they would have heard."""
    notes = Notes()
    with Harness(heard_job(Deaf(), notes), tmp_path) as h, capture_logs() as events:
        assert h.batch({"s": [{"x": 1}]})["out"] == [{"x": 1}]
    assert len(notes.heard) == 3
    (failed,) = [event for event in events if event["event"] == "listener.failed"]
    assert (failed["event_name"], failed["batch"]) == ("on_batch_started", 0)
    assert "in batch 0" in failed["error"]


def test_a_batch_that_was_begun_before_a_crash_is_started_and_completed(tmp_path: Path) -> None:
    """It counts as submitted when the driver takes it up."""
    notes = Notes()
    with Harness(heard_job(notes), tmp_path) as h:
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch({"s": [{"x": 1}]})
        notes.heard.clear()
        h.restart()
        assert [event for event, _ in notes.heard] == ["started", "completed"]
