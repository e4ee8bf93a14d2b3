"""`penstock restore JOB`: restore a checkpoint, and run nothing."""

from __future__ import annotations

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
    beginning,
)
from penstock.cli.run import launched

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def restore(
    job: JobName,
    *,
    start: From = "last",
    partitions: Partitions = None,
    state: State = None,
    truncate_sinks: TruncateSinks = False,
    drop: Drop = None,
    command: CommandId = None,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Restore a checkpoint of a job, without running it.

    The command restores state and source positions in the log of the job. The next start resumes from there. The
    newest batch is published first, if it was not. The job must be stopped. Another restore undoes this one.

    \b
    Examples:
      penstock restore flights --from batch=12
      penstock restore flights --from saved=friday --truncate-sinks
      penstock restore flights --partitions 16   the newest state in 16 partitions
      penstock restore flights --from batch=12 --state visits=corrected
    """  # noqa: D301 - click knows the character, not the two
    from penstock.runtime.process.launch import RunOrder

    target, _ = beginning(start, partitions, state, drop, truncate_sinks=truncate_sinks)
    if not target.restore:
        raise typer.BadParameter("name the checkpoint to restore, or how to rewrite the state", param_hint="--from")
    order = RunOrder(start=target, drop=tuple(drop or ()), command=command, goes_on=False)
    launched(job, order, code=None, json=json, project=project, debug=debug)
