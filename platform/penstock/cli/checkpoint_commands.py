"""Define the commands that look after checkpoints: list them, give them names, verify and sweep them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.checkpoint.storage.hdfs_cache import is_url
from penstock.cli.options import (
    CommandId,
    Debug,
    Drop,
    From,
    JobName,
    Json,
    Partitions,
    ProjectFolder,
    State,
    TruncateSinks,
)

__all__ = ["checkpoint_commands"]

checkpoint_commands = typer.Typer(rich_markup_mode=None)


def _of_this_machine(path: Path) -> Path:
    """Refuse a URL, which as a path would name a folder here."""
    if is_url(str(path).replace(":/", "://", 1)):
        raise typer.BadParameter("an export is a folder of this machine; copy it to HDFS as any other")
    return path


@checkpoint_commands.command()
def checkpoints(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List what a job can go back to.

    That is every kept batch, and its named checkpoints.

    \b
    Examples:
      penstock checkpoints flights
      penstock checkpoints flights --json
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.status import checkpoints_command

    checkpoints_command(job, json=json, project=project, debug=debug)


@checkpoint_commands.command()
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
    """Say what the job's code of now makes of its checkpoint, before it is started.

    Step by step: kept, with what has changed in it; new; dropped, which needs --drop; or incompatible, and why. Also
    sources and sinks that are new or gone. Spark analyses the job for it, and nothing is written; a driver may run
    meanwhile. It ends with 0 where a start would be accepted, and as the start would where it would be refused.

    \b
    Examples:
      penstock diff flights
      penstock diff flights --drop hourly
      penstock diff flights --against /backup/checkpoints
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.diff import diff_command

    diff_command(job, against=against, drop=drop or [], json=json, project=project, debug=debug)


@checkpoint_commands.command()
def restore(
    job: JobName,
    *,
    start: From = "last",
    partitions: Partitions = None,
    state: State = None,
    truncate_sinks: TruncateSinks = False,
    drop: Drop = None,
    command: CommandId = None,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Have a job go back, and leave it there.

    State and source positions become those of what is named, in the log of the job, and no batch is run: the next
    start goes on from there. The newest batch is published first, if it was not. The job must not run. A restore can
    be undone by another one.

    \b
    Examples:
      penstock restore flights --from batch=12
      penstock restore flights --from saved=friday --truncate-sinks
      penstock restore flights --partitions 16   the newest state in 16 partitions
      penstock restore flights --from batch=12 --state visits=corrected
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.run import restore_command

    restore_command(
        job,
        start=start,
        partitions=partitions,
        state=state or [],
        truncate_sinks=truncate_sinks,
        drop=drop or [],
        command=command,
        json=json,
        project=project,
        debug=debug,
    )


@checkpoint_commands.command()
def save(
    job: JobName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and _.", show_default=False)],
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the saved checkpoint of that name instead.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Give the newest checkpoint a name, under which it is kept (a savepoint).

    However many batches come after it, state and positions of that batch stay, and the job can go back to them. The
    job may run: its driver saves between two batches. A name stands for one batch and is not given twice, unless it
    was deleted. With --delete nothing is kept for the name any more.

    \b
    Examples:
      penstock save flights before_the_new_suite
      penstock run flights --from saved=before_the_new_suite
      penstock save flights before_the_new_suite --delete
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.save import save_command

    save_command(job, name, delete=delete, json=json, project=project, debug=debug)


@checkpoint_commands.command()
def upkeep(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Verify all that a job can go back to, and delete what it cannot.

    Every entry of its log and every byte of state that a kept batch names is read and checked against what was
    written; damage ends the command with exit code 78. Where there is none, what drivers have left below the oldest
    batch that is kept is deleted, and what reports have left behind is in any case.
    The job may run meanwhile.

    \b
    Examples:
      penstock upkeep flights
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.upkeep import upkeep_command

    upkeep_command(job, json=json, project=project, debug=debug)


@checkpoint_commands.command()
def fsck(
    root: Annotated[
        str, typer.Argument(metavar="ROOT", help="A checkpoint root, or one job's folder in it.", show_default=False)
    ],
    *,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Read all checkpoints below a root, and say what damage means.

    Metadata, every entry of each log, and every byte of the state that a kept or saved batch names are read and checked
    against what was written. It needs no project, no Spark and not the code of the jobs, and changes nothing; the jobs
    may run meanwhile. Where anything is damaged it ends with exit code 78.

    \b
    Examples:
      penstock fsck checkpoints
      penstock fsck checkpoints/flights --json
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.fsck import fsck_command

    fsck_command(root, json=json, debug=debug)


@checkpoint_commands.command()
def state(
    job: JobName,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step that keeps it.", show_default=False)],
    *,
    at: Annotated[
        str, typer.Option(metavar="N|saved=NAME|snapshot=V", help="As of which kept batch or data checkpoint.")
    ] = "last",
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only rows with that; also !=, <, <=, >, >=; repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="The most rows of a table.")] = 50,
    csv: Annotated[bool, typer.Option("--csv", help="Write all rows as CSV.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show what a step keeps: keys, state and when it is forgotten; of windows the slices.

    It reads the checkpoint alone, without the job's code, and may be asked while the job runs.

    \b
    Examples:
      penstock state visits sessions --where user=ann
      penstock state visits sessions --at 120 --csv > then.csv
      penstock state flights hourly --where 'slice_start>=2013-01-31T00:00:00Z'
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.state import state_command

    state_command(
        job,
        step,
        at=at,
        where=where or [],
        limit=limit,
        as_csv=csv,
        json=json,
        project=project,
        debug=debug,
    )


@checkpoint_commands.command("export")
def export_(
    job: JobName,
    target: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A folder that is not there.", callback=_of_this_machine),
    ],
    *,
    at: Annotated[str, typer.Option(metavar="N|saved=NAME", help="As of which kept batch.")] = "last",
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Copy what a job goes on from to a folder of its own.

    State, source positions and watermarks of one batch are in it, and all of it is read once more before it counts.
    What the job has put out is not. The job may run meanwhile; what is large is best saved first, so that nothing of it
    is let go.

    \b
    Examples:
      penstock export flights flights-2013
      penstock export flights before-the-move --at saved=friday
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.export_import import export_command

    export_command(job, target, at=at, json=json, project=project, debug=debug)


@checkpoint_commands.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="What export has written; a checkpoint to move.",
            show_default=False,
            callback=_of_this_machine,
        ),
    ],
    job: JobName,
    *,
    move: Annotated[
        bool, typer.Option("--move", help="DIR is another checkpoint: it ends, and the job goes on here as itself.")
    ] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Make a checkpoint that goes on from an export.

    It has an identity of its own: no table takes its batches for those of the job it came from. The job may have
    another name; steps and sources are found by theirs. There must be no checkpoint of it yet.

    With --move the checkpoint in DIR itself comes here, with all that it keeps and under its own identity, so that
    tables take each batch once. The job must not run. In DIR nothing goes on afterwards, whoever tries. A move that
    was cut short is finished by the same command, or by a start of the job here.

    \b
    Examples:
      penstock import flights-2013 flights
      penstock import ../old/checkpoints/flights flights --move
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.export_import import import_command

    import_command(source, job, move=move, json=json, project=project, debug=debug)
