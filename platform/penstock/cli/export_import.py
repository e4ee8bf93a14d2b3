"""`penstock export` and `penstock import`: take a checkpoint elsewhere, as a copy or with `--move`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import is_url
from penstock.cli.options import Debug, JobName, Json, ProjectFolder, checkpoint_at
from penstock.cli.outcome import outcome, project_at, shown_moment, tell
from penstock.errors import CannotCopy

if TYPE_CHECKING:
    from penstock.checkpoint.storage.folder import CheckpointFolder
    from penstock.runtime.driver.settings import Identity
    from penstock.runtime.restore.target import RestoreTarget

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)


def _of_this_machine(path: Path) -> Path:
    """Reject a URL, which as a path would name a local folder."""
    if is_url(str(path).replace(":/", "://", 1)):
        raise typer.BadParameter("an export is a folder of this machine; copy it to HDFS as any other")
    return path


@commands.command("export")
def _export(
    job: JobName,
    target: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A folder that does not exist.", callback=_of_this_machine),
    ],
    *,
    at: Annotated[str, typer.Option(metavar="N|saved=NAME", help="The kept batch or savepoint.")] = "last",
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Copy a checkpoint of a job to a folder.

    The copy has state, source positions and watermarks of one batch, and is verified before it gets its name. Output
    of the job is not copied. The job may run at the same time; save a large checkpoint first, so that its files are
    kept during the copy.

    \b
    Examples:
      penstock export flights flights-2013
      penstock export flights before-the-move --at saved=friday
    """  # noqa: D301 - click knows the character, not the two
    from penstock.checkpoint.roots import job_log
    from penstock.runtime.restore.export import export_checkpoint
    from penstock.time.clock import SystemClock

    with outcome(debug=debug):
        settings = project_at(project).settings(job)
        if job_log(settings.root / job) is None:
            raise CannotCopy(f"{job} has no checkpoint yet", where=str(settings.root))
        made = export_checkpoint(
            settings.root / job, LocalFolder(target), _start(at), job=job, now=SystemClock().wall()
        )
        facts = {"job": job, "batch": made.commit.batch, "uuid": made.uuid, "export": str(target)}
        what = f"batch {made.commit.batch} of {shown_moment(made.commit.time)} is exported to {target}"
        tell(facts, f"{job}: {what}", json=json)


@commands.command("import")
def _import(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="An export, or with --move a checkpoint.",
            show_default=False,
            callback=_of_this_machine,
        ),
    ],
    job: JobName,
    *,
    move: Annotated[bool, typer.Option("--move", help="Move the checkpoint in DIR here; the log in DIR ends.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Create a checkpoint from an export.

    It has its own identity, so tables treat its batches as new ones. The job may have another name, but steps and
    sources keep theirs. There must be no checkpoint of the job yet.

    With --move the command moves the checkpoint in DIR here, with everything it keeps and its identity, so that tables
    receive each batch once. The job must be stopped. Any later start in DIR is rejected. The same command, or a start
    of the job here, finishes an interrupted move.

    \b
    Examples:
      penstock import flights-2013 flights
      penstock import ../old/checkpoints/flights flights --move
    """  # noqa: D301 - click knows the character, not the two
    from penstock.runtime.driver.settings import Identity
    from penstock.runtime.process.takeover_policy import holder_name
    from penstock.runtime.restore.export import import_checkpoint
    from penstock.time.clock import SystemClock

    with outcome(debug=debug):
        settings = project_at(project).settings(job)
        me = Identity(holder=holder_name(), code_version="penstock import")
        if move:
            _move(LocalFolder(source), settings.root, job, me, patience=settings.run.takeover_after.seconds, json=json)
            return
        export, made = import_checkpoint(
            LocalFolder(source), settings.root / job, identity=me, now=SystemClock().wall()
        )
        facts = {"job": job, "batch": export.commit.batch, "uuid": made.uuid, "parent": made.parent}
        what = f"resumes from batch {export.commit.batch} of {export.job}, as a checkpoint of its own"
        tell(facts, f"{job}: {what}", json=json)


def _move(source: LocalFolder, root: CheckpointFolder, job: str, me: Identity, *, patience: float, json: bool) -> None:
    """Move a checkpoint here, or finish that; say what became of it."""
    from penstock.checkpoint.log.log import Log
    from penstock.checkpoint.log.metadata import read_metadata
    from penstock.checkpoint.log.recovery import Damage, recover
    from penstock.runtime.process.takeover_policy import HolderWatch
    from penstock.runtime.restore.move import move_checkpoint
    from penstock.time.clock import SystemClock

    watch = HolderWatch(source.resolve(), patience=patience, clock=SystemClock())
    points = list(move_checkpoint(source, root / job, identity=me, may_take_over=watch.may_take_over))
    log = Log((root / job).store())
    uuid, begins = read_metadata(log.store).uuid, recover(log, Damage.LIST).next_batch
    already = points == ["already"]
    facts = {"job": job, "moved_from": str(source), "already": already, "uuid": uuid, "next_batch": begins}
    moved = (
        f"was moved here from {source} before" if already else f"has moved here from {source}, where its log has ended"
    )
    tell(facts, f"{job}: {moved}; it resumes at batch {begins}", json=json)


def _start(text: str) -> RestoreTarget:
    start = checkpoint_at(text)
    if start.snapshot is not None or (start.restore and not start.goes_back):
        raise typer.BadParameter("an export is of a kept batch or a saved checkpoint", param_hint="--at")
    return start
