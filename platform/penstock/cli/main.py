"""Define the commands and their help; what they do is imported only when they run, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.checkpoint_commands import checkpoint_commands
from penstock.cli.options import (
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
from penstock.cli.project_commands import project_commands
from penstock.cli.sink_commands import sinks_app
from penstock.cli.supervision import supervision

__all__ = ["app"]

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="""Run streaming jobs on Spark, and operate their checkpoints.

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
    """,
)
held_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Decide on batches that a gate has held.

    \b
    Examples:
      penstock held flights list
      penstock held flights release 17
      penstock held flights discard 17
    """,
)

BatchId = Annotated[int, typer.Argument(metavar="N", min=0, help="The batch.", show_default=False)]


def _version(wanted: bool) -> None:  # noqa: FBT001 - what typer passes
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"penstock {version('penstock')}")
        except PackageNotFoundError:
            typer.echo("penstock, run from its source without being installed")
        raise typer.Exit


@app.callback()
def _main(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    job: JobName,
    start: From = "last",
    *,
    partitions: Partitions = None,
    state: State = None,
    truncate_sinks: TruncateSinks = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when the rows available at the start are processed.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Process the rows available at the start, close all windows and end.")
    ] = False,
    new_lineage: Annotated[
        bool,
        typer.Option("--new-lineage", help="Replace a missing checkpoint by a new one; all rows are published again."),
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the job from the driver that holds it, even if it is alive.")
    ] = False,
    gate: Annotated[
        list[str] | None,
        typer.Option(metavar="N=publish|drop|hold", help="What to do with batch N, which a gate stopped; repeatable."),
    ] = None,
    drop: Drop = None,
    deadline: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="How long a batch may take after a stop request."),
    ] = None,
    generation: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Fencing token of a scheduler's start; a newer one takes over at once."),
    ] = 0,
    command: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Idempotency key of a scheduler; --from is done once for each ID."),
    ] = None,
    code: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For schedulers: a copy of jobs/ and conf/ to use.", show_default=False),
    ] = None,
    logs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="For schedulers: write events and errors to files of the generation in DIR.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Run a job until its sources end or it is stopped.

    It resumes from its checkpoint. Ctrl-C and SIGTERM finish the batch, or cancel it at the deadline; nothing is lost,
    and no sink receives half a batch. A second Ctrl-C cancels the batch at once.

    With --json, or if standard output is no terminal, the command writes one JSON event for each batch.

    \b
    Examples:
      penstock run flights
      penstock run flights --available-now       for a schedule: process what is available, exit 0
      penstock run flights --from batch=12       restore state and positions of batch 12 first
      penstock run flights --from batch=12 --truncate-sinks   and restore the tables too
      penstock run flights --from snapshot=3     to a data checkpoint, however old
      penstock run flights --partitions 16       rescale the state to 16 partitions
      penstock run flights --from empty          start without state; sinks keep their rows
      penstock run flights --gate 17=publish     publish batch 17, which a check has stopped
      penstock run flights --drop hourly         drop the state of the removed step hourly
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.run import run_command

    run_command(
        job,
        start=start,
        partitions=partitions,
        state=state or [],
        truncate_sinks=truncate_sinks,
        available_now=available_now,
        drain=drain,
        new_lineage=new_lineage,
        take_over=take_over,
        gates=gate or [],
        drop=drop or [],
        deadline=deadline,
        generation=generation,
        command=command,
        code=code,
        logs=logs,
        json=json,
        project=project,
        debug=debug,
    )


@app.command()
def explain(
    job: JobName,
    *,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Leave out what needs Spark's analysis: types, strategies.")
    ] = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show the steps of a job and its delivery guarantees.

    The command shows the steps with their lines, the Spark job of a batch and its stages. It also shows the guarantee
    of each path from a source to a sink, exactly-once or at-least-once.

    Spark analyses every column and expression and reports errors in them. Nothing is written.

    \b
    Examples:
      penstock explain flights
      penstock explain flights --no-spark        at once
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.explain import explain_command

    explain_command(job, with_spark=not no_spark, project=project, debug=debug)


@app.command()
def status(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Show state, lag, watermark and totals of a job.

    The command reads the checkpoint alone: it starts no Spark and needs no driver.

    \b
    Examples:
      penstock status flights
      penstock status flights --json
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.status import status_command

    status_command(job, json=json, project=project, debug=debug)


@app.command()
def report(
    job: JobName,
    *,
    check: Annotated[str | None, typer.Option(help="One check; else each on windows.", show_default=False)] = None,
    newest: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The newest N windows.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Windows that end then or later.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Windows that end before then.", show_default=False)
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name the report; a name counts once.", show_default=False)
    ] = None,
    if_any: Annotated[bool, typer.Option("--if-any", help="Succeed if there is nothing to report on.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Judge published windows and write a report.

    Great Expectations judges the windows published since the last report, or the selected ones, by the suite of the
    check. The report and the history of all reports are below the checkpoint root, in _reports/JOB/. The job may run
    at the same time.

    \b
    Examples:
      penstock report flights                        windows since the last report
      penstock report flights --newest 48            the newest 48 windows
      penstock report flights --since 2013-02-08 --until 2013-02-10
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.report import report_command

    report_command(
        job,
        check=check,
        newest=newest,
        since=since,
        until=until,
        run=run,
        if_any=if_any,
        json=json,
        project=project,
        debug=debug,
    )


@app.command()
def ui(
    *,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65_535, help="The port; 0 takes a free one.")] = 8_790,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show the project's streams in a browser.

    These are Airflow's pages of Penstock without Airflow: streams, batches, windows, checkpoints and reports.
    They listen on loopback only, need no login and change nothing. Ctrl-C ends the server.

    \b
    Examples:
      penstock ui
      penstock ui --port 0                       on a free port; the address is printed
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.ui import ui_command

    ui_command(port=port, project=project, debug=debug)


# The job stands between `held` and what to do, so it is an argument of the group.
@held_app.callback()
def _held(context: typer.Context, job: JobName) -> None:
    context.obj = job


@held_app.command("list")
def held_list(
    context: typer.Context, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False
) -> None:
    """List the held batches that wait for a decision."""
    from penstock.cli.held import list_command

    list_command(context.obj, json=json, project=project, debug=debug)


@held_app.command("release")
def held_release(
    context: typer.Context, batch: BatchId, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False
) -> None:
    """Publish a held batch. Repeating it has no effect, and the job may run at the same time."""
    from penstock.cli.held import release_command

    release_command(context.obj, batch, json=json, project=project, debug=debug)


@held_app.command("discard")
def held_discard(
    context: typer.Context, batch: BatchId, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False
) -> None:
    """Drop a held batch, with a count. It cannot be undone."""
    from penstock.cli.held import discard_command

    discard_command(context.obj, batch, json=json, project=project, debug=debug)


app.add_typer(held_app, name="held")
app.add_typer(sinks_app, name="sinks")
app.add_typer(project_commands)
app.add_typer(checkpoint_commands)
app.add_typer(supervision)
