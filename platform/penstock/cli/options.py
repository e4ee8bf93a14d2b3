"""Define the arguments and options that several commands have, and check what is given for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.outcome import refusing
from penstock.graph.names import is_name

if TYPE_CHECKING:
    from penstock.runtime.restore.target import RestoreTarget
    from penstock.supervise.stream import StartOptions

__all__ = [
    "AvailableNow",
    "CommandId",
    "Debug",
    "Drop",
    "From",
    "JobName",
    "Json",
    "Partitions",
    "ProjectFolder",
    "State",
    "TruncateSinks",
    "beginning",
    "checked_command_id",
    "checkpoint_at",
    "job_group",
]


def job_group(name: str, text: str) -> typer.Typer:
    """Return a group of commands that has the job as its argument; the commands find it in the `obj` of the context."""
    group = typer.Typer(name=name, no_args_is_help=True, rich_markup_mode=None, help=text)

    @group.callback()
    def _take(context: typer.Context, job: JobName) -> None:
        context.obj = job

    return group


def _dropped_names(given: list[str] | None) -> list[str] | None:
    """Refuse what is no name of a step or source."""
    for text in given or ():
        if not is_name(text):
            raise typer.BadParameter(f"{text!r} is no name of a step or source", param_hint="--drop")
    return given


def checked_command_id(given: str | None) -> str | None:
    """Refuse what is no id of a command."""
    if given is None:
        return None
    from penstock.supervise.commands import ID_RULE, is_id

    if not is_id(given):
        raise typer.BadParameter(f"an id is {ID_RULE}", param_hint="--command")
    return given


def beginning(
    start: str, partitions: int | None, state: list[str] | None, drop: list[str] | None, *, truncate_sinks: bool
) -> tuple[RestoreTarget, StartOptions | None]:
    """Return where a start begins, by `--from` and the options that go with it, and these, None where none was given.

    Refuses what does not go together.
    """
    from penstock.runtime.restore.target import parse_start
    from penstock.supervise.stream import StartOptions, begins_from

    with refusing("--state"):
        options = StartOptions.given(
            partitions=partitions, state=state or (), truncate_sinks=truncate_sinks, drop=drop or ()
        )
    with refusing("--from"):
        parse_start(start)
    with refusing():
        return begins_from(start, options), options


def checkpoint_at(text: str) -> RestoreTarget:
    """Return the checkpoint that `--at` names: a batch by its number alone, others as `--from` does."""
    from penstock.runtime.restore.target import parse_start

    with refusing("--at"):
        return parse_start(f"batch={text}" if text.isdecimal() else text)


JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job: a module in jobs/.", show_default=False)]
ProjectFolder = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="The project's folder, instead of the nearest.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Drop a step with state, or a source, that the job no longer has; repeatable.",
        callback=_dropped_names,
    ),
]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="End when the rows available at the start are processed.")
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="last|batch=N|saved=NAME|snapshot=V|empty",
        help="The checkpoint to start from, or empty.",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        metavar="P",
        min=1,
        help="Rescale the state to P partitions; a number in the job's code must be P.",
        show_default=False,
    ),
]
State = Annotated[
    list[str] | None,
    typer.Option(metavar="STEP=TABLE", help="Set the state of a step to a Delta table; repeatable."),
]
TruncateSinks = Annotated[
    bool, typer.Option("--truncate-sinks", help="With --from: restore the tables of sinks to that batch too.")
]
CommandId = Annotated[
    str | None,
    typer.Option(
        "--command",
        metavar="ID",
        help="Idempotency key of a scheduler; a command is done once for each ID.",
        callback=checked_command_id,
    ),
]
