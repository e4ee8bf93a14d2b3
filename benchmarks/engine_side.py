"""Run a Penstock job over an `Input` and time its batches: the driver loop that every run has, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import Input
from benchmarks.folder_source import NumberedFiles
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.graph.job import Job
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.driver.stages import Hook
from penstock.runtime.process.collector_pauses import ShortPauses
from penstock.runtime.process.job_run import JobRun
from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.time.clock import Clock, SystemClock
from penstock.time.triggers import AsFastAsPossible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BatchTime", "EngineSide", "StageClock"]


class StageClock:
    """Time the stages of batches by the hooks of the driver's loop, in milliseconds."""

    def __init__(self) -> None:
        self._began = self._entered = time.perf_counter()
        self._stages: dict[str, float] = {}

    def begin(self) -> None:
        """Begin a batch: what was before is not of it."""
        self._began, self._stages = time.perf_counter(), {}

    def passed(self, hook: Hook) -> tuple[float, dict[str, float]] | None:
        """Note a hook; at the end of a batch return the time of the whole, and by name that of its stages."""
        now = time.perf_counter()
        if hook.when == "before":
            self._entered = now
        if hook.when == "after":
            self._stages[hook.stage] = (now - self._entered) * 1000
        if (hook.stage, hook.when) != ("Purge", "after"):
            return None
        done = (now - self._began) * 1000, self._stages
        self.begin()
        return done


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTime:
    """Hold what a batch with rows took, in milliseconds.

    `whole`: from the end of the batch before to the end of this one, planning and purging included.
    `spark`: the one call that plans, runs and collects the Spark job.
    `stages`: by the name of the stage.
    """

    whole: float
    spark: float
    stages: dict[str, float]
    commit: Commit = field(repr=False)

    @property
    def outside(self) -> float:
        """Return the time outside the call that has Spark plan, run and collect the batch."""
        return self.whole - self.spark


class EngineSide:
    """Hold a running job; `build` makes it from its source."""

    name = "penstock"

    def __init__(
        self,
        spark: SparkSession,
        given: Input,
        build: Callable[[NumberedFiles], Job],
        root: Path | CheckpointFolder,
        *,
        keep: int = 20,
        clock: Clock | None = None,
        offered: int = 0,
        data: DataCheckpointPolicy | None = None,
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self.spark = spark
        self.source = NumberedFiles(given, columns)
        self.source.offered = offered
        self.run = JobRun.open(
            build(self.source),
            spark,
            root=root_of(root),
            clock=clock or SystemClock(),
            trigger=AsFastAsPossible(),
            suites={},
            settings=DriverSettings(keep=keep, data=data or DataCheckpointPolicy()),
            listeners=(ShortPauses(),),
        )
        self.after_batch: Callable[[], None] = lambda: None
        """Called between batches, which are not timed then."""
        self.empty_batches = 0
        self._spark_ms = 0.0
        self._compute = self.run.engine.compute
        self.run.engine.compute = self._timed_compute  # type: ignore[method-assign]
        self._points: Iterator[Hook] = self.run.driver.run()
        self._advance(lambda hook: hook.stage == "Wait")

    def batches(self, n: int) -> list[BatchTime]:
        """Offer so many more batches and run them; follow-up batches without rows are counted apart."""
        self.source.offered += n
        times: list[BatchTime] = []
        clock = StageClock()
        for hook in self._points:
            if hook.stage == "Wait":
                return times
            if (done := clock.passed(hook)) is not None:
                commit = self.run.driver.commit
                assert commit is not None
                if any(name.startswith("source:") and count["read"] for name, count in commit.accounting.items()):
                    whole, stages = done
                    times.append(BatchTime(whole=whole, spark=self._spark_ms, stages=stages, commit=commit))
                else:
                    self.empty_batches += 1
                self.after_batch()
                clock.begin()
        return times

    def close(self) -> None:
        """Leave the log."""
        self.run.driver.stop()
        for _ in self.run.driver.release():
            pass

    def _advance(self, until: Callable[[Hook], bool]) -> None:
        for hook in self._points:
            if until(hook):
                return

    def _timed_compute(self, facts: BatchContext) -> Any:
        began = time.perf_counter()
        try:
            return self._compute(facts)
        finally:
            self._spark_ms = (time.perf_counter() - began) * 1000
