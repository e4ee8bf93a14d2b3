"""`penstock status JOB`: show what the checkpoint says of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Debug, JobName, Json, ProjectFolder
from penstock.cli.outcome import columns, outcome, project_at, show, shown_moment, write_json

if TYPE_CHECKING:
    from penstock.checkpoint.log.batch_report import BatchReport, Totals
    from penstock.config.settings import Settings
    from penstock.runtime.inspect.job_status import JobStatus
    from penstock.runtime.process.job_load import LoadReport

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def status(
    job: JobName,
    *,
    watermarks: Annotated[
        bool, typer.Option("--watermarks", help="Show what holds each watermark back, and the largest open windows.")
    ] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show state, lag, watermark and totals of a job.

    The command reads the checkpoint alone: it starts no Spark and needs no driver.

    \b
    Examples:
      penstock status flights
      penstock status flights --watermarks
      penstock status flights --json
    """  # noqa: D301 - click knows the character, not the two
    from rich.table import Table
    from rich.text import Text

    from penstock.runtime.inspect.job_status import read_status
    from penstock.time.clock import SystemClock

    with outcome(debug=debug):
        settings = project_at(project).settings(job)
        if watermarks:
            _show_watermarks(settings, job, json=json)
            return
        facts = _beside_stream(read_status(settings, job, SystemClock()), settings)
        unreadable = _unreadable_requests(settings, job)
        if json:
            write_json({**facts.to_json(), "unreadable_requests": unreadable})
            return
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, value in _status_rows(facts):
            table.add_row(Text(name, style="bold"), Text(value))
        for place in unreadable:
            said = f"a request to requeue rows cannot be read, and is lost ({place})"
            again = f"ask again: penstock requeue {job} --source NAME"
            table.add_row(Text("warning", style="bold"), Text(f"{said}; {again}"))
        show(table)


def _beside_stream(facts: JobStatus, settings: Settings) -> JobStatus:
    """Return the status with the end that somebody asked for, where a driver of the stream had died before it.

    The driver that was to take over from it may have ended, as asked, before it owned the log.
    """
    from penstock.checkpoint.roots import control_store
    from penstock.runtime.inspect.job_status import JobState
    from penstock.supervise.records import StreamRecords
    from penstock.supervise.stream import Phase

    generation = facts.record.get("generation")
    if facts.state is not JobState.DIED or not isinstance(generation, int):
        return facts
    stream = StreamRecords(control_store(settings.root, make=False), facts.job).newest()
    # A driver that was started by hand has generation 0, and no stream that ends with it.
    ended = stream.phase in (Phase.STOPPED, Phase.SUSPENDED) and 0 < generation <= stream.generation
    return replace(facts, state=JobState.STOPPED) if ended else facts


def _unreadable_requests(settings: Settings, job: str) -> list[str]:
    from penstock.checkpoint.requeue_requests import RequeueRequests
    from penstock.checkpoint.roots import control_store, is_there

    there = is_there(settings.root)
    return RequeueRequests(control_store(settings.root, make=False), job).unreadable() if there else []


def _show_watermarks(settings: Settings, job: str, *, json: bool) -> None:
    from penstock.runtime.inspect.watermark_report import Reading
    from penstock.runtime.inspect.watermark_view import read_watermarks
    from penstock.time.clock import SystemClock

    view = read_watermarks(settings, job, SystemClock())
    if json:
        write_json(view.to_json())
        return
    steps = columns("step", "watermark", "next due", "held back by")
    for mark in view.steps:
        due = shown_moment(mark.due) if mark.due is not None else "nothing is open"
        nothing = "nothing: all is idle, and it stays until a row comes" if mark.all_idle else "nothing"
        steps.add_row(mark.name, shown_moment(mark.watermark), due, mark.waits_for or nothing)
    sources = columns("source", "partition", "highest event time", "watermark", "newest row", "is")
    for source in view.sources:
        for part in source.partitions:
            newest = "never" if part.highest is None else shown_moment(part.since)
            # After an import no driver has said yet how late rows may be.
            known = part.watermark is not None or part.highest is None
            times = [shown_moment(part.highest), shown_moment(part.watermark) if known else "unknown", newest]
            limited = source.limit is not None and part.counts and part.reading is not Reading.PAUSED
            limit = f", limited by {source.limit}" if limited else ""
            sources.add_row(source.name, part.name, *times, f"{part.reading.value}{limit}")
    held = columns("step", "window start", "window end", "rows", right=("rows",))
    for window in view.windows:
        held.add_row(window.step, shown_moment(window.start), shown_moment(window.end), f"{window.rows:,}")
    for rows in view.held:
        held.add_row(rows.step, "", "", f"{rows.rows:,}")
        if rows.waiting:
            held.add_row(rows.step, "wait for a match", "", f"{rows.waiting:,}")
    show(steps, "", sources)
    if view.windows or view.held:
        show("", "The largest open windows, and the rows that other steps hold:", held)


def _status_rows(status: JobStatus) -> Iterator[tuple[str, str]]:
    yield "job", status.job
    yield "state", status.state.value + ("" if status.moved_to is None else f", at {status.moved_to}")
    if status.holder is not None:
        age = "" if status.heartbeat_age is None else f", heartbeat {max(0.0, status.heartbeat_age):,.0f} s ago"
        yield "holder", f"{status.holder}{age}"
    if status.epoch is not None:
        yield "epoch", str(status.epoch)
    yield from _stage(status)
    if status.last is not None:
        yield from _last_batch(status.last, status.ms)
        yield from _totals(status.totals)
        if status.goes_on_from != status.last.batch:
            target = "nothing" if status.goes_on_from is None else f"batch {status.goes_on_from}"
            yield "restored", f"the state in force is that of {target}"
    waits = {mark.name: mark.waits_for for mark in status.marks}
    for step, mark in status.watermarks.items():
        held = f", held back by {waits[step]}" if waits.get(step) else ""
        yield "watermark", f"{step} {shown_moment(mark)}{held}"
    if status.pending:
        yield "pending", f"batch {status.next_batch} has its offsets, and no commit"
    left = {name: n for name, n in status.left.items() if n is not None}
    if left:
        yield "behind", ", ".join(f"{name} {n:,} rows" for name, n in left.items())
    yield from _limits(dict(status.record.get("limits") or {}))
    yield from _load(status.load)
    if status.state.name == "RUNNING":  # they end with their driver, and its record stays
        yield from (("receiver", _receiver(state)) for state in status.record.get("receivers") or ())
    if (made := status.record.get("data_checkpoint")) is not None:
        yield from _data_checkpoint(made)
    yield from _held(status)
    if status.error is not None:
        code = f"{status.error['code']} " if status.error.get("code") else ""
        place = f" ({status.error['where']})" if status.error.get("where") else ""
        yield "last error", f"{code}{status.error['what']}{place}"
        if status.error.get("remedy"):
            yield "do", str(status.error["remedy"])


def _stage(status: JobStatus) -> Iterator[tuple[str, str]]:
    """Say where the driver is: one that waits for a server is alive, and only the stage tells it."""
    from penstock.runtime.inspect.job_status import JobState

    stage = status.record.get("stage")
    if status.state not in (JobState.RUNNING, JobState.SILENT) or not stage:
        return
    step = "" if stage["when"] == "before" else f" ({stage['when']})"
    batch = "" if stage["batch"] is None else f" of batch {stage['batch']}"
    yield "stage", f"{stage['name']}{step}{batch} since {shown_moment(stage['since'])}"


def _held(status: JobStatus) -> Iterator[tuple[str, str]]:
    if status.publishable:
        yield "held", f"{_batches(status.publishable)} (penstock held {status.job} list)"
    if status.undone:
        numbers = _batches(status.undone)
        yield "undone", f"{numbers}, held and undone by a restore (penstock held {status.job} discard N)"


def _batches(numbers: tuple[int, ...]) -> str:
    return f"{'batch' if len(numbers) == 1 else 'batches'} {', '.join(map(str, numbers))}"


def _last_batch(last: BatchReport, ms: float | None) -> Iterator[tuple[str, str]]:
    yield "last batch", f"{last.batch} at {shown_moment(last.time)}"
    cost = f", {ms:,.0f} ms" if ms is not None else ""
    yield "rows", f"{last.rows:,} read, {_by_name(last.output)} out, {_by_name(last.late)} late{cost}"
    if last.load.get("waiting"):
        yield "waiting", f"{last.load['waiting']:,.0f} rows of live sources, as the last batch was planned"
    if last.verdicts:
        yield "verdicts", ", ".join(f"{n:,} {what}" for what, n in last.verdicts.items())


def _totals(totals: Totals | None) -> Iterator[tuple[str, str]]:
    """Return the rows of all batches, beside those of the last one."""
    if totals is None:
        return
    ahead = f" ({totals.ahead:,} too far in the future)" if totals.ahead else ""
    kept_out = f"{totals.quarantined:,} quarantined{ahead}, {totals.filtered:,} filtered, {totals.late:,} late"
    yield "in all", f"{totals.read:,} read, {kept_out}"
    if totals.requeued:
        yield "requeued", f"{totals.requeued:,} rows of quarantines, of which {totals.failed_again:,} failed again"
    for warning in totals.warnings:
        yield "warning", warning


def _limits(limits: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Say what the newest batch could read, and which rule left rows that waited."""
    from penstock.rates.limits import Limits, limits_in_words

    hard = Limits.recorded(limits)
    if hard.set_limits():
        yield "limits", limits_in_words(hard)
    if limits.get("rate") is not None:
        yield "rate", f"{limits['rate']:,.0f} rows a second, by what batches cost"
    if bound := limits.get("bound"):
        yield "limited", ", ".join(f"{source} by {rule}" for source, rule in bound.items())


def _load(load: LoadReport) -> Iterator[tuple[str, str]]:
    """Say how late the newest batch began, and what garbage, spills and cores the newest batches had or needed."""
    if load.late_ms:
        yield "delay", f"the last batch began {load.late_ms:,.0f} ms after its batch time"
    if load.gc_share:
        yield "garbage", f"{load.gc_share:.0%} of the time of tasks, in Java"
    if load.spilled_bytes:
        yield "spilled", f"{load.spilled_bytes / 2**20:,.1f} MiB of memory to disk, by the newest batches in Spark"
    if (needed := load.cores) is not None:
        noun = "core" if needed.cores == 1 else "cores"
        rates = f"{needed.offered:,.0f} rows a second arrive, a busy core processes {needed.per_core:,.0f}"
        yield "cores", f"{needed.cores:,} {noun} needed: {rates}"


def _receiver(state: Mapping[str, Any]) -> str:
    """Say how a receiver is, and what its newest error was."""
    text = f"{state['receiver']} {state['state']}"
    if state.get("address"):
        text += f" ({state['address']}{', on ' + state['host'] if state.get('host') else ''})"
    text += f", {state['rows']:,} rows"
    if state["restarts"]:
        text += f", started again {state['restarts']:,} times"
    return text if state["error"] is None else f"{text}, last error: {state['error']}"


def _data_checkpoint(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Say what the newest one is of, and when there is a next one."""
    last, every = event["last"], event["interval"]
    if last is not None:
        yield "data checkpoint", f"batch {last['batch']} at {shown_moment(last['time'])}"
    if every is not None:
        seconds = f"every {every['seconds']:,.0f} s: " if every["seconds"] else ""
        yield "data checkpoint", f"{seconds}{every['why']}"


def _by_name(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{n:,} {name}" for name, n in counts.items()) or "0"
