"""Define the options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
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
]

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job: a module in jobs/.", show_default=False)]
ProjectFolder = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="The project's folder, instead of the nearest.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="STEP", help="Drop the state of a step that the job no longer has; repeatable."),
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
    typer.Option("--command", metavar="ID", help="Idempotency key of a scheduler; a command is done once for each ID."),
]
