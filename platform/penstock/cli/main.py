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
    help="""Run streaming jobs on Spark and look after their checkpoints.

    A job is a module jobs/JOB.py with build(conf), and a file conf/jobs/JOB.toml.
    The commands find the project from the folder they are called in: the nearest one with conf/penstock.toml.

    \b
    A project of your own:
      penstock init clicks                   a job that runs, its settings, gates, DAGs and test
      penstock doctor                        what the machine and the project lack

    \b
    A first tour:
      penstock explain flights --no-spark    what the job does, step by step
      penstock run flights                   run it; Ctrl-C finishes the batch and stops
      penstock status flights                how it stands, from its checkpoint alone
      penstock checkpoints flights           where it can go back to
      penstock diff flights                  what its code of now makes of that, before it is started
      penstock run flights --drain           the same, and close the windows that are open: the end of the job
      penstock run flights --from batch=12   go back, and on from there
      penstock restore flights --from batch=12   go back, and leave it there

    \b
    Streams that go on without you:
      penstock supervise                     keep streams running; leave it in a terminal or a service
      penstock start flights                 run it under the supervisor, and again whenever it fails
      penstock streams                       what runs, and how
      penstock restart flights --from batch=12
      penstock stop flights
      penstock ui                            the same in a browser

    \b
    Exit codes:
      0   finished, or stopped as asked        77  another driver holds the job
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
        bool, typer.Option("--available-now", help="End when what was there at the start is done.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Do what was there at the start, then close all windows and end.")
    ] = False,
    new_lineage: Annotated[
        bool, typer.Option("--new-lineage", help="Begin a checkpoint anew, though there was one: all rows come again.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the job from a driver that holds it, even if it lives.")
    ] = False,
    gate: Annotated[
        list[str] | None,
        typer.Option(metavar="N=publish|drop|hold", help="What to do with batch N, which a gate stopped; repeatable."),
    ] = None,
    drop: Drop = None,
    deadline: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="How long a batch may go on after a stop was asked for."),
    ] = None,
    generation: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="For schedulers: the start's number; a newer one takes over at once."),
    ] = 0,
    command: Annotated[
        str | None,
        typer.Option(metavar="ID", help="For schedulers: what asked for this; --from is done once for each ID."),
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

    It goes on where its checkpoint says. Ctrl-C and SIGTERM finish the batch, or give it up at the deadline; nothing
    is lost, and no sink gets half a batch. A second Ctrl-C gives the batch up at once.

    Where standard output is no terminal, or with --json, one JSON event is written for each batch.

    \b
    Examples:
      penstock run flights
      penstock run flights --available-now       for a schedule: process what is there, exit 0
      penstock run flights --from batch=12       state and positions go back to batch 12 first
      penstock run flights --from batch=12 --truncate-sinks   and tables show again what they showed then
      penstock run flights --from snapshot=3     to a data checkpoint, however old
      penstock run flights --partitions 16       the state in 16 partitions
      penstock run flights --from empty          begin anew; what sinks have stays, and is reported
      penstock run flights --gate 17=publish     go on at batch 17, which a check had stopped
      penstock run flights --drop hourly         the job has no step hourly any more: let its state go
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
        bool, typer.Option("--no-spark", help="Leave out what only Spark's analysis tells: types, strategies.")
    ] = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show what a job does and what it promises.

    That is: its steps with their lines, the Spark job of a batch, the stages of a batch, and the guarantee of each
    path from a source to a sink.

    Spark analyses every column and expression, so what is wrong with them is told here, and nothing is written.

    \b
    Examples:
      penstock explain flights
      penstock explain flights --no-spark        at once
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.explain import explain_command

    explain_command(job, with_spark=not no_spark, project=project, debug=debug)


@app.command()
def status(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Show how a job stands.

    It is told from the checkpoint alone: no Spark is started, and no driver is needed.

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
    if_any: Annotated[bool, typer.Option("--if-any", help="End well where there is nothing to report on.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Judge published windows and write a report.

    Great Expectations judges the windows that were published since the last report, or those that are chosen, by the
    suite of the check. The page of the report and the history of all are written below the checkpoint root, in
    _reports/JOB/. The job may run meanwhile.

    \b
    Examples:
      penstock report flights                        what is new
      penstock report flights --newest 48            the newest 48 windows, again if need be
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
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65_535, help="The port; 0 takes one that is free.")
    ] = 8_790,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show the project's streams in a browser.

    The pages are those that Airflow has, without Airflow: how streams stand, their batches, windows, checkpoints and
    reports. They are served on this machine's loopback alone, to whoever may use it, and change nothing. Ctrl-C ends
    it.

    \b
    Examples:
      penstock ui
      penstock ui --port 0                       at a port that is free; its address is printed
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
    """List the held batches that nobody has decided on."""
    from penstock.cli.held import list_command

    list_command(context.obj, json=json, project=project, debug=debug)


@held_app.command("release")
def held_release(
    context: typer.Context, batch: BatchId, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False
) -> None:
    """Publish a held batch. A second time changes nothing; the job may run meanwhile."""
    from penstock.cli.held import release_command

    release_command(context.obj, batch, json=json, project=project, debug=debug)


@held_app.command("discard")
def held_discard(
    context: typer.Context, batch: BatchId, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False
) -> None:
    """Drop a held batch, with a count. It cannot be brought back."""
    from penstock.cli.held import discard_command

    discard_command(context.obj, batch, json=json, project=project, debug=debug)


app.add_typer(held_app, name="held")
app.add_typer(sinks_app, name="sinks")
app.add_typer(project_commands)
app.add_typer(checkpoint_commands)
app.add_typer(supervision)
