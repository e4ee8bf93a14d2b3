"""SIGTERM and SIGINT end a run inside its deadline, with exit 0 and no half batch (F02, SEMANTICS 10.6)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest
from checkpoint_samples import commit

from penstock.checkpoint.log.entries import SourceProgress
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import ComputeFailed, EngineGone, Fenced, GateStopped
from penstock.runtime.driver.stages import Hook
from penstock.runtime.process.heartbeat import DriverStatus, Heartbeat, StatusRecords
from penstock.runtime.process.runner import Runner
from penstock.runtime.process.signals import Ending, StoppableClock, StopSwitch
from penstock.runtime.process.takeover_policy import StoppedWaiting
from penstock.runtime.restore.target import RestoreTarget
from penstock.sources.backlog import Waiting
from penstock.time.clock import SystemClock

STAGES = ("FixOffsets", "Compute", "CommitBatch", "PublishSinks", "Purge")


class Script:
    """A driver that runs batches of five stages; `at` maps (batch, stage) to what happens inside it."""

    def __init__(self, batches: int, at=None, *, sources=()) -> None:
        self.batches = batches
        self.at = at or {}
        self.finished = False
        self.stopping = False
        self.log: list[str] = []
        self.engine = self
        self.graph = self
        self.sources = sources
        self.listener = None
        self.rates = SimpleNamespace(left={})
        self.cancelled = threading.Event()

    def run(self) -> Iterator[Hook]:
        yield Hook("TakeOver", "done")
        for batch in range(self.batches):
            if self.stopping:
                break
            for stage in STAGES:
                yield Hook(stage, "before", batch)
                self.at.get((batch, stage), lambda: None)()
                self.log.append(f"{stage} {batch}")
                yield Hook(stage, "after", batch)
            self.listener.on_batch_completed(commit(batch, accounting={"source:s": {"read": 10}}))
        else:
            self.finished = True
        yield from self.release()

    def restore(self, start: RestoreTarget) -> Iterator[Hook]:
        self.log.append(f"restore {start.batch}")
        yield Hook("Restore", "after", start.batch)

    def release(self) -> Iterator[Hook]:
        yield Hook("Release", "before")
        self.log.append("released")
        yield Hook("Release", "after")

    def stop(self) -> None:
        self.stopping = True

    def cancel(self) -> None:
        self.cancelled.set()


class Seen:
    """A view of progress that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.told.append(name)


def run(script: Script, *, deadline: float = 60.0, start: RestoreTarget | None = None, left: list | None = None):
    """Run a script to its end, and return the ending with what was shown and the last status."""
    clock, seen = SystemClock(), Seen()
    hanging = {} if left is None else {"grace": 0.2, "leave": left.append}
    switch = StopSwitch(deadline, clock=clock, **hanging)
    records = StatusRecords(MemoryStore(), "orders")
    status = DriverStatus({"writer": "w1"}, clock)
    runner = Runner(switch, clock, seen, status, Heartbeat(records, status))
    script.listener = runner
    runner.heartbeat.start()
    try:
        with switch.armed():
            ending = runner.run(script, script.restore(start) if start else None)
    finally:
        script.told, script.status = seen.told, records.newest().body
        script.runner = runner
    return ending


def send(number):
    """Signal this process, and wait until the signal was heard."""
    os.kill(os.getpid(), number)
    threading.Event().wait(0.05)


def wait_for(event):
    assert event.wait(30)


def test_a_run_without_signals_goes_to_its_end():
    """All batches, then the log is released."""
    script = Script(2)
    assert run(script) is Ending.FINISHED
    assert script.log == [f"{s} {b}" for b in range(2) for s in STAGES] + ["released"]
    assert script.told == ["committed", "committed", "ended"]
    assert (script.runner.batches, script.runner.rows) == (2, 20)
    assert (script.status["state"], script.status["exit_code"], script.status["last"]["batch"]) == ("finished", 0, 1)


@pytest.mark.fault("F02")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stage", STAGES)
def test_the_first_signal_finishes_the_batch_and_leaves(number, stage):
    """Wherever in the batch it comes."""
    script = Script(5, {(1, stage): lambda: send(number)})
    assert run(script) is Ending.STOPPED
    assert script.log == [f"{s} {b}" for b in range(2) for s in STAGES] + ["released"]
    assert script.told == ["committed", "stopping", "committed", "ended"]
    assert script.status["state"] == "stopped"


@pytest.mark.fault("F02")
def test_a_signal_is_heard_by_a_driver_with_many_open_files():
    """Its own descriptors then have numbers over 1,024, which `select` refuses."""
    script = Script(3, {(1, "Compute"): lambda: send(signal.SIGTERM)})
    with ExitStack() as files:
        for _ in range(1_100):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert run(script) is Ending.STOPPED
    assert script.told == ["committed", "stopping", "committed", "ended"]


@pytest.mark.fault("F02")
@pytest.mark.parametrize("stage", STAGES)
def test_at_the_deadline_the_batch_is_given_up(stage):
    """What runs is cancelled, no stage after it is begun, and the log is released."""
    script = Script(5)

    def endure():
        send(signal.SIGTERM)
        wait_for(script.cancelled)

    script.at = {(1, stage): endure}
    assert run(script, deadline=0.05) is Ending.ABANDONED
    assert script.log[-2:] == [f"{stage} 1", "released"]
    assert script.status["state"] == "stopped"


@pytest.mark.fault("F02")
def test_what_the_cancelling_breaks_is_no_error():
    """Spark says that the job was cancelled, as a failure of the batch."""
    script = Script(5)

    def fail():
        send(signal.SIGTERM)
        wait_for(script.cancelled)
        raise ComputeFailed("cancelled")

    script.at = {(1, "Compute"): fail}
    assert run(script, deadline=0.05) is Ending.ABANDONED
    assert script.log[-2:] == ["FixOffsets 1", "released"]


@pytest.mark.fault("F02")
def test_a_jvm_that_got_the_signal_too_is_no_error():
    """Who stops a whole group of processes stops Spark before the batch is done."""

    def fail():
        send(signal.SIGTERM)
        raise EngineGone("the JVM is gone")

    script = Script(5, {(1, "Compute"): fail})
    assert run(script) is Ending.ABANDONED
    assert script.log[-2:] == ["FixOffsets 1", "released"]


def test_an_error_that_cancelling_cannot_cause_is_told():
    """A gate that stops the job at that very moment is not hushed up."""
    script = Script(5)

    def fail():
        send(signal.SIGTERM)
        wait_for(script.cancelled)
        raise GateStopped("check failed")

    script.at = {(1, "CommitBatch"): fail}
    with pytest.raises(GateStopped):
        run(script, deadline=0.05)
    assert script.status["error"]["code"] == GateStopped.code


@pytest.mark.fault("F02")
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_interrupt_is_the_deadline(first):
    """Whoever presses Ctrl-C again does not want to wait."""
    script = Script(5)

    def endure():
        send(first)
        send(signal.SIGINT)
        wait_for(script.cancelled)

    script.at = {(1, "Compute"): endure}
    assert run(script) is Ending.ABANDONED


@pytest.mark.fault("F02")
def test_a_second_sigterm_changes_nothing():
    """Those who supervise send it more than once."""

    def twice():
        send(signal.SIGTERM)
        send(signal.SIGTERM)

    script = Script(5, {(1, "Compute"): twice})
    assert run(script) is Ending.STOPPED
    assert script.log[-2:] == ["Purge 1", "released"]


@pytest.mark.fault("F02")
def test_a_batch_that_cannot_be_cancelled_does_not_keep_the_process():
    """After a grace the process ends with 75: the next driver sees that it is gone."""
    left: list[int] = []
    script = Script(5)

    def hang():
        send(signal.SIGTERM)
        while not left:
            threading.Event().wait(0.01)

    script.at = {(1, "Compute"): hang}
    run(script, deadline=0.05, left=left)
    assert left[0] == 75


def test_an_error_ends_the_run_and_is_in_the_status():
    """The log is not released: its driver did not leave on purpose."""

    def fail():
        raise ComputeFailed("out of memory", where="batch 1")

    script = Script(5, {(1, "Compute"): fail})
    with pytest.raises(ComputeFailed):
        run(script)
    assert script.log[-1] == "FixOffsets 1"
    assert (script.status["state"], script.status["exit_code"]) == ("failed", 75)
    assert script.status["error"] == {
        "code": "PEN-OPR-002", "what": "out of memory", "where": "batch 1", "remedy": ComputeFailed.remedy,
    }  # fmt: skip


def test_an_error_of_penstock_itself_is_in_the_status_too():
    """With exit code 70."""

    def fail():
        raise KeyError("x")

    script = Script(5, {(0, "Compute"): fail})
    with pytest.raises(KeyError):
        run(script)
    assert (script.status["exit_code"], script.status["error"]["what"]) == (70, "KeyError: 'x'")


def test_a_driver_that_was_fenced_writes_no_last_status():
    """The newest record is to be that of the driver that holds the log."""
    release = threading.Event()

    def fenced():
        wait_for(release)
        raise Fenced("epoch 1 has lost the log")

    script = Script(5, {(0, "Compute"): fenced})
    release.set()
    with pytest.raises(Fenced):
        run(script)
    assert script.status["state"] == "running"


def test_a_stop_while_another_driver_is_watched_ends_the_run():
    """Nothing was owned, so nothing is released."""

    def waits():
        raise StoppedWaiting

    script = Script(5, {(0, "FixOffsets"): waits})
    assert run(script) is Ending.STOPPED
    assert script.log == []


def test_a_restore_comes_before_the_run():
    """Its progress is not shown as that of the run."""
    script = Script(1)
    assert run(script, start=RestoreTarget(restore=True, batch=3)) is Ending.FINISHED
    assert script.log[:2] == ["restore 3", "FixOffsets 0"]


def test_rows_left_are_counted_down():
    """From what the source says once, at the start."""

    class Source:
        name = "s"

    script = Script(2, sources=(Source(),))
    script.source = lambda name: SimpleNamespace(
        backlog=lambda after: {"0": Waiting.of_rows(after["row"], 25)},
        position=lambda after, ends: {"row": ends["0"]},
        ended=lambda position: position == {"row": 25},
    )
    progress = SourceProgress(position={"row": 5}, partitions={}, ended=False)

    recovered = replace(recover(Log(MemoryStore())), commit=commit(0, sources={"s": progress}), next_batch=1)
    original = script.run
    script.run = lambda: (script.listener.on_takeover(recovered), original())[1]
    run(script)
    assert script.status["left"] == {"s": 0}
    assert script.told[0] == "took_over"


def test_the_lag_of_a_source_without_an_end_is_what_the_driver_saw_when_it_planned():
    """Nobody is asked for it: a batch and a wait note what was seen last, and what has an end is counted down."""

    class Unbounded:
        name = "s"

    script = Script(1, sources=(Unbounded(),))
    script.source = lambda name: SimpleNamespace(
        backlog=lambda after: {"0": Waiting.of_rows(0, 25)},
        position=lambda after, ends: {},
        ended=lambda position: False,
    )
    recovered = recover(Log(MemoryStore()))
    shown = []

    def points():
        script.listener.on_takeover(recovered)
        shown.append(script.listener.status.body()["left"])
        script.rates.left = {"s": 15}
        script.listener.on_batch_completed(commit(0, accounting={"source:s": {"read": 10}}))
        shown.append(script.listener.status.body()["lag"])
        script.rates.left = {"s": 0, "other": 3}
        yield Hook("Wait", "before")

    script.run = points
    run(script)
    assert shown == [{"s": None}, {"s": 15}]
    assert script.status["lag"] == {"s": 0, "other": 3}


def test_a_clock_stops_waiting_when_asked():
    """For a tick an hour away, and for rows."""
    asked = threading.Event()
    clock = StoppableClock(SystemClock(), asked)
    threading.Timer(0.05, asked.set).start()
    clock.sleep_until(clock.wall() + 3_600_000_000)
    clock.sleep(3_600)
    assert asked.is_set()


def test_a_clock_waits_for_its_tick_otherwise():
    """The tick has come when it returns."""
    clock = StoppableClock(SystemClock(), threading.Event())
    tick = clock.wall() + 30_000
    clock.sleep_until(tick)
    assert clock.wall() >= tick


def test_signals_are_given_back_after_the_run():
    """A process that runs a job does not lose its own."""
    before = signal.getsignal(signal.SIGTERM)
    run(Script(1))
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_a_stop_has_to_say_comes_before_the_end():
    """It is said by another thread, and whoever reads the events would take a stop after the end for another run's."""
    events = []
    switch = StopSwitch(60, clock=SystemClock())
    switch.wait_until_told()  # nothing was heard, so there is nothing to wait for

    def slowly():
        threading.Event().wait(0.2)
        events.append("stopping")

    switch.told = slowly
    with switch.armed():
        switch.ask()
        switch.wait_until_told()
        events.append("ended")
    assert events == ["stopping", "ended"]
