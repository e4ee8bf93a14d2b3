"""Run the commands that ask something of a stream, and the one that lists streams."""

from __future__ import annotations

import json as jsonlib
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from penstock.checkpoint.log.batch_report import shown_moment
from penstock.checkpoint.roots import control_store, is_there
from penstock.cli.outcome import command_id, outcome, show, state_tables, step_names
from penstock.config.settings import checkpoint_root
from penstock.errors import ConfigError, JobNotFound, PenstockError, RootMissing
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import Project, find_project
from penstock.runtime.restore.target import parse_start
from penstock.supervise.commands import Command, CommandResult, Verb
from penstock.supervise.control import Asked, StreamControl
from penstock.supervise.records import supervised_jobs
from penstock.supervise.stream import Limits, Phase, StartOptions, Stream, begins_from
from penstock.time.clock import SystemClock

__all__ = ["limits_of", "options_of", "stream_command", "streams_command"]

_REACHED: dict[Verb, Callable[[Stream], bool]] = {
    Verb.START: lambda s: s.phase in (Phase.RUNNING, Phase.FINISHED),
    Verb.RESTART: lambda s: s.phase in (Phase.RUNNING, Phase.FINISHED),
    Verb.RESUME: lambda s: s.phase in (Phase.RUNNING, Phase.FINISHED),
    Verb.STOP: lambda s: s.phase in (Phase.STOPPED, Phase.FINISHED),
    Verb.SUSPEND: lambda s: s.phase is Phase.SUSPENDED,
    Verb.DRAIN: lambda s: s.phase is Phase.FINISHED,
    Verb.LIMITS: lambda _: True,
}
"""When a command is done, for those who wait."""


def stream_command(
    job: str,
    verb: Verb,
    *,
    start: str = "last",
    options: StartOptions | None = None,
    available_now: bool = False,
    limits: Limits | None = None,
    note: str | None = None,
    name: str | None = None,
    generation: int | None = None,
    wait: bool = False,
    check: bool = False,
    json: bool,
    project: Path | None,
    debug: bool,
) -> None:
    """Ask, say what became of it, and with `wait` stay until it is so; with `check` only judge what would be asked.

    A restart that ends a driver is judged first, by the code that a start runs: one that cannot work ends nothing.
    """
    command = Command(
        verb=verb,
        id=command_id(name) or secrets.token_hex(8),
        generation=generation,
        start=_checked_start(start, options),
        options=options,
        available_now=available_now,
        limits=limits,
        note=note,
    )
    configure_events(json=json)
    with outcome(debug=debug):
        found = find_project(given=project)
        control = _control(found, job)
        if check or control.ends_driver(command):
            _judge(found, job, command)
        if check:
            print(jsonlib.dumps({"job": job, "accepted": True}) if json else f"{job}: the restart would be accepted")
            return
        asked = control.ask(command)
        supervised = control.is_supervised()
        if not json:
            print(_sentence(job, command, asked))
        if wait and asked.outcome is not CommandResult.STALE:
            stream = control.wait(asked.generation, _REACHED[verb])
            asked = Asked(stream, asked.outcome, asked.generation)
            if not json:
                print(f"{job} is {stream.phase.value}")
        elif not supervised:
            print("no supervisor runs; the request stays recorded until one does: penstock supervise", file=sys.stderr)
        if json:
            print(
                jsonlib.dumps({"outcome": asked.outcome.value, **_facts(job, asked.stream), "supervised": supervised})
            )


def _judge(project: Project, job: str, command: Command) -> None:
    """Raise the error that the start of a restart would raise."""
    from penstock.runtime.process.start_check import preflight

    options = command.options or StartOptions()
    loaded = project.load(job, start=begins_from(command.start, options))
    tables = {step: loaded.conf.path_of(table) for step, table in options.state.items()}
    begins = begins_from(command.start, options.model_copy(update={"state": tables}))
    preflight(loaded, begins, options.drop)


def streams_command(*, json: bool, project: Path | None, debug: bool) -> None:
    """List the project's jobs with their streams."""
    configure_events(json=False)
    with outcome(debug=debug):
        found = find_project(given=project)
        wrong: list[PenstockError] = []
        streams = {job: _newest(found, job, wrong) for job in _jobs(found)}
        if json:
            print(jsonlib.dumps([_facts(job, stream) for job, stream in streams.items()]))
            _raise_first(wrong)
            return
        table = Table(box=None, pad_edge=False)
        for head in ("job", "state", "since", "generation", "restarts", "reason"):
            table.add_column(head, overflow="fold")
        for job, stream in streams.items():
            since = shown_moment(stream.since) if stream.since else ""
            counts = (str(stream.generation), str(stream.restarts))
            table.add_row(*(Text(x) for x in (job, stream.phase.value, since, *counts, stream.reason or "")))
        show(table)
        _raise_first(wrong)


def _raise_first(wrong: list[PenstockError]) -> None:
    """Let the command end as the trouble of a job does, once all that can be shown is shown."""
    if wrong:
        raise wrong[0]


def limits_of(rows: str | None) -> Limits | None:
    """Read `--rows`: a number of rows, `none` for no limit, or `default` for the configuration's."""
    if rows in (None, "default"):
        return None
    if rows == "none":
        return Limits()
    if not rows.isdecimal() or int(rows) < 1:
        raise typer.BadParameter(
            f"{rows!r} is neither a number of rows, 1 or more, nor none or default", param_hint="--rows"
        )
    return Limits(rows=int(rows))


def options_of(
    partitions: int | None, state: Sequence[str], drop: Sequence[str], *, truncate_sinks: bool
) -> StartOptions | None:
    """Read the options of a start, None where none was given."""
    said = StartOptions(
        partitions=partitions, state=state_tables(state), truncate_sinks=truncate_sinks, drop=step_names(drop)
    )
    return None if said == StartOptions() else said


def _jobs(project: Project) -> list[str]:
    """Return the project's jobs, and those whose code is gone and whose streams are not."""
    return sorted({*project.job_names(), *_supervised(checkpoint_root(project.root))})


def _supervised(root: Path) -> list[str]:
    """Return the jobs that have streams in a control root, which may not be there."""
    return supervised_jobs(control_store(root, make=False)) if is_there(root) else []


def _newest(project: Project, job: str, wrong: list[PenstockError]) -> Stream:
    """Return a job's stream; where its file or root is in trouble, what the project's own root says of it."""
    try:
        return _control(project, job).newest()
    except PenstockError as why:
        trouble = why
    if not isinstance(trouble, RootMissing):  # which is how a project looks before its first start
        wrong.append(trouble)
    stream, root = Stream(), checkpoint_root(project.root)
    if isinstance(trouble, ConfigError) and job in _supervised(root):
        stream = StreamControl(root, job, SystemClock()).newest()
    return stream.having(reason=f"{trouble.what} ({trouble.where})")


def _control(project: Project, job: str) -> StreamControl:
    """Return the control of a stream; one whose code is gone is looked for in the project's own root."""
    try:
        root = project.settings(job).root
    except JobNotFound:
        root = checkpoint_root(project.root)
        if job not in _supervised(root):
            raise
    return StreamControl(root, job, SystemClock())


def _checked_start(text: str, options: StartOptions | None) -> str:
    try:
        parse_start(text)
    except ValueError as why:
        raise typer.BadParameter(str(why), param_hint="--from") from None
    try:
        begins_from(text, options)
    except ValueError as why:
        raise typer.BadParameter(str(why)) from None
    return text


def _sentence(job: str, command: Command, asked: Asked) -> str:
    match asked.outcome:
        case CommandResult.DONE:
            if command.verb is Verb.LIMITS:
                return f"{job}: {_said(asked.stream.limits)} from now on"
            if command.verb is Verb.START and asked.stream.command != command.id:
                return f"{job}: it runs (generation {asked.generation}), with these limits and this note from now on"
            return f"{job}: {command.verb.value} asked for, generation {asked.generation}"
        case CommandResult.ALREADY:
            return f"{job}: nothing to do, it is {asked.stream.phase.value} (generation {asked.stream.generation})"
        case CommandResult.STALE:
            return (
                f"{job}: ignored, because generation {command.generation} is over; "
                f"the stream that runs began with generation {asked.stream.first}"
            )


def _said(limits: Limits | None) -> str:
    if limits is None:
        return "the limits of its configuration"
    return f"at most {limits.rows:,} rows a batch and source" if limits.rows else "no limit of rows"


def _facts(job: str, stream: Stream) -> dict[str, object]:
    driver = stream.driver
    return {
        "job": job,
        "phase": stream.phase.value,
        "wish": stream.wish.value,
        "reason": stream.reason,
        "since": stream.since,
        "generation": stream.generation,
        "first": stream.first,
        "restarts": stream.restarts,
        "limits": stream.limits.model_dump() if stream.limits is not None else None,
        "version": stream.version,
        "driver": driver.handle if driver is not None else None,
    }
