"""Run a job's driver from start to end: signals, deadline, heartbeat, progress. What a batch is, the driver knows."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from penstock.checkpoint.log.batch_report import BatchReport
from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.recovery import Recovered
from penstock.errors import CannotListen, ComputeFailed, EngineGone, Fenced
from penstock.runtime.driver.admission import held_back_of
from penstock.runtime.driver.stages import Hook
from penstock.runtime.process.heartbeat import DriverStatus, Heartbeat
from penstock.runtime.process.progress import ProgressView, rows_left
from penstock.runtime.process.signals import Ending, StopSwitch
from penstock.runtime.process.takeover_policy import StoppedWaiting
from penstock.runtime.spark.errors import naming_the_dead
from penstock.time.clock import Clock

if TYPE_CHECKING:
    from penstock.runtime.driver.loop import Driver

__all__ = ["Runner"]

log = structlog.get_logger()


@dataclass
class Runner(Listener):
    """Step a driver through its run; it is one of the listeners that the driver was given."""

    switch: StopSwitch
    clock: Clock
    progress: ProgressView
    status: DriverStatus
    heartbeat: Heartbeat
    batches: int = 0
    rows: int = 0
    _left: dict[str, int | None] = field(default_factory=dict)
    _timings: dict[str, float] = field(default_factory=dict)
    _entered: float = 0.0
    _began: float = 0.0
    _driver: Driver | None = None
    _restoring: bool = False

    def run(self, driver: Driver, back: Iterator[Hook] | None = None, *, goes_on: bool = True) -> Ending:
        """Run until the driver is done, a stop is requested, or an error ends it.

        `back` are the points of a restore, which comes first; without `goes_on` that is all.

        Raises what the driver raises, except failures of Spark after a request to stop.
        """
        self._driver = driver
        self.switch.cancel = driver.engine.cancel
        self.switch.told = partial(self._stopping, driver)
        started = self.clock.monotonic()
        try:
            with naming_the_dead():
                ending = self._restore_and_run(driver, back, goes_on=goes_on)
        except Exception as why:
            self._end("failed", why)
            raise
        self._end("finished" if ending is Ending.FINISHED else "stopped", None)
        self.switch.wait_until_told()
        self.progress.ended(ending, batches=self.batches, rows=self.rows, seconds=self.clock.monotonic() - started)
        return ending

    def _restore_and_run(self, driver: Driver, back: Iterator[Hook] | None, *, goes_on: bool) -> Ending:
        if back is not None:
            self._restoring = True
            self._step(driver, back)
            self._restoring = False
            if self.switch.asked.is_set():
                return Ending.STOPPED
            if not goes_on:
                return Ending.RESTORED
        return self._step(driver, driver.run())

    # --- what the driver tells ---------------------------------------------------------------

    def on_takeover(self, recovered: Recovered) -> None:
        """Begin the heartbeat, and show the state of the job."""
        # First of all: from here on others look for a sign of life.
        self.status.on_takeover(recovered, {})
        self.heartbeat.start()
        if self._driver is not None and not self._restoring:
            self._left = rows_left(self._driver.engine, recovered.commit)
            self.status.on_takeover(recovered, dict(self._left))
            self.progress.took_over(recovered, self._left)

    def on_answered(self, command: str) -> None:
        """Show that another try of the command has restored meanwhile."""
        self.progress.answered(command)

    def on_batch_started(self, offsets: Offsets) -> None:
        """Note by which limits a batch was admitted."""
        self.status.on_limits(offsets.limits, held_back_of(offsets.ranges))

    def on_waiting(self, limits: Mapping[str, Any], held_back: Mapping[str, Sequence[str]]) -> None:
        """Note by which limits there is no batch: a pause makes none that would tell."""
        self.status.on_limits(limits, held_back)

    def on_batch_completed(self, commit: Commit) -> None:
        """Count a batch and show it."""
        report = BatchReport.of(commit)
        for source, rows in report.read.items():
            known = self._left.get(source)
            if known is not None:
                self._left[source] = known - rows
        self.batches += 1
        self.rows += report.rows
        ms = (self.clock.monotonic() - self._began) * 1000
        self.status.on_progress(commit, ms=ms, left=dict(self._left))
        lag = self._note_lag()
        self.heartbeat.wake()
        left = {name: lag.get(name) if rows is None else rows for name, rows in self._left.items()}
        self.progress.committed(commit, ms=ms, timings=dict(self._timings), left=left)

    def on_receivers(self, states: Sequence[dict[str, Any]]) -> None:
        """Show how the receivers are."""
        self.status.on_receivers(states)

    def on_data_checkpoint(self, event: dict[str, Any]) -> None:
        """Show the newest data checkpoint, and when the next one is due."""
        self.status.on_data_checkpoint(event)

    # --- inside ------------------------------------------------------------------------------

    def _step(self, driver: Driver, points: Iterator[Hook]) -> Ending:
        try:
            for hook in points:
                self._note(hook)
                if self.switch.asked.is_set():
                    driver.stop()
                if self.switch.expired.is_set() and hook.stage != "Release":
                    return self._abandon(driver, points)
        except StoppedWaiting:
            return Ending.STOPPED
        except Exception as why:
            # Also before the deadline: who stops a whole group of processes stops the JVM as well, as systemd does.
            if not self.switch.heard or not _may_be_from_stopping(why):
                raise
            if not self.switch.expired.is_set():  # else it was cancelled
                log.warning("run.failed_while_stopping", reason=f"{type(why).__name__}: {why}")
            return self._abandon(driver, points)
        return Ending.FINISHED if driver.finished else Ending.STOPPED

    def _abandon(self, driver: Driver, points: Iterator[Hook]) -> Ending:
        """Leave the batch as it is: its Offsets, or its Commit, are in the log, and the next start resumes it."""
        if isinstance(points, Generator):
            points.close()
        for _ in driver.release():
            pass
        return Ending.ABANDONED

    def _note_lag(self) -> dict[str, int]:
        """Note what sources without an end have left, as the driver saw it when it last planned: it asks nobody."""
        planned = {} if self._driver is None else self._driver.rates.left
        lag = {name: rows for name, rows in planned.items() if self._left.get(name) is None}
        self.status.on_lag(lag)
        return lag

    def _note(self, hook: Hook) -> None:
        self.status.on_hook(hook)
        if (hook.stage, hook.when) == ("TakeOver", "after"):
            self.heartbeat.owned = True  # a start may be refused before the listeners hear of the takeover
        if hook.stage == "Wait":
            self._note_lag()
        now = self.clock.monotonic()
        if hook.when == "before":
            self._entered = now
            if hook.stage == "FixOffsets" or (hook.stage == "Compute" and "FixOffsets" not in self._timings):
                self._began, self._timings = now, {}
        elif hook.when == "after":
            self._timings[hook.stage] = round((now - self._entered) * 1000, 1)

    def _stopping(self, driver: Driver) -> None:
        driver.stop()
        self.progress.stopping(self.switch.deadline)

    def _end(self, state: str, error: Exception | None) -> None:
        self.status.end(state, error)
        # A fenced driver does not hold the log: the newest record is to be its holder's.
        self.heartbeat.stop(last=not isinstance(error, Fenced))


def _may_be_from_stopping(why: Exception) -> bool:
    """Return whether an error may be left to a stop: what stopping Spark can have caused, and a port waited for."""
    of_spark = type(why).__module__.partition(".")[0] in ("py4j", "pyspark")
    return of_spark or isinstance(why, ComputeFailed | EngineGone | ConnectionError | CannotListen)
