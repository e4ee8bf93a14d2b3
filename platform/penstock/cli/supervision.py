"""Define the commands of supervision and their help: supervise, streams, and what can be asked of a stream."""

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

AvailableNow = Annotated[bool, typer.Option("--available-now", help="End when what was there at the start is done.")]
Rows = Annotated[
    str | None,
    typer.Option(
        "--rows", metavar="N|none|default", help="The most rows a batch reads of each source.", show_default=False
    ),
]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept with the stream.", show_default=False)]
Meant = Annotated[
    int | None,
    typer.Option("--generation", metavar="N", min=0, help="Only if it is the stream that N began.", show_default=False),
]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until it is so; exit 78 if the stream fails.")]

Check = Annotated[bool, typer.Option("--check", help="Only say whether it would work; end nothing.")]


@supervision.command()
def supervise(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Keep the project's streams as they are wanted.

    It starts the driver of each stream that was started, watches its progress, starts it again when it fails, and
    obeys what start, stop, restart and the others ask for. Ctrl-C ends the supervisor alone: drivers go on, and the
    next supervisor finds them. A second one stands by, and takes over when the first is gone.

    \b
    Examples:
      penstock supervise
      penstock supervise --json >> supervisor.log
    """  # noqa: D301 - click knows the character, not the two
    from penstock.cli.supervise import supervise_command

    supervise_command(json=json, project=project, debug=debug)


@supervision.command()
def streams(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List the project's jobs and how their streams stand."""
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
    """Have the supervisor run a job.

    It runs until its sources end or it is stopped, with
    the code and the configuration of this moment: what is edited later counts from the next start or restart.
    A stream that runs already goes on, with these limits and this note where they are given.

    \b
    Examples:
      penstock start flights
      penstock start flights --wait                 come back when it runs
      penstock start flights --available-now        end when what is there is done
      penstock start flights --rows 10000           read at most so many rows a batch
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
    """End the driver and begin anew.

    It begins from the last commit, a kept batch, or nothing. The driver finishes its batch first. Where one runs, the
    restart is checked before, as a start checks itself: one that cannot work is refused, and the driver goes on.

    \b
    Examples:
      penstock restart flights                      with the code of now
      penstock restart flights --from batch=12      go back, and on from there
      penstock restart flights --from empty         begin anew; what sinks have stays
      penstock restart flights --from batch=12 --truncate-sinks   and tables show again what they showed then
      penstock restart flights --partitions 16      the state in 16 partitions
      penstock restart flights --from batch=12 --check   whether that would work; nothing is ended
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
    """Let the driver finish its batch, and end. A generation that is over stops nothing."""
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
    """Do what is there, close all windows, end."""
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
    """End after the batch; `resume` goes on.

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
    """Go on with a suspended stream.

    It has the code and the limits that it had before.
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
    """Change what bounds a batch. A driver that runs hears of it before its next batch.

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
