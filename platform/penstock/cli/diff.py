"""`penstock diff JOB`: check whether the current code can resume from the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Debug, Drop, JobName, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at, show, write_json

if TYPE_CHECKING:
    from penstock.runtime.inspect.diff import Diff
    from penstock.runtime.restore.compatibility import Finding

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def diff(
    job: JobName,
    *,
    against: Annotated[
        str | None,
        typer.Option(metavar="ROOT", help="Compare with the job's checkpoint below another root.", show_default=False),
    ] = None,
    drop: Drop = None,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Check whether changed code can resume from the checkpoint.

    For each step, source and sink the result is kept, with its changes, new, dropped, which needs --drop, or
    incompatible, with the reason. Spark analyses the job, and nothing is written; a driver may run at the same time.
    The exit code is 0 if a start would be accepted, and otherwise that of the start.

    \b
    Examples:
      penstock diff flights
      penstock diff flights --drop hourly
      penstock diff flights --against /backup/checkpoints
    """  # noqa: D301 - click knows the character, not the two
    from penstock.checkpoint.roots import job_log
    from penstock.checkpoint.storage.locate import root_of
    from penstock.runtime.inspect.diff import diff as compare
    from penstock.runtime.restore.compatibility import refuse
    from penstock.time.clock import SystemClock

    with outcome(debug=debug):
        root = None if against is None else root_of(against, project=Path.cwd())
        loaded = project_at(project).load(job, root=root)
        if root is not None and job_log(root / job) is None:
            raise typer.BadParameter(f"there is no checkpoint of {job} below {against}", param_hint="--against")
        result = compare(loaded, SystemClock(), root=root, drop=tuple(drop or ()))
        if json:
            write_json(result.to_json())
        else:
            _show(result)
        refuse(result.findings)


def _show(result: Diff) -> None:
    from rich.table import Table
    from rich.text import Text

    from penstock.runtime.restore.compatibility import Compatibility

    colours = {
        Compatibility.KEPT: "green",
        Compatibility.NEW: "cyan",
        Compatibility.DROPPED: "yellow",
        Compatibility.GONE: "yellow",
    }
    state = "no state yet" if result.batch is None else f"the state of batch {result.batch}"
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in result.findings:
        table.add_row(
            finding.kind.value,
            Text(finding.name, style="bold"),
            Text(finding.fate.value, style=colours.get(finding.fate, "red")),
            Text(_reason(finding)),
        )
    show(Text(f"{result.job} against {state} in {result.folder!s}"), table)
    if result.running:
        print("a driver runs: this holds when it has finished its batch and left")
    print("a start would be accepted" if result.accepted else "a start would be refused")


def _reason(finding: Finding) -> str:
    """Return what is found; of what else refuses the reason, where that is not said already."""
    from penstock.runtime.restore.compatibility import Compatibility

    if finding.refusal is not None and finding.fate in (Compatibility.KEPT, Compatibility.NEW):
        return finding.refusal.what
    return "; ".join(finding.says)
