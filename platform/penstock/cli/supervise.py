"""`penstock supervise`: run the project's streams, and restart them."""

from __future__ import annotations

import sys

import typer

from penstock.cli.options import Debug, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def supervise(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Run the project's streams, and restart them.

    The supervisor watches the progress of each driver, restarts it after a failure, and carries out the requests of
    start, stop, restart and the others. Ctrl-C ends the supervisor alone: drivers keep running, and the next supervisor
    finds them. A second supervisor is a hot standby.

    \b
    Examples:
      penstock supervise
      penstock supervise --json >> supervisor.log
    """  # noqa: D301 - click knows the character, not the two
    from penstock.supervise.service import serve

    machine = json or not sys.stdout.isatty()
    with outcome(debug=debug, json=machine, narrated=not machine):
        serve(project_at(project))
