"""Define the options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Debug", "Drop", "JobName", "Json", "ProjectFolder"]

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
