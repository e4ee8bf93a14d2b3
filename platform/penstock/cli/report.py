"""`penstock report JOB`: judge windows that were published, and write the pages."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Debug, JobName, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at, tell
from penstock.errors import PenstockError, ReportImpossible

if TYPE_CHECKING:
    from penstock.quality.reports.published import Selection
    from penstock.runtime.inspect.quality_report import Report, Target
    from penstock.runtime.process.project import LoadedJob

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)
_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


@commands.command()
def report(
    job: JobName,
    *,
    check: Annotated[str | None, typer.Option(help="One check; else each on windows.", show_default=False)] = None,
    newest: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The newest N windows.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Windows that end then or later.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Windows that end before then.", show_default=False)
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name the report; a name counts once.", show_default=False)
    ] = None,
    if_any: Annotated[bool, typer.Option("--if-any", help="Succeed if there is nothing to report on.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Judge published windows and write a report.

    Great Expectations judges the windows published since the last report, or the selected ones, by the suite of the
    check. The report and the history of all reports are below the checkpoint root, in _reports/JOB/. The job may run
    at the same time.

    \b
    Examples:
      penstock report flights                        windows since the last report
      penstock report flights --newest 48            the newest 48 windows
      penstock report flights --since 2013-02-08 --until 2013-02-10
    """  # noqa: D301 - click knows the character, not the two
    import secrets

    from deltalake import DeltaTable

    from penstock.runtime.inspect.quality_report import make_report
    from penstock.time.clock import SystemClock

    with outcome(debug=debug):
        selection = _selection(newest, since, until)
        if run is not None and not _RUN.fullmatch(run):
            raise typer.BadParameter("a report is named by 1 to 64 letters, digits, _ and -", param_hint="--run")
        loaded = project_at(project).load(job)
        targets = _chosen(loaded, check, if_any=if_any)
        clock = SystemClock()
        base = run or f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        refused: PenstockError | None = None
        for target in targets:
            name = base if len(targets) == 1 else f"{base}-{target.check}"
            try:
                made = make_report(loaded, target, selection, run=name, clock=clock)
            except ReportImpossible as why:
                if if_any and not DeltaTable.is_deltatable(str(target.table)):
                    continue  # nothing was published yet
                refused = refused or why  # raised when the others are made
                continue
            tell(made.to_json(), _sentence(made), json=json)
            sys.stdout.flush()
        if refused is not None:
            raise refused


def _chosen(loaded: LoadedJob, check: str | None, *, if_any: bool) -> list[Target]:
    from penstock.config.toml_reader import closest
    from penstock.runtime.inspect.quality_report import targets_of

    targets = targets_of(loaded)
    if check is None and (targets or if_any):
        return list(targets.values())
    if check in targets:
        return [targets[check]]
    if check is None or not targets:
        raise ReportImpossible(f"{loaded.job.name} has no check on windows that a Delta table takes")
    raise ReportImpossible(f"{loaded.job.name} has no check {check!r} on windows: {closest(check, list(targets))}")


def _selection(newest: int | None, since: str | None, until: str | None) -> Selection:
    from penstock.quality.reports.published import Selection

    if newest is not None and (since is not None or until is not None):
        raise typer.BadParameter("choose the newest windows or a stretch of time, not both", param_hint="--newest")
    return Selection(newest=newest, since=_moment(since, "--since"), until=_moment(until, "--until"))


def _moment(text: str | None, option: str) -> int | None:
    """Read a date or a moment as microseconds since 1970; without a zone it is UTC."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("write a date or a moment: 2013-01-31, 2013-01-31T10:00", param_hint=option) from None
    placed = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(placed.timestamp() * 1_000_000)


def _sentence(report: Report) -> str:
    if not report.windows:
        return f"{report.check}: no new windows ({report.page})"
    noted = f", {report.noted:,} noted" if report.noted else ""
    more = "; more wait for the next report" if report.more else ""
    counts = f"{report.windows:,} windows, {report.failed:,} failed{noted}{more}"
    return f"{report.check}: {report.verdict}, {counts}\n  {report.page}"
