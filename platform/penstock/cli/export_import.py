"""Run `penstock export` and `penstock import`, with `--move` as well."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

import typer

from penstock.checkpoint.log.batch_report import shown_moment
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.roots import control_store, job_log
from penstock.checkpoint.storage.hdfs_cache import shown
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.outcome import outcome
from penstock.errors import CannotCopy
from penstock.runtime.driver.settings import Identity
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.job_run import holder_name
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import find_project
from penstock.runtime.process.takeover_policy import HolderWatch
from penstock.runtime.restore.export import export_checkpoint, import_checkpoint
from penstock.runtime.restore.move import move_checkpoint
from penstock.runtime.restore.target import RestoreTarget, parse_start
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
    """Print the batch that the new checkpoint resumes from."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        me = Identity(holder=holder_name(), code_version="penstock import")
        if move:
            _move(source, settings.root, job, me, patience=settings.run.takeover_after.seconds, json=json)
            return
        export, made = import_checkpoint(source, settings.root / job, identity=me, now=SystemClock().wall())
        if json:
            said = {"job": job, "batch": export.commit.batch, "uuid": made.uuid, "parent": made.parent}
            print(jsonlib.dumps(said))
        else:
            print(f"{job}: resumes from batch {export.commit.batch} of {export.job}, as a checkpoint of its own")


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
        print(f"{job}: was moved here from {source} before; it resumes at batch {begins}")
    else:
        print(f"{job}: has moved here from {source}, where its log has ended; it resumes at batch {begins}")


def _start(text: str) -> RestoreTarget:
    try:
        start = parse_start(f"batch={text}" if text.isdecimal() else text)
    except ValueError as why:
        raise typer.BadParameter(str(why), param_hint="--at") from None
    if start.snapshot is not None or (start.restore and not start.goes_back):
        raise typer.BadParameter("an export is of a kept batch or a saved checkpoint", param_hint="--at")
    return start
