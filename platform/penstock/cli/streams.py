"""`penstock streams`, and the commands that request something of a stream: start, stop, drain and the others."""

from __future__ import annotations

import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.limit_options import (
    Bytes,
    Defaults,
    MaxFiles,
    MaxRate,
    MaxRatePerPartition,
    OfSource,
    Pause,
    Rows,
    defaults_of,
    limits_given,
)
from penstock.cli.options import (
    AvailableNow,
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
from penstock.cli.outcome import outcome, project_at, show, shown_moment, tell, write_json
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.runtime.process.project import Project
    from penstock.supervise.commands import Command
    from penstock.supervise.control import Asked
    from penstock.supervise.stream import Stream

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)

Note = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A reason, recorded with the stream.", show_default=False)
]
Generation = Annotated[
    int | None,
    typer.Option(
        "--generation",
        metavar="N",
        min=0,
        help="Only if it is the stream that generation N started.",
        show_default=False,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is done; exit 78 if the stream or its code fails.")]
Check = Annotated[bool, typer.Option("--check", help="Only check whether it would work; end nothing.")]

_RUNS = ("RUNNING", "FINISHED")
_REACHED = {
    "start": _RUNS,
    "restart": _RUNS,
    "resume": _RUNS,
    "stop": ("STOPPED", "FINISHED"),
    "suspend": ("SUSPENDED",),
    "drain": ("FINISHED",),
}
"""The phases in which a command is done, for those who wait; `limits` is done in any."""
_ENDING = ("stop", "suspend", "drain")
_WITH_CODE = ("start", "restart", "resume")


@commands.command()
def streams(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List the project's jobs with the state of their streams."""
    from rich.table import Table
    from rich.text import Text

    from penstock.supervise.control import newest_stream, stream_jobs
    from penstock.supervise.ended import driver_end, runs_by_hand

    with outcome(debug=debug):
        here = project_at(project)
        errors: list[PenstockError] = []
        newest = {job: newest_stream(here, job, errors) for job in stream_jobs(here)}
        ends = {job: driver_end(here, job, stream) for job, stream in newest.items()}
        by_hand = {job for job in newest if runs_by_hand(here, job)}
        if json:
            write_json([
                {**_facts(job, stream), "rolled_back_for": _rollback(here, job, stream),
                 "driver_end": None if (end := ends[job]) is None else end.name.lower(), "by_hand": job in by_hand}
                for job, stream in newest.items()
            ])  # fmt: skip
        else:
            table = Table(box=None, pad_edge=False)
            for head in ("job", "state", "since", "generation", "restarts", "reason"):
                table.add_column(head, overflow="fold")
            for job, stream in newest.items():
                end = ends[job]
                since = shown_moment(stream.since) if stream.since and end is None else ""
                state = stream.phase.value if end is None else end.value
                counts = (str(stream.generation), str(stream.restarts))
                reason = stream.reason or _rollback(here, job, stream) or ""
                if job in by_hand:
                    reason = f"a driver runs that was started by hand{reason and '; '}{reason}"
                table.add_row(*(Text(x) for x in (job, state, since, *counts, reason)))
            show(table)
        if errors:  # the command ends as the trouble of a job does, once all that can be shown is shown
            raise errors[0]


def _rollback(project: Project, job: str, stream: Stream) -> str | None:
    """Return why a version of the code was rolled back, None where none was: the stable one then runs for no reason."""
    from penstock.supervise.control import stream_control

    if stream.rolled_back is None:
        return None
    with suppress(PenstockError):  # the trouble of its files is what the list says of the job
        return stream_control(project, job).why_rolled_back(stream)
    return f"version {stream.rolled_back} was rolled back"


@commands.command()
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
    size: Bytes = None,
    files: MaxFiles = None,
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
    _, options = beginning(start_from, partitions, state, drop, truncate_sinks=truncate_sinks)
    begins = {"start": start_from, "options": options, "available_now": available_now}
    what = {**begins, **limits_given(rows=rows, bytes=size, files=files), "note": note}
    _request(job, "start", command, what, wait=wait, json=json, project=project, debug=debug)


@commands.command()
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
    size: Bytes = None,
    files: MaxFiles = None,
    note: Note = None,
    generation: Generation = None,
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
    _, options = beginning(start_from, partitions, state, drop, truncate_sinks=truncate_sinks)
    begins = {"start": start_from, "options": options, "available_now": available_now}
    what = {**begins, **limits_given(rows=rows, bytes=size, files=files), "note": note, "generation": generation}
    _request(job, "restart", command, what, wait=wait, check=check, json=json, project=project, debug=debug)


def _add_request(verb: str, summary: str) -> None:
    @commands.command(verb, help=summary)
    def _requested(
        job: JobName,
        *,
        generation: Generation = None,
        command: CommandId = None,
        wait: Wait = False,
        json: Json = False,
        project: ProjectFolder = None,
        debug: Debug = False,
    ) -> None:
        _request(job, verb, command, {"generation": generation}, wait=wait, json=json, project=project, debug=debug)


_add_request("stop", "End a stream after its batch. A generation that is over stops nothing.")
_add_request("drain", "Process what is available, close all windows, and end.")
_add_request("suspend", "End a stream after its batch, for `resume`.\n\nCode and limits are kept for it.")
_add_request("resume", "Restart a suspended stream.\n\nIt has the same code and limits as before.")


@commands.command()
def limits(
    job: JobName,
    *,
    source: OfSource = None,
    rows: Rows = None,
    size: Bytes = None,
    files: MaxFiles = None,
    max_rate: MaxRate = None,
    max_rate_per_partition: MaxRatePerPartition = None,
    pause: Pause = None,
    defaults: Defaults = False,
    generation: Generation = None,
    command: CommandId = None,
    wait: Wait = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Set what batches read at most. A running driver applies it to its next batch.

    Limits that are not named stay as they are. `penstock status` shows those in force.

    \b
    Examples:
      penstock limits flights --rows 1000
      penstock limits flights --rows none           no limit
      penstock limits flights --rows default        what the configuration says
      penstock limits flights --max-rate 5000 --max-rate-per-partition 1000
      penstock limits flights --source departures --rows 500
      penstock limits flights --pause               read nothing until --no-pause
      penstock limits flights --defaults            all as the configuration says
    """  # noqa: D301 - click knows the character, not the two
    given = {
        "rows": rows, "bytes": size, "files": files, "max_rate": max_rate,
        "max_rate_per_partition": max_rate_per_partition,
    }  # fmt: skip
    if defaults == any(value is not None for value in (*given.values(), pause)):
        # One who only looks must not take the limits of a job off.
        raise typer.BadParameter(
            "name the limits to set, or give --defaults alone; penstock status shows those in force"
        )
    if source is not None and pause is not None:
        raise typer.BadParameter("a pause is of the whole job: leave --source out", param_hint="--pause")
    if source is not None and defaults:
        what = defaults_of(source)
    else:
        what = limits_given(**given, source=source, paused=pause)
    what = {**what, "generation": generation}
    _request(job, "limits", command, what, wait=wait, json=json, project=project, debug=debug)


def _request(
    job: str,
    verb: str,
    command_id: str | None,
    what: dict[str, Any],
    *,
    wait: bool,
    check: bool = False,
    json: bool,
    project: Path | None,
    debug: bool,
) -> None:
    """Request, say what became of it, and with `wait` stay until it is so; with `check` only check the request.

    A restart that ends a driver is checked first, by the code that a start runs: one that cannot work ends nothing.
    `what` has the fields of the Command.
    """
    from penstock.supervise.commands import Command, CommandResult, Verb
    from penstock.supervise.control import Asked, stream_control

    command = Command(verb=Verb(verb), id=command_id or secrets.token_hex(8), **what)
    with outcome(debug=debug, json=json):
        here = project_at(project)
        control = stream_control(here, job)
        nothing = control.reads_nothing(command)
        by_hand, heeds, supervised = control.runs_by_hand(), control.heeds_by_hand(command), control.is_supervised()
        if check:
            _check(here, job, command)
            tell({"job": job, "accepted": True}, f"{job}: the restart would be accepted", json=json)
            return
        if control.ends_driver(command):
            with control.checking(command) as meant:
                _check(here, job, command)
                asked = control.ask(meant)
        else:
            asked = control.ask(command, by_hand=True)
        _refuse_overtaken(job, command, asked)
        obeyed = heeds and asked.outcome is not CommandResult.STALE
        if not json:
            print(_sentence(job, command, asked, obeyed=obeyed))
        if nothing is not None:
            print(nothing, file=sys.stderr)
        if wait and ((obeyed and verb in _ENDING) or control.drains_by_hand(command, asked)):
            control.wait_by_hand(drained=verb == "drain")
            if not json:
                print(f"{job}: the driver has ended")
        elif wait and asked.outcome is not CommandResult.STALE:
            phases = _REACHED.get(verb)
            stream = control.wait(asked.generation, lambda stream: phases is None or stream.phase.value in phases)
            asked = Asked(stream, asked.outcome, asked.generation)
            if not (json or obeyed):
                print(f"{job} is {stream.phase.value}")
            if verb in _WITH_CODE:
                control.refuse_older(stream, asked.generation)
        elif not (supervised or obeyed):
            print("no supervisor runs; the request stays recorded until one does: penstock supervise", file=sys.stderr)
        if json:
            more = {"supervised": supervised, "by_hand": by_hand}
            write_json({"outcome": asked.outcome.value, **_facts(job, asked.stream), **more})


def _check(project: Project, job: str, command: Command) -> None:
    """Raise the error that the start of a restart would raise."""
    from dataclasses import replace

    from penstock.runtime.inspect.diff import preflight
    from penstock.supervise.stream import begins_from

    begins = begins_from(command.start, command.options)
    loaded = project.load(job, start=begins)
    tables = tuple((step, loaded.conf.path_of(table)) for step, table in begins.state)
    preflight(loaded, replace(begins, state=tables), () if command.options is None else command.options.drop)


def _refuse_overtaken(job: str, command: Command, asked: Asked) -> None:
    """Raise CommandRefused for a restart that a newer request has overtaken while it was checked."""
    from penstock.errors import CommandRefused
    from penstock.supervise.commands import CommandResult

    of_this = command.generation is None or asked.stream.is_of(command.generation)
    if asked.outcome is CommandResult.STALE and of_this:
        raise CommandRefused(f"{job}: nothing was restarted, because {asked.stream.newest_request}")


def _sentence(job: str, command: Command, asked: Asked, *, obeyed: bool) -> str:
    """Say what became of a request. With `obeyed` a driver that was started by hand carries it out."""
    from penstock.rates.limits import limits_in_words
    from penstock.supervise.commands import CommandResult, Verb

    if obeyed and command.verb.value in _ENDING:
        return f"{job}: {command.verb.value} asked for, of the driver that was started by hand"
    match asked.outcome:
        case CommandResult.DONE:
            if command.verb is Verb.LIMITS:
                return f"{job}: {limits_in_words(asked.stream.limits)} from now on"
            if command.verb is Verb.START and asked.stream.command != command.id:
                return f"{job}: it runs (generation {asked.generation}), with these limits and this note from now on"
            return f"{job}: {command.verb.value} asked for, generation {asked.generation}"
        case CommandResult.ALREADY:
            if command.verb is Verb.LIMITS:
                return f"{job}: {limits_in_words(asked.stream.limits)}, as before"
            return f"{job}: nothing to do, it is {asked.stream.phase.value} (generation {asked.stream.generation})"
        case CommandResult.STALE:
            return (
                f"{job}: ignored, because generation {command.generation} is over; "
                f"the stream that runs began with generation {asked.stream.first}"
            )


def _facts(job: str, stream: Stream) -> dict[str, object]:
    shown = {"phase", "wish", "reason", "since", "generation", "first", "limits", "version", "rolled_back"}
    handle = stream.driver.handle if stream.driver is not None else None
    return {"job": job, **stream.model_dump(mode="json", include=shown), "restarts": stream.restarts, "driver": handle}
