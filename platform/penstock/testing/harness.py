"""Run a job batch by batch in a test: the real driver loop, stages and Spark, over scripted sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checkpoint.entries import Commit
from penstock.errors import JobError
from penstock.graph.durations import Duration, duration_micros, seconds
from penstock.graph.job import Job
from penstock.graph.nodes import LateNode, WindowNode
from penstock.graph.windows import LateTo
from penstock.runtime.jobrun import JobRun
from penstock.runtime.loop import Driver, DriverSettings
from penstock.runtime.session import open_session
from penstock.runtime.stages import Hook
from penstock.runtime.suites import find_suites
from penstock.runtime.triggers import FixedInterval
from penstock.sinks import Delta, MemorySink
from penstock.sources.memory import MemorySource
from penstock.time.clock import ManualClock

__all__ = ["Crashed", "Harness"]

Row = dict[str, Any]
_SECOND = seconds(1)
Fed = Sequence[Row] | Sequence[Sequence[Row]]


class Crashed(Exception):
    """The driver was stopped dead at the hook that the test had asked for."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        super().__init__(f"crashed {hook.when} {hook.stage} of batch {hook.batch}")


class Harness:
    """Run a job in a test.

    `root` is the checkpoint root; `interval` the time between batches where the job has none; `zero` the job's zero
    time in seconds since 1970, so that the first batch has time `zero + interval`.
    Harnesses in one process share one Spark session, which ends with the process.
    """

    def __init__(
        self,
        job: Job,
        root: str | Path,
        *,
        interval: Duration = _SECOND,
        zero: float = 0,
        quality: str | Path | None = None,
        settings: DriverSettings | None = None,
    ) -> None:
        self.root = Path(root).resolve()  # tasks may run in another folder
        self.settings = settings or DriverSettings()
        self._interval = duration_micros(interval, "the interval of a harness", least=1_000)
        self._zero = _micros(zero)
        self._clock = ManualClock(self._zero)
        self._quality = None if quality is None else Path(quality)
        self._stop_at: tuple[str, str] | None = None
        self._shown: dict[str, list[Row]] = {}
        self._crashed = False
        self.job = self._with_late_sinks(job)
        self._run: JobRun | None = None
        self._points: Iterator[Hook] | None = None

    def __enter__(self) -> Self:
        """Start the driver."""
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the log as a driver that was told to stop would."""
        self._leave()

    # --- running -----------------------------------------------------------------------------

    def batch(
        self,
        rows: Mapping[str, Fed] | None = None,
        *,
        at: float | None = None,
        watermark: float | None = None,
        follow: bool = True,
    ) -> dict[str, list[Row]]:
        """Run one batch, and with `follow` every batch without data that it makes due (SEMANTICS 2.2).

        `rows` maps sources to rows, or to a list of rows for each partition.
        `at` is the batch time and `watermark` what the memory sources report from now on, both in seconds since 1970.
        Returns the rows that each sink got, in the order of the batches.
        Raises Crashed where a crash was asked for.
        """
        if at is not None:
            self._set_time(_micros(at))
        for name, source in self._memory_sources().items():
            if watermark is not None:
                source.watermark = _micros(watermark)
            source.feed(list((rows or {}).get(name, [])))
        unknown = sorted(set(rows or {}) - set(self._memory_sources()))
        if unknown:
            raise JobError(f"{unknown[0]!r} is not a MemorySource of the job; there is {list(self._memory_sources())}")
        self._shown = {}
        self._step(until_idle=follow)
        return self._rows()

    def run(self) -> dict[str, list[Row]]:
        """Run until nothing is left to do: for jobs over bounded sources."""
        self._shown = {}
        self._step(until_idle=True)
        return self._rows()

    def crash_after(self, stage: str) -> None:
        """Stop the driver dead behind this stage of the next batch."""
        self.crash_at(stage, "after")

    def crash_before(self, stage: str) -> None:
        """Stop the driver dead before this stage of the next batch."""
        self.crash_at(stage, "before")

    def crash_at(self, stage: str, when: str) -> None:
        """Stop the driver dead at a hook of the loop, also inside a stage: `("TakeOver", "claimed")`."""
        self._stop_at = (stage, when)

    def restart(self, job: Job | None = None) -> dict[str, list[Row]]:
        """Start a new driver over the same checkpoint, with other code if given; what a crash cut short is finished.

        Returns the rows that each sink got in doing so.
        """
        self._leave()
        if job is not None:
            self.job = self._with_late_sinks(job)
        self._shown = {}
        self._start()
        if self._crashed:
            self._crashed = False
            self._step(until_idle=True)
        return self._rows()

    def restore(self, *, batch: int | None = None, empty: bool = False) -> None:
        """Go back to a kept batch, or to nothing: state and source positions become those of that batch."""
        self._leave()
        if batch is None and not empty:
            raise JobError("say what to restore: batch=N, or empty=True")
        for _ in self._open().driver.restore(batch=None if empty else batch):
            pass
        self._start()

    # --- looking -----------------------------------------------------------------------------

    def commit(self) -> Commit:
        """Return the newest Commit of the log."""
        commit = self._driver().commit
        if commit is None:
            raise JobError("no batch was committed yet")
        return commit

    def state(self, step: str) -> list[Row]:
        """Return a step's state: the keys, `slice_start`, and the partial aggregates of each slice."""
        return self._running().read_state(step, self._driver().commit)

    def output(self) -> dict[str, list[Row]]:
        """Return all rows that each sink shows."""
        return {node.name: _shown(node.sink) for node in self._running().graph.sinks if not _is_late(node.name)}

    def late(self, name: str) -> list[Row]:
        """Return all rows of a late stream so far."""
        for node in self._running().graph.sinks:
            if isinstance(node.parent, LateNode) and node.parent.name == name:
                return _shown(node.sink)
        raise JobError(f"no window sends late rows to {name!r}")

    # --- inside ------------------------------------------------------------------------------

    def _open(self) -> JobRun:
        spark = open_session("penstock-tests", jars=_jars())
        return JobRun.open(
            self.job,
            spark,
            root=self.root,
            clock=self._clock,
            trigger=FixedInterval(self.job.interval or self._interval, self._zero),
            suites=find_suites(self.job.graph(), self._quality),
            settings=self.settings,
        )

    def _start(self) -> None:
        self._run = self._open()
        self._points = self._run.driver.run()
        for hook in self._points:
            self._note(hook)
            if (hook.stage, hook.when) == ("TakeOver", "done"):
                return

    def _leave(self) -> None:
        if self._run is not None and not self._crashed and self._run.driver.owned is not None:
            self._run.driver.stop()
            for _ in self._run.driver.release():
                pass
        self._run, self._points = None, None

    def _step(self, *, until_idle: bool) -> None:
        assert self._points is not None
        for hook in self._points:
            self._note(hook)
            if hook.stage == "Wait":
                return
            if not until_idle and (hook.stage, hook.when) == ("Purge", "after"):
                return

    def _note(self, hook: Hook) -> None:
        if (hook.stage, hook.when) == self._stop_at:
            self._stop_at, self._crashed = None, True
            raise Crashed(hook)
        if (hook.stage, hook.when) == ("PublishSinks", "after") and self._driver().commit is not None:
            commit = self.commit()
            if commit.batch == hook.batch:
                self._read_staged(commit)

    def _read_staged(self, commit: Commit) -> None:
        """Note the rows of a batch that has just been published, before a sweep takes the files away."""
        folders = self._running().engine.staging()
        for sink, files in commit.staged.items():
            for file in files:
                rows = pq.read_table(Path(folders[sink]) / file.path).to_pylist()
                self._shown.setdefault(sink, []).extend(rows)

    def _rows(self) -> dict[str, list[Row]]:
        sinks = [node.name for node in self._running().graph.sinks if not _is_late(node.name)]
        return {sink: self._shown.get(sink, []) for sink in sinks}

    def _set_time(self, at: int) -> None:
        last = self._driver().last_time
        if last is not None and at <= last:
            raise JobError(f"the batch time {at / 1e6:g} is not later than the last one, {last / 1e6:g}")
        self._clock.now = at

    def _memory_sources(self) -> dict[str, MemorySource]:
        return {s.name: s.source for s in self._running().graph.sources if isinstance(s.source, MemorySource)}

    def _running(self) -> JobRun:
        if self._run is None:
            raise JobError("use the harness in a with statement; after a crash, call restart() first")
        return self._run

    def _driver(self) -> Driver:
        return self._running().driver

    def _with_late_sinks(self, job: Job) -> Job:
        """Give late streams that nobody reads a sink, so that `late()` can show them."""
        nodes = list(job._nodes)  # noqa: SLF001 - the graph of a job without these sinks is refused
        read = {p.name for n in nodes for p in n.parents if isinstance(p, LateNode)}
        for node in nodes:
            late = node.spec.late if isinstance(node, WindowNode) else None
            if isinstance(late, LateTo) and late.stream not in read:
                read.add(late.stream)
                job.late(late.stream).write(_LATE + late.stream[:50], MemorySink())
        return job


_LATE = "harness_late_"


def _is_late(sink: str) -> bool:
    return sink.startswith(_LATE)


def _shown(sink: Any) -> list[Row]:
    if isinstance(sink, MemorySink):
        return sink.rows()
    if isinstance(sink, Delta):
        from deltalake import DeltaTable

        rows: list[Row] = pa.table(DeltaTable(str(sink.path)).to_pyarrow_table()).to_pylist()
        return rows
    raise JobError(f"what a {type(sink).__name__} shows cannot be read back")


def _micros(at: float | datetime) -> int:
    if isinstance(at, datetime):
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return round(at * 1_000_000)


def _jars() -> Path | None:
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / ".jars").is_dir():
            return folder / ".jars"
    return None
