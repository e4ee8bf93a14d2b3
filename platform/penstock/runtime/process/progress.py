"""Show how a run goes: one JSON event a batch for machines, a progress bar for people."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Mapping
from typing import Any

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Column

from penstock.checkpoint.log.batch_report import BatchReport, shown_moment
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.recovery import Recovered
from penstock.errors import PenstockError
from penstock.runtime.driver.engine import Engine
from penstock.runtime.process.signals import Ending
from penstock.runtime.restore.target import Superseded

__all__ = ["BarProgress", "JsonProgress", "ProgressView", "rows_left"]

_TRACEBACK = 16_000
"""Characters of a traceback that are logged; its end says most."""


class JsonProgress:
    """Log events; `runtime.process.logging` makes JSON lines of them."""

    def __init__(self, job: str) -> None:
        self._log = structlog.get_logger().bind(job=job)

    def unused(self, key: str, file: str) -> None:
        """Log `config.unused`."""
        self._log.warning("config.unused", key=key, file=file)

    def starting(self, facts: Mapping[str, Any]) -> None:
        """Log `run.starting`."""
        self._log.info("run.starting", **facts)

    def superseded(self, rows: Superseded) -> None:
        """Log `restore.superseded`, what sinks have published after its batch (SEMANTICS 10.1)."""
        self._log.warning("restore.superseded", **rows.to_json())

    def answered(self, command: str) -> None:
        """Log `restore.done_before`: a command has restored before, and the run resumes from the last commit."""
        self._log.info("restore.done_before", command=command)

    def took_over(self, recovered: Recovered, left: Mapping[str, int | None]) -> None:
        """Log `run.took_over`; `left` are the rows that bounded sources still have."""
        last = recovered.last_takeover
        self._log.info(
            "run.took_over",
            epoch=last.epoch if last is not None else None,
            next_batch=recovered.next_batch,
            pending=recovered.pending is not None,
            rows_left=dict(left),
        )
        if (ended := _ended(recovered, left)) is not None:
            self._log.warning("run.reads_nothing", why=ended)

    def committed(
        self, commit: Commit, *, ms: float, timings: Mapping[str, float], left: Mapping[str, int | None]
    ) -> None:
        """Log `batch.committed`; `timings` are milliseconds by stage."""
        report = BatchReport.of(commit)
        self._log.info(
            "batch.committed",
            epoch=commit.epoch,
            ms=round(ms, 1),
            timings=dict(timings),
            rows_left=dict(left),
            **report.to_json(),
        )

    def stopping(self, deadline: float) -> None:
        """Log `run.stopping`; the batch has `deadline` seconds."""
        self._log.info("run.stopping", deadline=deadline)

    def ended(self, ending: Ending, *, batches: int, rows: int, seconds: float) -> None:
        """Log `run.ended`."""
        self._log.info("run.ended", ending=ending.name.lower(), batches=batches, rows=rows, seconds=round(seconds, 1))

    def failed(self, error: PenstockError) -> None:
        """Log `run.failed`."""
        self._log.error(
            "run.failed",
            code=error.code,
            what=error.what,
            where=error.where,
            remedy=error.remedy,
            exit_code=error.exit_code,
            traceback="".join(traceback.format_exception(error))[-_TRACEBACK:],
        )

    def close(self) -> None:
        """Do nothing: events are written at once."""


class BarProgress:
    """Draw one line that moves: per cent of the rows where the sources are bounded, else a batch counter."""

    def __init__(self, job: str, console: Console) -> None:
        self._job = job
        self._console = console
        self._bar: Progress | None = None
        self._whole: int | None = None

    def unused(self, key: str, file: str) -> None:
        """Print the warning."""
        self._console.print(f"the job never asks for {key} of {file}", style="yellow", highlight=False)

    def starting(self, facts: Mapping[str, Any]) -> None:
        """Print what runs and where."""
        line = " · ".join(f"{name} {value}" for name, value in facts.items())
        self._console.print(f"[bold]{self._job}[/bold]  {line}", highlight=False)

    def superseded(self, rows: Superseded) -> None:
        """Print what sinks show that the restore leaves behind."""
        for line in rows.lines():
            self._console.print(line, style="yellow", highlight=False)

    def answered(self, command: str) -> None:
        """Print it."""
        self._console.print(f"command {command} has restored before; going on from the last commit", highlight=False)

    def took_over(self, recovered: Recovered, left: Mapping[str, int | None]) -> None:
        """Show the state of the job, and open the bar."""
        standing = "a new checkpoint" if not recovered.kept else f"resumes at batch {recovered.next_batch}"
        self._console.print(f"{standing}", highlight=False)
        if (ended := _ended(recovered, left)) is not None:
            self._console.print(ended, style="yellow", highlight=False)
        self._open(left)

    def committed(
        self, commit: Commit, *, ms: float, timings: Mapping[str, float], left: Mapping[str, int | None]
    ) -> None:
        """Move the bar."""
        report = BatchReport.of(commit)
        if self._bar is None:
            self._open(left)
        assert self._bar is not None
        speed = report.rows / ms * 1000 if ms > 0 else 0.0
        parts = [
            f"batch {report.batch}",
            f"{report.rows:,} rows",
            f"{speed:,.0f} rows/s",
            f"{ms:,.0f} ms",
            f"late {sum(report.late.values()):,}",
            f"watermark {shown_moment(report.watermark)}",
        ]
        if report.due is not None:
            parts.append(f"next {shown_moment(report.due)}")
        if report.fetched:
            parts.append(f"{report.fetched / 2**20:,.1f} MiB of state fetched")
        if report.held:
            parts.append(f"[red]held {sum(report.held.values()):,}[/red]")
        done = None if self._whole is None else self._whole - sum(n or 0 for n in left.values())
        self._bar.update(self._bar.task_ids[0], completed=done, said=" · ".join(parts))

    def stopping(self, deadline: float) -> None:
        """Show that the driver finishes the batch."""
        self._console.print(f"stopping; what runs has {deadline:g} s to end (Ctrl-C again: no time)", highlight=False)

    def ended(self, ending: Ending, *, batches: int, rows: int, seconds: float) -> None:
        """Print the sum of the run."""
        self.close()
        self._console.print(
            f"[bold]{ending.value}[/bold]  {batches:,} batches · {rows:,} rows · {seconds:,.1f} s", highlight=False
        )

    def failed(self, error: PenstockError) -> None:
        """Close the bar; the command prints the error."""
        self.close()

    def close(self) -> None:
        """Give the terminal back."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _open(self, left: Mapping[str, int | None]) -> None:
        known = [n for n in left.values() if n is not None]
        self._whole = sum(known) if known and len(known) == len(left) else None
        columns = [TextColumn("[bold]{task.description}"), BarColumn(bar_width=24)]
        shares = [TaskProgressColumn(), MofNCompleteColumn()] if self._whole is not None else []
        self.close()
        # What is said gives way where the terminal is narrow, and not the numbers before it.
        description = TextColumn("{task.fields[said]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        self._bar = Progress(*columns, *shares, description, console=self._console, expand=True)
        self._bar.add_task(self._job, total=self._whole, completed=0, said="waiting for the first batch")
        self._bar.start()


ProgressView = JsonProgress | BarProgress
"""Shows a run to somebody; called by the runner, in its thread."""


def rows_left(engine: Engine, commit: Commit | None) -> dict[str, int | None]:
    """Return how many rows each source still has; None where it is not bounded or only reading tells."""
    left = {}
    for name in (source.name for source in engine.graph.sources):
        start = commit.sources[name].position if commit is not None and name in commit.sources else None
        reader = engine.source(name)
        backlog = reader.backlog(start)
        end = reader.position(start, {partition: waiting.latest for partition, waiting in backlog.items()})
        left[name] = sum(waiting.rows for waiting in backlog.values()) if reader.ended(end) else None
    return left


def _ended(recovered: Recovered, sources: Collection[str]) -> str | None:
    """Return why a run reads nothing: all its sources have ended, by a drain or by themselves."""
    commit = recovered.commit
    if commit is None or recovered.pending is not None or not sources:
        return None
    if not all(name in commit.sources and commit.sources[name].ended for name in sources):
        return None
    names = ", ".join(sources)
    return f"the sources have ended, and nothing more is read of {names}, unless from an older checkpoint: --from"
