"""Make quality reports of a job: which of its tables can have one, and one report from windows to pages."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.checkpoint.roots import REPORTED, control_store, reports_folder
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.toml_reader import closest
from penstock.errors import ReportImpossible
from penstock.graph.steps import StepNode, Unit
from penstock.quality.held.release import SessionOnDemand
from penstock.quality.reports.docs import are_old, build_docs, keep
from penstock.quality.reports.judge import Judge, Judged
from penstock.quality.reports.pages import KEPT, history_page, run_page, write_page
from penstock.quality.reports.published import Published, Selection, select, table_id
from penstock.quality.reports.results import Results, Run
from penstock.quality.reports.suites import read_suite
from penstock.quality.reports.summary import DAYS, noted, summary
from penstock.quality.suite import find_suites
from penstock.runtime.process.launch import open_spark
from penstock.runtime.process.project import LoadedJob
from penstock.sinks import Delta
from penstock.time.clock import Clock

__all__ = ["Report", "Target", "make_report", "sweep_reports", "targets_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A check whose windows are published to a Delta table: the table, and the suite that its report judges by."""

    check: str
    table: Path
    suite: Path | Mapping[str, Any]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Say what a report found; `more` says that it ended at its limit, and newer windows wait for the next one.

    Of a report that was made before, `more` says that anything has come since.

    `page` is the file of its page, or of the history where it met no window.

    `failed` and `noted` count windows: those with a critical rule that failed, and those where others did.
    """

    run: str
    check: str
    page: Path
    windows: int
    failed: int
    noted: int
    more: bool

    @property
    def verdict(self) -> str:
        """Return how it came out; empty where it met no window."""
        return "empty" if not self.windows else "failed" if self.failed else "passed"

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        body = {"run": self.run, "check": self.check, "verdict": self.verdict, "windows": self.windows}
        return {**body, "failed": self.failed, "noted": self.noted, "more": self.more, "page": str(self.page)}


def targets_of(loaded: LoadedJob) -> dict[str, Target]:
    """Return what can have a report, by check: checks on windows that a Delta table takes.

    Raises ReportImpossible for a suite in `[reports.suites]` that is of no such check.
    """
    graph = loaded.job.graph()
    suites = find_suites(graph, loaded.project.quality)
    settings = loaded.settings
    targets = {}
    for check in graph.checks:
        tables = [sink.sink.path for sink in graph.sinks if sink.parent is check and isinstance(sink.sink, Delta)]
        steps = [node for node in graph.upstream(check) if isinstance(node, StepNode)]
        if not tables or not any(step.spec.unit is Unit.WINDOW for step in steps):
            continue
        named = settings.reports.suites.get(check.name)
        suite = suites[check.name] if named is None else loaded.project.quality / f"{named}.json"
        targets[check.name] = Target(check=check.name, table=Path(tables[0]), suite=suite, where=str(check.site))
    if unknown := sorted(set(settings.own_suites) - set(targets)):
        raise ReportImpossible(
            f"[reports.suites] names {unknown[0]!r}, and no check of that name writes windows to a Delta table: "
            f"{closest(unknown[0], list(targets))}",
            where=f"conf/jobs/{loaded.job.name}.toml",
        )
    return targets


def make_report(loaded: LoadedJob, target: Target, selection: Selection, *, run: str, clock: Clock) -> Report:
    """Judge the selected windows, commit what was found under `run`, and write the pages.

    `run` is the report's id and the name of its page. One that was committed is not judged again, and of its pages
    only what is missing is written. Raises ReportImpossible, SuiteError, EnvironmentUnfit.
    """
    folder = reports_folder(loaded.settings.root, loaded.job.name)
    _make_private(loaded.settings.root, folder)
    results = Results(folder / "results")
    notes: list[str] = []
    at = clock.wall()
    judged: list[Judged] = []
    ours: Run | None = None
    more = False
    if not results.has(run):
        source = table_id(target.table)
        after = results.cursor(target.check, source)
        published, judged = _judge(loaded, target, selection, after)
        notes, more = list(_notes(published, loaded.settings.reports.windows)), published.more
        ours = Run(
            id=run,
            check=target.check,
            at=at,
            version=published.version,
            cursor=published.version if selection.is_new else None,
            after=after,
            source=source,
        )
    with _alone(folder):
        newest, docs = folder / "newest", folder / "docs"
        if ours is not None and not results.has(run):
            kept = keep(newest, run, target.check, at, judged)  # before the commit: nobody judges them again after it
            if not results.append(ours, judged):
                for path in kept:
                    path.unlink(missing_ok=True)
        if are_old(newest, docs):
            build_docs(newest, docs)
        rows = results.read(run=run)
        if rows.num_rows and rows["check"][0].as_py() != target.check:
            raise ReportImpossible(f"the report {run!r} is one of {rows['check'][0]}, not of {target.check}")
        index, pages = folder / "index.html", folder / "runs"
        page = pages / f"{run}.html" if rows.num_rows else index
        if rows.num_rows and (ours is not None or not page.is_file()):
            write_page(page, run_page(loaded.job.name, rows, run=run, notes=notes))
            _prune(pages)
        named = [path.stem for path in pages.glob("*.html")]
        has_docs = (docs / "index.html").is_file()
        month = results.newest(DAYS)
        write_page(index, history_page(loaded.job.name, month, kept=named, docs=has_docs))
        write_page(folder / REPORTED, noted(month))
    summarised = summary(rows) if rows.num_rows else None
    return Report(
        run=run,
        check=target.check,
        page=page,
        windows=summarised.windows if summarised else 0,
        failed=summarised.failed if summarised else 0,
        noted=summarised.noted if summarised else 0,
        more=more or (ours is None and selection.is_new and _waits(target, results)),
    )


def sweep_reports(root: CheckpointFolder, job: str) -> int:
    """Delete what reports have left: files of results that were replaced a week ago, and of those that were killed.

    Returns how many files and folders went.
    """
    folder = reports_folder(root, job)
    if not folder.is_dir():
        return 0
    with _alone(folder):  # nothing that is being written has a hidden name now
        left = [path for part in (folder, folder / "newest", folder / "runs") for path in part.glob(".*-*")]
        for path in left:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return len(left) + Results(folder / "results").sweep()


def _judge(
    loaded: LoadedJob, target: Target, selection: Selection, after: int | None
) -> tuple[Published, list[Judged]]:
    settings = loaded.settings.reports
    published = select(target.table, selection, after=after, at_most=settings.windows)
    if not published.windows:
        return published, []
    spark = SessionOnDemand(lambda: open_spark(loaded, here=True))
    try:
        suite = read_suite(target.suite, where=target.where)
        return published, list(Judge(suite, pandas_rows=settings.pandas_rows, spark=spark).judge(published))
    finally:
        spark.close()


def _notes(published: Published, at_most: int) -> Iterator[str]:
    if published.gap:
        yield "What was published since the last report could not be told any more, so all windows counted as new."
    if published.passed:
        yield f"{published.passed:,} older windows were left out: [reports] windows lets a report judge {at_most:,}."
    if published.more:
        yield "Newer windows wait for the next report."


def _waits(target: Target, results: Results) -> bool:
    """Return whether the table was given anything since the last report."""
    from deltalake import DeltaTable

    source = table_id(target.table)
    cursor = results.cursor(target.check, source) if source is not None else None
    return cursor is not None and cursor < DeltaTable(str(target.table)).version()


def _prune(folder: Path) -> None:
    """Delete the pages of all but the newest runs."""
    pages = sorted(folder.glob("*.html"), key=lambda path: path.stat().st_mtime)
    for old in pages[:-KEPT]:
        old.unlink(missing_ok=True)


def _make_private(root: CheckpointFolder, folder: Path) -> None:
    """Make the folder of reports for its user alone: pages hold values of rows."""
    control_store(root)
    for part in (folder.parent, folder):
        part.mkdir(exist_ok=True, mode=0o700)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the pages of a job: they are written by one report at a time."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
