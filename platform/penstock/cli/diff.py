"""Run `penstock diff JOB`: check whether the current code can resume from the checkpoint."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.hdfs_cache import root_of, shown
from penstock.cli.outcome import outcome, show, step_names
from penstock.runtime.inspect.diff import Diff, diff
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import find_project
from penstock.runtime.restore.compatibility import Compatibility, Finding, refuse
from penstock.time.clock import SystemClock

__all__ = ["diff_command"]

_COLOURS = {
    Compatibility.KEPT: "green",
    Compatibility.NEW: "cyan",
    Compatibility.DROPPED: "yellow",
    Compatibility.GONE: "yellow",
}


def diff_command(
    job: str, *, against: str | None, drop: Sequence[str], json: bool, project: Path | None, debug: bool
) -> None:
    """Print the result for each step, source and sink; raises the error that a start would raise."""
    configure_events(json=False)
    named = step_names(drop)
    with outcome(debug=debug):
        root = None if against is None else root_of(against).absolute()
        loaded = find_project(given=project).load(job, root=root)
        if root is not None and job_log(root / job) is None:
            raise typer.BadParameter(f"there is no checkpoint of {job} below {against}", param_hint="--against")
        found = diff(loaded, SystemClock(), root=root, drop=named)
        if json:
            print(jsonlib.dumps(found.to_json()))
        else:
            _show(found)
        refuse(found.findings)


def _show(found: Diff) -> None:
    state = "no state yet" if found.batch is None else f"the state of batch {found.batch}"
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in found.findings:
        table.add_row(
            finding.kind.value,
            Text(finding.name, style="bold"),
            Text(finding.fate.value, style=_COLOURS.get(finding.fate, "red")),
            Text(_said(finding)),
        )
    show(Text(f"{found.job} against {state} in {shown(found.folder)}"), table)
    if found.running:
        print("a driver runs: this holds when it has finished its batch and left")
    print("a start would be accepted" if found.accepted else "a start would be refused")


def _said(finding: Finding) -> str:
    """Return what is found; of what else refuses the reason, where that is not said already."""
    if finding.refusal is not None and finding.fate in (Compatibility.KEPT, Compatibility.NEW):
        return finding.refusal.what
    return "; ".join(finding.says)
