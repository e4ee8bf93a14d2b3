"""Define the commands that look after checkpoints: list them, give them names, verify and sweep them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Debug, Drop, JobName, Json, ProjectFolder

__all__ = ["checkpoint_commands"]

checkpoint_commands = typer.Typer(rich_markup_mode=None)


@checkpoint_commands.command()
def checkpoints(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List what a job can go back to.

    That is every kept batch, and its named checkpoints.

    \b
    Examples:
      penstock checkpoints flights
      penstock checkpoints flights --json
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.look import checkpoints_command

    checkpoints_command(job, json=json, project=project, debug=debug)


@checkpoint_commands.command()
def diff(
    job: JobName,
    *,
    against: Annotated[
        Path | None,
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
def save(
    job: JobName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and _.", show_default=False)],
    *,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Give the newest checkpoint a name, under which it is kept.

    However many batches come after it, state and positions of that batch stay, and the job can go back to them. The
    job may run: its driver saves between two batches. A name stands for one batch and is not given twice.

    \b
    Examples:
      penstock save flights before_the_new_suite
      penstock run flights --from saved=before_the_new_suite
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.save import save_command

    save_command(job, name, json=json, project=project, debug=debug)


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
        Path, typer.Argument(metavar="ROOT", help="A checkpoint root, or one job's folder in it.", show_default=False)
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
