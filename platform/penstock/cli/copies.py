"""Run `penstock export` and `penstock import`, with `--move` as well."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

import typer

from penstock.checkpoint.local import LocalStore
from penstock.checkpoint.log import Log
from penstock.checkpoint.metadata import read_metadata
from penstock.checkpoint.mirror import shown
from penstock.checkpoint.recovery import Damage, recover
from penstock.checkpoint.takeover import survey
from penstock.cli.outcome import outcome
from penstock.errors import CannotCopy
from penstock.runtime.batch_report import shown_moment
from penstock.runtime.events import configure_events
from penstock.runtime.exporting import export_checkpoint, import_checkpoint
from penstock.runtime.holder import HolderWatch
from penstock.runtime.jobrun import holder_name
from penstock.runtime.moving import move_checkpoint
from penstock.runtime.project import find_project
from penstock.runtime.restoring import StartFrom, parse_start
from penstock.runtime.roots import control_store, job_log
from penstock.runtime.settings import Identity
from penstock.runtime.status import StatusRecords
from penstock.time.clock import SystemClock

__all__ = ["export_command", "import_command"]


def export_command(job: str, target: Path, *, at: str, json: bool, project: Path | None, debug: bool) -> None:
    """Print what was copied, once all of it is there."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        if job_log(settings.root / job) is None:
            raise CannotCopy(f"{job} has no checkpoint yet", where=shown(settings.root))
        made = export_checkpoint(settings.root / job, target, _start(at), job=job, now=SystemClock().wall())
        if json:
            print(jsonlib.dumps({"job": job, "batch": made.commit.batch, "uuid": made.uuid, "export": str(target)}))
        else:
            print(f"{job}: batch {made.commit.batch} of {shown_moment(made.commit.time)} is exported to {target}")


def import_command(source: Path, job: str, *, move: bool, json: bool, project: Path | None, debug: bool) -> None:
    """Print what the new checkpoint goes on from."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        me = Identity(holder=holder_name(), code_version="penstock import")
        if move:
            _move(source, settings.root, job, me, patience=settings.takeover_after, json=json)
            return
        export, made = import_checkpoint(source, settings.root / job, identity=me, now=SystemClock().wall())
        if json:
            said = {"job": job, "batch": export.commit.batch, "uuid": made.uuid, "parent": made.parent}
            print(jsonlib.dumps(said))
        else:
            print(f"{job}: goes on from batch {export.commit.batch} of {export.job}, as a checkpoint of its own")


def _move(source: Path, root: Path, job: str, me: Identity, *, patience: float, json: bool) -> None:
    """Move a checkpoint here, or finish that; say what became of it."""
    watch = HolderWatch(
        look=lambda: survey(Log(LocalStore(source))),
        heartbeats=StatusRecords(control_store(source.resolve().parent, make=False), source.resolve().name),
        clock=SystemClock(),
        patience=patience,
    )
    points = list(move_checkpoint(source, root / job, identity=me, may_take_over=watch.may_take_over))
    log = Log(LocalStore(root / job))
    uuid, begins = read_metadata(log.store).uuid, recover(log, Damage.LIST).next_batch
    if json:
        already = points == ["already"]
        said = {"job": job, "moved_from": str(source), "already": already, "uuid": uuid, "next_batch": begins}
        print(jsonlib.dumps(said))
    elif points == ["already"]:
        print(f"{job}: was moved here from {source} before; it goes on at batch {begins}")
    else:
        print(f"{job}: has moved here from {source}, where its log has ended; it goes on at batch {begins}")


def _start(text: str) -> StartFrom:
    try:
        start = parse_start(f"batch={text}" if text.isdecimal() else text)
    except ValueError as why:
        raise typer.BadParameter(str(why), param_hint="--at") from None
    if start.snapshot is not None or (start.restore and not start.goes_back):
        raise typer.BadParameter("an export is of a kept batch or a saved checkpoint", param_hint="--at")
    return start
