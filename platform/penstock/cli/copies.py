"""Run `penstock export` and `penstock import`."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

import typer

from penstock.cli.outcome import outcome
from penstock.errors import CannotCopy
from penstock.runtime.batch_report import shown_moment
from penstock.runtime.events import configure_events
from penstock.runtime.exporting import export_checkpoint, import_checkpoint
from penstock.runtime.jobrun import holder_name
from penstock.runtime.project import find_project
from penstock.runtime.restoring import StartFrom, parse_start
from penstock.runtime.roots import job_log
from penstock.runtime.settings import Identity
from penstock.time.clock import SystemClock

__all__ = ["export_command", "import_command"]


def export_command(job: str, target: Path, *, at: str, json: bool, project: Path | None, debug: bool) -> None:
    """Print what was copied, once all of it is there."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        if job_log(settings.root / job) is None:
            raise CannotCopy(f"{job} has no checkpoint yet", where=str(settings.root))
        made = export_checkpoint(settings.root / job, target, _start(at), job=job, now=SystemClock().wall())
        if json:
            print(jsonlib.dumps({"job": job, "batch": made.commit.batch, "uuid": made.uuid, "export": str(target)}))
        else:
            print(f"{job}: batch {made.commit.batch} of {shown_moment(made.commit.time)} is exported to {target}")


def import_command(source: Path, job: str, *, json: bool, project: Path | None, debug: bool) -> None:
    """Print what the new checkpoint goes on from."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        me = Identity(holder=holder_name(), code_version="penstock import")
        export, made = import_checkpoint(source, settings.root / job, identity=me, now=SystemClock().wall())
        if json:
            said = {"job": job, "batch": export.commit.batch, "uuid": made.uuid, "parent": made.parent}
            print(jsonlib.dumps(said))
        else:
            print(f"{job}: goes on from batch {export.commit.batch} of {export.job}, as a checkpoint of its own")


def _start(text: str) -> StartFrom:
    try:
        start = parse_start(f"batch={text}" if text.isdecimal() else text)
    except ValueError as why:
        raise typer.BadParameter(str(why), param_hint="--at") from None
    if start.snapshot is not None or (start.restore and not start.goes_back):
        raise typer.BadParameter("an export is of a kept batch or a saved checkpoint", param_hint="--at")
    return start
