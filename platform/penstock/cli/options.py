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
    typer.Option(metavar="STEP", help="Let go the state of a step that the job no longer has; repeatable."),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="last|batch=N|saved=NAME|snapshot=V|empty",
        help="Where to start; what is kept, or nothing.",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        metavar="P",
        min=1,
        help="Write the state anew for P partitions; a number in the job's code must be P.",
        show_default=False,
    ),
]
State = Annotated[
    list[str] | None,
    typer.Option(metavar="STEP=TABLE", help="Give a step the state of a Delta table; repeatable."),
]
TruncateSinks = Annotated[
    bool, typer.Option("--truncate-sinks", help="With --from: sinks take back what they have published after it.")
]
CommandId = Annotated[
    str | None,
    typer.Option("--command", metavar="ID", help="For schedulers: asked again with this ID, it is done once."),
]
