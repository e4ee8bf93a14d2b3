"""Define the commands of supervision and their help: supervise, streams, and the requests to a stream."""

from __future__ import annotations

from typing import Annotated

import typer

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

__all__ = ["supervision"]

supervision = typer.Typer(rich_markup_mode=None)

AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="End when the rows available at the start are processed.")
]
Rows = Annotated[
    str | None,
    typer.Option(
        "--rows", metavar="N|none|default", help="Maximum of rows per batch for each source.", show_default=False
    ),
]
Note = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A reason, recorded with the stream.", show_default=False)
]
Meant = Annotated[
    int | None,
    typer.Option(
        "--generation",
        metavar="N",
        min=0,
        help="Only if it is the stream that generation N started.",
        show_default=False,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is done; exit 78 if the stream fails.")]

Check = Annotated[bool, typer.Option("--check", help="Only check whether it would work; end nothing.")]


@supervision.command()
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
    from penstock.cli.supervise import supervise_command

    supervise_command(json=json, project=project, debug=debug)


@supervision.command()
def streams(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List the project's jobs with the state of their streams."""
    from penstock.cli.streams import streams_command

    streams_command(json=json, project=project, debug=debug)


@supervision.command()
def start(
    job: JobName,
    *,
    start_from: From = "last",
    partitions: Partitions = None,
    state: State = None,
    truncate_sinks: TruncateSinks = False,
    drop: Drop = None,
    available_now: AvailableNow = False,
    rows: Rows = None,
    note: Note = None,
    command: CommandId = None,
    wait: Wait = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Run a job under the supervisor, as a stream.

    It runs until its sources end or it is stopped, with the current code and configuration. Later edits take effect
    with the next start or restart. A running stream gets these limits and this note, and keeps running.

    \b
    Examples:
      penstock start flights
      penstock start flights --wait                 return when it runs
      penstock start flights --available-now        end when the available rows are processed
      penstock start flights --rows 10000           read at most 10,000 rows per batch
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.streams import limits_of, options_of, stream_command
    from penstock.supervise.commands import Verb

    stream_command(
        job,
        Verb.START,
        start=start_from,
        options=options_of(partitions, state or [], drop or [], truncate_sinks=truncate_sinks),
        available_now=available_now,
        limits=limits_of(rows),
        note=note,
        name=command,
        wait=wait,
        json=json,
        project=project,
        debug=debug,
    )


@supervision.command()
def restart(
    job: JobName,
    *,
    start_from: From = "last",
    partitions: Partitions = None,
    state: State = None,
    truncate_sinks: TruncateSinks = False,
    drop: Drop = None,
    available_now: AvailableNow = False,
    rows: Rows = None,
    note: Note = None,
    generation: Meant = None,
    command: CommandId = None,
    wait: Wait = False,
    check: Check = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """End the driver after its batch, and start the job again.

    It starts from the last commit, a kept checkpoint, or without state. If a driver runs, the command first checks the
    restart as a start would: one that cannot work is rejected, and the driver keeps running.

    \b
    Examples:
      penstock restart flights                      with the current code
      penstock restart flights --from batch=12      restore batch 12, and run from there
      penstock restart flights --from empty         start without state; sinks keep their rows
      penstock restart flights --from batch=12 --truncate-sinks   and restore the tables too
      penstock restart flights --partitions 16      rescale the state to 16 partitions
      penstock restart flights --from batch=12 --check   check only; nothing is ended
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.streams import limits_of, options_of, stream_command
    from penstock.supervise.commands import Verb

    stream_command(
        job,
        Verb.RESTART,
        start=start_from,
        options=options_of(partitions, state or [], drop or [], truncate_sinks=truncate_sinks),
        available_now=available_now,
        limits=limits_of(rows),
        note=note,
        generation=generation,
        name=command,
        wait=wait,
        check=check,
        json=json,
        project=project,
        debug=debug,
    )


@supervision.command()
def stop(
    job: JobName,
    *,
    generation: Meant = None,
    command: CommandId = None,
    wait: Wait = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """End a stream after its batch. A generation that is over stops nothing."""
    from penstock.cli.streams import stream_command
    from penstock.supervise.commands import Verb

    stream_command(
        job,
        Verb.STOP,
        generation=generation,
        name=command,
        wait=wait,
        json=json,
        project=project,
        debug=debug,
    )


@supervision.command()
def drain(
    job: JobName,
    *,
    generation: Meant = None,
    command: CommandId = None,
    wait: Wait = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Process what is available, close all windows, and end the stream."""
    from penstock.cli.streams import stream_command
    from penstock.supervise.commands import Verb

    stream_command(
        job,
        Verb.DRAIN,
        generation=generation,
        name=command,
        wait=wait,
        json=json,
        project=project,
        debug=debug,
    )


@supervision.command()
def suspend(
    job: JobName,
    *,
    generation: Meant = None,
    command: CommandId = None,
    wait: Wait = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """End a stream after its batch, for `resume`.

    Code and limits are kept for it.
    """
    from penstock.cli.streams import stream_command
    from penstock.supervise.commands import Verb

    stream_command(
        job,
        Verb.SUSPEND,
        generation=generation,
        name=command,
        wait=wait,
        json=json,
        project=project,
        debug=debug,
    )


@supervision.command()
def resume(
    job: JobName,
    *,
    generation: Meant = None,
    command: CommandId = None,
    wait: Wait = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Restart a suspended stream.

    It has the same code and limits as before.
    """
    from penstock.cli.streams import stream_command
    from penstock.supervise.commands import Verb

    stream_command(
        job,
        Verb.RESUME,
        generation=generation,
        name=command,
        wait=wait,
        json=json,
        project=project,
        debug=debug,
    )


@supervision.command()
def limits(
    job: JobName,
    *,
    rows: Rows = "default",
    generation: Meant = None,
    command: CommandId = None,
    wait: Wait = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Set the maximum of rows per batch. A running driver applies it to its next batch.

    \b
    Examples:
      penstock limits flights --rows 1000
      penstock limits flights --rows none           no limit
      penstock limits flights --rows default        what the configuration says
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.streams import limits_of, stream_command
    from penstock.supervise.commands import Verb

    stream_command(
        job,
        Verb.LIMITS,
        limits=limits_of(rows),
        generation=generation,
        name=command,
        wait=wait,
        json=json,
        project=project,
        debug=debug,
    )
