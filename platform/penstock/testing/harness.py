"""Run a job batch by batch in a test: the real driver loop, stages and Spark, over scripted sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import CannotRestore, JobError, PenstockError, UnknownName
from penstock.graph.durations import Duration, duration_micros
from penstock.graph.job import Job
from penstock.graph.names import checked_name
from penstock.graph.nodes import SinkNode
from penstock.graph.source_location import job_error
from penstock.quality.suite import find_suites
from penstock.runtime.driver.loop import Driver, DriverSettings
from penstock.runtime.driver.next_batch import spans_of
from penstock.runtime.driver.stages import Hook
from penstock.runtime.process.job_run import JobRun
from penstock.runtime.restore.execute import restore
from penstock.runtime.tasks.state_stage import state_rows
from penstock.sinks.staged_files import read_staged
from penstock.testing.arguments import (
    Crashed,
    Marks,
    checked_feed,
    checked_hook,
    checked_time,
    memory_sources,
    micros,
    refuse_unknown,
    start_from,
    trigger_of,
)
from penstock.testing.endpoints import hand_over, shown, with_late_sinks, without_settling
from penstock.testing.environment import project_quality, session_of_tests
from penstock.time.clock import ManualClock
from penstock.time.triggers import Trigger

__all__ = ["Crashed", "Harness"]

Row = dict[str, Any]
Fed = Sequence[Row] | Sequence[Sequence[Row]]


class Harness:
    """Run a job in a test.

    `root` is the checkpoint root; `zero` the job's zero time in seconds since 1970.
    A job with an interval has batches at its ticks. One without runs as fast as possible, as in production. `interval`,
    by default a second, is how far the harness's clock moves for each of its batches, and no tick makes one due. A job
    that needs ticks takes an `interval` that is given for its own. The first batch has time `zero + interval`.
    `quality` is the folder of the suites; without it, conf/quality of the project that the current folder is in.
    Receivers run, as beside a driver of production, until the harness leaves, crashes or drains.
    Harnesses in one process share one Spark session, which ends with the process.
    """

    def __init__(
        self,
        job: Job,
        root: str | Path | CheckpointFolder,
        *,
        interval: Duration | None = None,
        zero: float = 0,
        quality: str | Path | None = None,
        settings: DriverSettings | None = None,
    ) -> None:
        folder = root_of(root, project=Path.cwd())  # tasks may run in another folder, and a store follows no link
        self.root: CheckpointFolder = folder.resolve() if isinstance(folder, Path) else folder
        self.settings = replace(settings or DriverSettings(debug=True), stage_rows=True)
        self.job = job
        self._interval = (
            None if interval is None else duration_micros(interval, "the interval of a harness", least=1_000)
        )
        self._zero = micros(zero)
        self._clock = ManualClock(self._zero)
        self._quality = project_quality() if quality is None else Path(quality).resolve()
        self._asked: int | None = None
        self._stop_at: tuple[str, str] | None = None
        # The job with a sink on each late stream, without which its graph may be refused, and their names.
        self._seen, self._late = job, dict[str, str]()
        # What sinks got and no call has returned yet, and the batches, by checkpoint, whose rows were taken down.
        self._fresh: dict[str, list[Row]] = {}
        self._noted: set[tuple[str, int]] = set()
        # How the driver ended by itself, whether that left a call unfinished, and the newest batch it began.
        self._crashed = self._cut_short = False
        self._failure: BaseException | None = None
        self._begun: int | None = None
        self._run: JobRun | None = None
        self._points: Iterator[Hook] | None = None

    def __enter__(self) -> Self:
        """Start the driver."""
        self._begin()
        self._fresh = {}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave the log as a driver that was asked to stop would."""
        if kind is not None:
            self._stop_at = None
        with suppress(*() if kind is None else (PenstockError,)):  # what ended the test counts
            self._leave()

    # --- running -----------------------------------------------------------------------------

    def batch(
        self,
        rows: Mapping[str, Fed] | None = None,
        *,
        at: float | datetime | None = None,
        watermark: Marks = None,
        follow: bool = True,
    ) -> dict[str, list[Row]]:
        """Run one batch, and with `follow` every batch without data that it makes due (SEMANTICS 2.2).

        `rows` maps sources to rows, or to a list of rows for each partition. `at` is the batch time and `watermark`
        what the memory sources report from now on, or those that it maps to one, all in seconds since 1970.
        Without `at` the next multiple of the interval is taken, from the zero time.
        Returns the rows that each sink got, in the order of the batches.
        Raises Crashed at a requested crash, and JobError if the last call failed or crashed.
        """
        self._check_alive()
        fed, marks = checked_feed(self._driver().engine, rows, watermark)
        if self._driver().owned is None and (fed or at is not None or watermark is not None):
            raise job_error("nothing is left to do, and the driver has ended; call restart() first")
        batch_time = None if at is None else checked_time(micros(at), self._driver(), self._zero)
        self._ask(batch_time)
        for name, source in memory_sources(self._driver().engine.graph).items():
            source.watermark = marks.get(name, source.watermark)
            if not source.ended:
                source.feed(fed.get(name, []))
        self._fresh, self._cut_short = {}, True
        with self._watched():
            if self._one() and follow:
                self._follow()
        return self._returned()

    def run(self) -> dict[str, list[Row]]:
        """Run until nothing is left to do but to wait: until bounded sources have ended, or all that was fed is read.

        What only time makes due is left for `batch`, which moves time.
        """
        self._check_alive()
        self._ask(None)
        self._fresh, self._cut_short = {}, True
        with self._watched():
            self._follow(rows=True)
        return self._returned()

    def end(self, *sources: str) -> None:
        """End memory sources after the rows that were fed; the next `batch` or `run` ends them."""
        known = memory_sources(self._driver().engine.graph)
        refuse_unknown(sources, known)
        for name in sources:
            known[name].end()

    def drain(self) -> dict[str, list[Row]]:
        """Read what is there, close all windows and end the driver, as `penstock run --drain` (SEMANTICS 10.6)."""
        self._check_alive()
        self._driver().drain()
        return self.run()

    def crash_after(self, stage: str) -> None:
        """Crash the driver after this stage of the next batch."""
        self.crash_at(stage, "after")

    def crash_before(self, stage: str) -> None:
        """Crash the driver before this stage of the next batch."""
        self.crash_at(stage, "before")

    def crash_at(self, stage: str, when: str) -> None:
        """Crash the driver at a hook of the loop, also inside a stage: `("TakeOver", "claimed")`."""
        self._stop_at = checked_hook(stage, when)

    def restart(self, job: Job | None = None) -> dict[str, list[Row]]:
        """Start a new driver over the same checkpoint, with other code if given.

        What a crash or an error cut short is finished: the batch, and the batches without data that it makes due.
        Memory sources and sinks of a new job continue from those of the old one with the same names. Returns the rows
        of each sink that no call has returned yet.
        """
        self._change_to(job)
        self._begin()
        return self._returned()

    def restore(
        self,
        *,
        batch: int | None = None,
        saved: str | None = None,
        snapshot: str | None = None,
        empty: bool = False,
        partitions: int | None = None,
        state: Mapping[str, str | Path] | None = None,
        truncate_sinks: bool = False,
        job: Job | None = None,
    ) -> None:
        """Restore state and positions of a kept batch, a savepoint, a snapshot, or of nothing.

        `partitions` and `state`, a Delta table for each step named, rewrite the state, by default of the newest batch.
        `job` is as in `restart`. `truncate_sinks` restores Delta tables to that batch too.
        Raises CannotTruncate, and CannotRestore for what is not kept; the job then resumes as if restarted.
        """
        start = start_from(
            batch, saved, snapshot, empty=empty, partitions=partitions, state=state or {}, truncate=truncate_sinks
        )
        self._change_to(job)
        try:
            with self._watched():
                self._crashed, self._failure = False, None
                self._run = self._open()
                for hook in restore(self._run.driver, start):
                    self._note(hook)
        except CannotRestore:
            self._begin()
            raise
        self._cut_short, self._fresh = False, {}
        self._begin()

    def save(self, name: str) -> None:
        """Give the newest checkpoint a name, under which it is kept; raises CannotSave, BadName for what is no name."""
        checked_name(name, "a saved checkpoint")
        self._driver().save(name)

    # --- looking -----------------------------------------------------------------------------

    def commit(self) -> Commit:
        """Return the newest Commit of the log."""
        commit = self._driver().commit
        if commit is None:
            raise JobError("no batch was committed yet")
        return commit

    def state(self, step: str) -> list[Row]:
        """Return a step's state: the keys, `slice_start`, and the partial aggregates of each slice."""
        run = self._running()
        if step not in run.engine.built.steps:
            raise job_error(f"{step!r} has no state; there is that of {list(run.engine.built.steps)}", UnknownName)
        return state_rows(run.engine.built.steps[step], run.engine.state_folder, step, run.driver.commit)

    def output(self) -> dict[str, list[Row]]:
        """Return all rows that each memory sink, Delta table and local folder shows; of other sinks none."""
        return {node.name: shown(node.sink) for node in self._sinks()}

    def late(self, name: str) -> list[Row]:
        """Return all rows of a late stream so far, whatever the job does with it."""
        run = self._running()
        for node in run.engine.graph.sinks:
            if node.name == self._late.get(name):
                return list(node.sink.rows(app=run.driver.app(node.name)))
        raise job_error(f"no window sends late rows to {name!r}; there is {list(self._late)}", UnknownName)

    # --- inside ------------------------------------------------------------------------------

    def _open(self) -> JobRun:
        self._seen, self._late = with_late_sinks(self.job)
        run = JobRun.open(
            self._seen,
            session_of_tests(),
            root=self.root,
            clock=self._clock,
            trigger=self._trigger(),
            suites=find_suites(self._seen.graph(), self._quality),
            settings=self.settings,
        )
        return without_settling(run)

    def _begin(self) -> None:
        """Start a driver; after a crash or an error it does what was left to do."""
        self._crashed, self._failure, self._run, self._points = False, None, None, None
        with self._watched():
            self._run = self._open()
            self._points = self._run.driver.run()
            for hook in self._points:
                self._note(hook)
                if (hook.stage, hook.when) == ("TakeOver", "done"):
                    self._run.receivers.begin()
                    break
            if self._cut_short:
                if self._begun == self._run.driver.next_id:  # the takeover has finished what is in the log
                    self._one()
                self._follow()
        self._cut_short = False

    def _change_to(self, job: Job | None) -> None:
        self._leave()
        if job is not None and job is not self.job:
            hand_over(self.job, job)
            self.job = job

    def _leave(self) -> None:
        if self._run is None:
            return
        driver = self._run.driver
        with closing(self._run.receivers), suppress(*() if self._failure is None else (PenstockError,)):
            if driver.owned is not None and not self._crashed:
                driver.stop()
                for hook in driver.release():
                    self._note(hook)
        self._run, self._points = None, None

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Note that the driver has ended where it raises, and its receivers with it."""
        try:
            yield
        except BaseException as error:
            self._failure = None if isinstance(error, Crashed) else error
            if self._run is not None:
                self._run.receivers.close()
            raise

    def _one(self) -> bool:
        """Run one batch, and return whether there was one: False when the driver waits or has ended."""
        assert self._points is not None
        for hook in self._points:
            self._note(hook)
            if hook.stage == "Wait":
                return False
            if (hook.stage, hook.when) == ("Purge", "after"):
                return True
        return False

    def _follow(self, *, rows: bool = False) -> None:
        """Run the batches without data that are due, or with `rows` all; then look whether the driver waits or ends."""
        while self._driver().owned is not None:
            planned = self._driver().plan_next()
            offsets = None if planned is None else planned.offsets
            reads = offsets is not None and any(span is not None for span in spans_of(offsets).values())
            if (reads and not rows) or (planned is not None and not reads and not planned.follows):
                return
            if not self._one():
                return

    def _note(self, hook: Hook) -> None:
        match hook.stage, hook.when:
            case "FixOffsets", "before":
                self._begun = hook.batch
            case "Restore", "after":
                self._begun = None
            case "PublishSinks", "after":
                self._take_down(hook.batch)
        if (hook.stage, hook.when) == self._stop_at:
            self._stop_at, self._crashed = None, True
            raise Crashed(hook)

    def _take_down(self, batch: int | None) -> None:
        """Take down the rows of a batch that was published for the first time, before a sweep takes the files away."""
        run = self._running()
        commit, known = run.driver.commit, (run.driver.uuid, -1 if batch is None else batch)
        if commit is None or commit.batch != batch or known in self._noted:
            return
        self._noted.add(known)
        for sink in (node.name for node in self._sinks()):
            if files := commit.staged.get(sink):
                self._fresh.setdefault(sink, []).extend(read_staged(run.engine.sink(sink).staging, files).to_pylist())

    def _returned(self) -> dict[str, list[Row]]:
        fresh, self._fresh, self._cut_short = self._fresh, {}, False
        return {node.name: fresh.get(node.name, []) for node in self._sinks()}

    def _sinks(self) -> list[SinkNode]:
        """Return the job's own sinks."""
        return [node for node in self._driver().engine.graph.sinks if node.name not in self._late.values()]

    def _trigger(self) -> Trigger:
        return trigger_of(self._seen, self._interval, self._zero, at=self._asked)

    def _ask(self, at: int | None) -> None:
        self._asked = at
        self._driver().trigger = self._trigger()

    def _check_alive(self) -> None:
        """Raise JobError if no driver is alive."""
        if self._crashed:
            raise job_error("after a crash, call restart() first")
        self._refuse_failed()
        self._running()

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            problem = f"the driver ended with {type(self._failure).__name__}: {self._failure}; call restart() first"
            raise job_error(problem) from self._failure

    def _running(self) -> JobRun:
        if self._run is None:
            self._refuse_failed()
            raise job_error("use the harness in a with statement")
        return self._run

    def _driver(self) -> Driver:
        return self._running().driver
