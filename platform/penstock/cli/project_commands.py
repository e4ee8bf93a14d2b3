"""Define the commands that look after a project: make one, see what it lacks, check its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Debug, Json, ProjectFolder

__all__ = ["project_commands"]

project_commands = typer.Typer()
config_app = typer.Typer(no_args_is_help=True, help="Look at the configuration.")


@project_commands.command("init")
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name.", show_default=False)],
    *,
    folder: Annotated[
        Path, typer.Option("--into", metavar="DIR", help="The project's folder; made if it is not there.")
    ] = Path(),
    debug: Debug = False,
) -> None:
    """Write a project with one job that runs, or add a job to the project that is there.

    Module, settings, suite, rows to replay, test, and the DAG files. Nothing that is there is changed.

    \b
    Examples:
      penstock init clicks
      penstock init clicks --into streams
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.init import init_command

    init_command(name, folder=folder, debug=debug)


@project_commands.command("doctor")
def doctor(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Check what a job needs on this machine; fetch the jars of delta-spark into .jars.

    Checks Java, packages and their extras, jars by their digests, the checkpoint root and the settings of every job.

    \b
    Examples:
      penstock doctor
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.doctor import doctor_command

    doctor_command(json=json, project=project, debug=debug)


@config_app.command("check")
def config_check(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Read every file, and build every job.

    Tells all that is wrong, with file and line: keys, types, suites, names that a job asks for and that are not there.
    Spark is not started, so columns and SQL are for `penstock explain`.

    \b
    Examples:
      penstock config check
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.config import check_command

    check_command(json=json, project=project, debug=debug)


project_commands.add_typer(config_app, name="config")
