"""Define the commands of checkpoints: list, restore, save, verify, export and import."""

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
    """Reject a URL, which as a path would name a local folder."""
    if is_url(str(path).replace(":/", "://", 1)):
        raise typer.BadParameter("an export is a folder of this machine; copy it to HDFS as any other")
    return path


@checkpoint_commands.command()
def checkpoints(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List the checkpoints that can be restored.

    These are the kept batches, the savepoints and the data checkpoints.

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
    """Restore a checkpoint of a job, without running it.

    The command restores state and source positions in the log of the job. The next start resumes from there. The
    newest batch is published first, if it was not. The job must be stopped. Another restore undoes this one.

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
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and _.", show_default=False)],
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the saved checkpoint of that name instead.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Create a savepoint: keep the newest checkpoint under a name.

    State and positions of that batch are kept and can be restored, however many batches follow. The job may run: its
    driver saves between two batches. A name is for one batch, and free again once it is deleted with --delete.

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
    """Verify the checkpoints of a job, and delete expired files.

    The command verifies every entry of the log and every byte of state that a kept batch names. Damage ends it with
    exit code 78. Otherwise it deletes what drivers have left below the oldest kept batch. Left-overs of reports are
    deleted in any case. The job may run at the same time.

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
    """Verify all checkpoints below a root.

    The command verifies metadata, every entry of each log, and every byte of the state that a kept or saved batch
    names. It needs no project, no Spark and not the code of the jobs, and changes nothing; the jobs may run at the same
    time. If anything is damaged it ends with exit code 78.

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
    step: Annotated[str, typer.Argument(metavar="STEP", help="The stateful step.", show_default=False)],
    *,
    at: Annotated[
        str, typer.Option(metavar="N|saved=NAME|snapshot=V", help="The kept batch, savepoint or data checkpoint.")
    ] = "last",
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Filter rows, also by !=, <, <=, >, >=; repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum of rows shown.")] = 50,
    csv: Annotated[bool, typer.Option("--csv", help="Write all rows as CSV.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show the state of a step.

    Its rows are keys, state columns and expiry, or the slices of windows.

    The command reads the checkpoint alone, without the job's code. The job may run at the same time.

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
    from penstock.cli.export_import import export_command

    export_command(job, target, at=at, json=json, project=project, debug=debug)


@checkpoint_commands.command("import")
def import_(
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
    from penstock.cli.export_import import import_command

    import_command(source, job, move=move, json=json, project=project, debug=debug)
