"""`penstock run JOB`: run a job in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import (
    AvailableNow,
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
    checked_command_id,
)
from penstock.cli.outcome import outcome, terminal

if TYPE_CHECKING:
    from penstock.runtime.process.launch import RunOrder

__all__ = ["commands", "launched", "parse_gates"]

commands = typer.Typer(rich_markup_mode=None)
_DECISIONS = ("publish", "drop", "hold")


@commands.command()
def run(
    job: JobName,
    start: From = "last",
    *,
    partitions: Partitions = None,
    state: State = None,
    truncate_sinks: TruncateSinks = False,
    available_now: AvailableNow = False,
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
        typer.Option(
            metavar="ID",
            help="Idempotency key of a scheduler; --from is done once for each ID.",
            callback=checked_command_id,
        ),
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
    from penstock.runtime.process.launch import RunOrder

    if logs is not None:
        _write_to_files(logs, generation)
    target, _ = beginning(start, partitions, state, drop, truncate_sinks=truncate_sinks)
    order = RunOrder(
        start=target,
        available_now=available_now,
        drain=drain,
        new_lineage=new_lineage,
        take_over=take_over,
        gates=parse_gates(gate or ()),
        drop=tuple(drop or ()),
        deadline=deadline,
        generation=generation,
        command=command,
        debug=debug,
    )
    launched(job, order, code=code, json=json, project=project, debug=debug)


def launched(job: str, order: RunOrder, *, code: Path | None, json: bool, project: Path | None, debug: bool) -> None:
    """Load the job and carry the order out; end with the exit code of DESIGN 11."""
    from dataclasses import replace

    from penstock.checkpoint.roots import control_store
    from penstock.runtime.process.launch import launch
    from penstock.runtime.process.logging import configure_events
    from penstock.runtime.process.progress import BarProgress, JsonProgress, ProgressView
    from penstock.runtime.process.project import find_project
    from penstock.supervise.orders import StreamOrders
    from penstock.supervise.records import StreamRecords

    machine = json or not sys.stdout.isatty()
    configure_events(json=machine)  # before what shows progress binds its loggers
    progress: ProgressView = JsonProgress(job) if machine else BarProgress(job, terminal())
    with outcome(debug=debug, tell=progress.failed, json=None):
        try:
            loaded = find_project(given=project, code=code).load(job, start=order.start, command=order.command)
            tables = tuple((step, loaded.conf.path_of(table)) for step, table in order.start.state)
            order = replace(order, start=replace(order.start, state=tables))
            for name in loaded.conf.unused() if order.goes_on else ():
                progress.unused(name, str(loaded.conf.file))
            records = StreamRecords(control_store(loaded.settings.root), job)
            launch(loaded, order, progress, StreamOrders(records, order.generation))
        finally:
            progress.close()


def _write_to_files(logs: Path, generation: int) -> None:
    """Write to files what would go to standard output and error, also what Java and others write there.

    spark-submit passes on what a program says through a thread that it does not wait for, so the end may be lost.
    """
    from penstock.supervise.launchers.local import log_files

    logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number, path in zip((1, 2), log_files(logs, generation), strict=True):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)


def parse_gates(texts: Sequence[str]) -> dict[int, str]:
    """Read `N=publish`, `N=drop` and `N=hold`; a batch may be named once."""
    decisions: dict[int, str] = {}
    for text in texts:
        number, _, word = text.partition("=")
        if not number.isdecimal() or word not in _DECISIONS:
            raise typer.BadParameter(f"{text!r} is not N=publish, N=drop or N=hold", param_hint="--gate")
        if decisions.setdefault(int(number), word) != word:
            raise typer.BadParameter(f"batch {number} is named twice", param_hint="--gate")
    return decisions
