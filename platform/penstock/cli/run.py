"""Run `penstock run`, and `penstock restore`, which restores and runs nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from penstock.checkpoint.roots import control_store
from penstock.cli.outcome import command_id, outcome, state_tables, step_names, terminal
from penstock.runtime.process.launch import RunOrder, launch
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.progress import BarProgress, JsonProgress, ProgressView
from penstock.runtime.process.project import find_project
from penstock.runtime.restore.target import RestoreTarget, parse_start
from penstock.supervise.launchers.local import log_files
from penstock.supervise.orders import StreamOrders
from penstock.supervise.records import StreamRecords

__all__ = ["parse_gates", "restore_command", "run_command"]

_WORDS = ("publish", "drop", "hold")


def run_command(
    job: str,
    *,
    start: str,
    partitions: int | None,
    state: Sequence[str],
    truncate_sinks: bool,
    available_now: bool,
    drain: bool,
    new_lineage: bool,
    take_over: bool,
    gates: Sequence[str],
    drop: Sequence[str],
    deadline: float | None,
    generation: int,
    command: str | None,
    code: Path | None,
    logs: Path | None,
    json: bool,
    project: Path | None,
    debug: bool,
) -> None:
    """Load the job, run it, and end with the exit code of DESIGN 11."""
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        _speak_to(*log_files(logs, generation))
    order = RunOrder(
        start=_start(start, truncate=truncate_sinks, partitions=partitions, state=state_tables(state)),
        available_now=available_now,
        drain=drain,
        new_lineage=new_lineage,
        take_over=take_over,
        gates=parse_gates(gates),
        drop=step_names(drop),
        deadline=deadline,
        generation=generation,
        command=command_id(command),
    )
    _launched(job, order, code=code, json=json, project=project, debug=debug)


def restore_command(
    job: str,
    *,
    start: str,
    partitions: int | None,
    state: Sequence[str],
    truncate_sinks: bool,
    drop: Sequence[str],
    command: str | None,
    json: bool,
    project: Path | None,
    debug: bool,
) -> None:
    """Restore a checkpoint of the job, without running it."""
    begins = _start(start, truncate=truncate_sinks, partitions=partitions, state=state_tables(state))
    if not begins.restore:
        raise typer.BadParameter("name the checkpoint to restore, or how to rewrite the state", param_hint="--from")
    order = RunOrder(start=begins, drop=step_names(drop), command=command_id(command), goes_on=False)
    _launched(job, order, code=None, json=json, project=project, debug=debug)


def _launched(job: str, order: RunOrder, *, code: Path | None, json: bool, project: Path | None, debug: bool) -> None:
    machine = json or not sys.stdout.isatty()
    configure_events(json=machine)
    progress: ProgressView = JsonProgress(job) if machine else BarProgress(job, terminal())
    with outcome(debug=debug, tell=progress.failed):
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


def _speak_to(events: Path, errors: Path) -> None:
    """Write to files what would go to standard output and error, also what Java and others write there.

    spark-submit passes on what a program says through a thread that it does not wait for, so the end may be lost.
    """
    for number, path in ((1, events), (2, errors)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)


def parse_gates(said: Sequence[str]) -> dict[int, str]:
    """Read `N=publish`, `N=drop` and `N=hold`; a batch may be named once."""
    found: dict[int, str] = {}
    for text in said:
        number, _, word = text.partition("=")
        if not number.isdecimal() or word not in _WORDS:
            raise typer.BadParameter(f"{text!r} is not N=publish, N=drop or N=hold", param_hint="--gate")
        if found.setdefault(int(number), word) != word:
            raise typer.BadParameter(f"batch {number} is named twice", param_hint="--gate")
    return found


def _start(text: str, *, truncate: bool, partitions: int | None, state: Mapping[str, str]) -> RestoreTarget:
    try:
        start = parse_start(text)
    except ValueError as why:
        raise typer.BadParameter(str(why), param_hint="--from") from None
    try:
        return start.having(partitions=partitions, state=state, truncate=truncate)
    except ValueError as why:
        raise typer.BadParameter(str(why)) from None
