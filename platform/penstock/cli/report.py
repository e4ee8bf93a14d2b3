"""Run `penstock report JOB`: judge windows that were published, and write the pages."""

from __future__ import annotations

import json as jsonlib
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

import typer
from deltalake import DeltaTable

from penstock.cli.outcome import outcome
from penstock.config.toml_reader import closest
from penstock.errors import PenstockError, ReportImpossible
from penstock.quality.reports.published import Selection
from penstock.runtime.inspect.quality_report import Report, Target, make_report, targets_of
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import LoadedJob, find_project
from penstock.time.clock import SystemClock

__all__ = ["report_command"]

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def report_command(
    job: str,
    *,
    check: str | None,
    newest: int | None,
    since: str | None,
    until: str | None,
    run: str | None,
    if_any: bool,
    json: bool,
    project: Path | None,
    debug: bool,
) -> None:
    """Report on the windows of one check, or of each."""
    configure_events(json=False)
    selection = _selection(newest, since, until)
    if run is not None and not _RUN.fullmatch(run):
        raise typer.BadParameter("a report is named by 1 to 64 letters, digits, _ and -", param_hint="--run")
    with outcome(debug=debug):
        loaded = find_project(given=project).load(job)
        targets = _chosen(loaded, check, if_any=if_any)
        clock = SystemClock()
        base = run or f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        refused: PenstockError | None = None
        for target in targets:
            name = base if len(targets) == 1 else f"{base}-{target.check}"
            try:
                report = make_report(loaded, target, selection, run=name, clock=clock)
            except ReportImpossible as why:
                if if_any and not DeltaTable.is_deltatable(str(target.table)):
                    continue  # nothing was published yet
                refused = refused or why  # told when the others are made
                continue
            print(jsonlib.dumps(report.to_json()) if json else _said(report), flush=True)
        if refused is not None:
            raise refused


def _chosen(loaded: LoadedJob, check: str | None, *, if_any: bool) -> list[Target]:
    targets = targets_of(loaded)
    if not targets and if_any and check is None:
        return []
    if not targets:
        raise ReportImpossible(f"{loaded.job.name} has no check on windows that a Delta table takes")
    if check is None:
        return list(targets.values())
    if check not in targets:
        raise ReportImpossible(f"{loaded.job.name} has no check {check!r} on windows: {closest(check, list(targets))}")
    return [targets[check]]


def _selection(newest: int | None, since: str | None, until: str | None) -> Selection:
    if newest is not None and (since is not None or until is not None):
        raise typer.BadParameter("choose the newest windows or a stretch of time, not both", param_hint="--newest")
    return Selection(newest=newest, since=_moment(since, "--since"), until=_moment(until, "--until"))


def _moment(text: str | None, option: str) -> int | None:
    """Read a date or a moment as microseconds since 1970; without a zone it is UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("write a date or a moment: 2013-01-31, 2013-01-31T10:00", param_hint=option) from None
    placed = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return round(placed.timestamp() * 1_000_000)


def _said(report: Report) -> str:
    if not report.windows:
        return f"{report.check}: no new windows ({report.page})"
    noted = f", {report.noted:,} noted" if report.noted else ""
    more = "; more wait for the next report" if report.more else ""
    found = f"{report.windows:,} windows, {report.failed:,} failed{noted}{more}"
    return f"{report.check}: {report.verdict}, {found}\n  {report.page}"
