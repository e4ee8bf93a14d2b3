"""Make the `penstock` command of the modules that each define one: its arguments, its help and what it does."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

__all__ = ["COMMANDS", "app", "make_app"]

COMMANDS = (
    "penstock.cli.run",
    "penstock.cli.explain",
    "penstock.cli.status",
    "penstock.cli.report",
    "penstock.cli.ui",
    "penstock.cli.held",
    "penstock.cli.requeue",
    "penstock.cli.sinks",
    "penstock.cli.init",
    "penstock.cli.doctor",
    "penstock.cli.config",
    "penstock.cli.checkpoints",
    "penstock.cli.diff",
    "penstock.cli.restore",
    "penstock.cli.save",
    "penstock.cli.simulate",
    "penstock.cli.upkeep",
    "penstock.cli.fsck",
    "penstock.cli.state",
    "penstock.cli.export_import",
    "penstock.cli.supervise",
    "penstock.cli.streams",
)
"""The modules of commands, in the order in which `penstock --help` lists them.

All are imported for every command line, so none of them imports at its top what costs time (decision 100).
"""


def _version(wanted: bool) -> None:  # noqa: FBT001 - what typer passes
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"penstock {version('penstock')}")
        except PackageNotFoundError:
            typer.echo("penstock, run from its source without being installed")
        raise typer.Exit


def _main(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run streaming jobs on Spark, and operate their checkpoints.

    A job is a module jobs/JOB.py with build(conf), and a file conf/jobs/JOB.toml.
    Commands find the project from the current folder: the nearest one with conf/penstock.toml.

    \b
    A project of your own:
      penstock init clicks                   a job that runs, its settings, gates, DAGs and test
      penstock doctor                        what is missing on the machine and in the project

    \b
    A first tour:
      penstock explain flights --no-spark    what the job does, step by step
      penstock run flights                   run it; Ctrl-C finishes the batch and stops
      penstock status flights                state, lag, watermark and totals, from its checkpoint
      penstock checkpoints flights           the batches and savepoints that can be restored
      penstock diff flights                  check whether the current code can resume from the checkpoint
      penstock run flights --drain           process what is available, close all windows, and end the job
      penstock run flights --from batch=12   restore batch 12, and run from there
      penstock restore flights --from batch=12   restore batch 12, and run nothing

    \b
    Supervised streams:
      penstock supervise                     run streams and restart them; leave it in a terminal or a service
      penstock start flights                 run it under the supervisor, which restarts it after a failure
      penstock streams                       all streams with their state
      penstock restart flights --from batch=12
      penstock stop flights
      penstock ui                            the same in a browser

    \b
    Exit codes:
      0   finished, or stopped as requested    77  another driver holds the job
      70  an error in Penstock itself          78  a person is needed; the message says for what
      75  a retry may help                     2   the command line is wrong
    """  # noqa: D301 - click knows the character, not the two


def make_app(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """Return the command that has what these modules define in `commands`: a `typer.Typer`, with a name for a group."""
    made = typer.Typer(
        name="penstock",
        callback=_main,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for module in commands:
        made.add_typer(import_module(module).commands)
    return made


app = make_app()
