"""Define the commands that compare and reconcile a job's sinks with its log."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Debug, JobName, Json, ProjectFolder

__all__ = ["sinks_app"]

sinks_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Compare sinks with the log, and reconcile them.

    \b
    Examples:
      penstock sinks flights list
      penstock sinks flights redo hourly_delays
      penstock sinks flights skip hourly_delays
    """,
)

SinkName = Annotated[str, typer.Argument(metavar="SINK", help="The sink.", show_default=False)]


# As with `held`, the job stands before what to do.
@sinks_app.callback()
def _sinks(context: typer.Context, job: JobName) -> None:
    context.obj = job


@sinks_app.command("list")
def sinks_list(
    context: typer.Context, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False
) -> None:
    """List the batches that a sink has lost, and those that the next start publishes."""
    from penstock.cli.sinks import sinks_command

    sinks_command(context.obj, "list", json=json, project=project, debug=debug)


@sinks_app.command("redo")
def sinks_redo(
    context: typer.Context, sink: SinkName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False
) -> None:
    """Publish the batches that a sink has lost again, if their files exist. The job must be stopped."""
    from penstock.cli.sinks import sinks_command

    sinks_command(context.obj, "redo", sink, json=json, project=project, debug=debug)


@sinks_app.command("skip")
def sinks_skip(
    context: typer.Context, sink: SinkName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False
) -> None:
    """Skip the batches that a sink does not show. The log counts their rows. The job must be stopped."""
    from penstock.cli.sinks import sinks_command

    sinks_command(context.obj, "skip", sink, json=json, project=project, debug=debug)
