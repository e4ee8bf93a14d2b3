"""Run the commands that only look: `penstock status` and `penstock checkpoints`."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from penstock.checkpoint.log.batch_report import BatchReport, Totals, moment, shown_moment
from penstock.checkpoint.log.recovery import Recovered
from penstock.cli.outcome import outcome, show
from penstock.runtime.inspect.job_status import JobStatus, KeptCheckpoint, all_checkpoints, read_status
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import find_project
from penstock.runtime.snapshots.catalog import SnapshotVersion, snapshots_of
from penstock.time.clock import SystemClock

__all__ = ["checkpoints_command", "status_command"]

_MIB = 2**20


def status_command(job: str, *, json: bool, project: Path | None, debug: bool) -> None:
    """Print state, lag, watermark and totals of the job."""
    configure_events(json=False)
    with outcome(debug=debug):
        found = read_status(find_project(given=project).settings(job), job, SystemClock())
        if json:
            print(jsonlib.dumps(found.to_json()))
            return
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, value in _status_rows(found):
            table.add_row(Text(name, style="bold"), Text(value))
        show(table)


def checkpoints_command(job: str, *, json: bool, project: Path | None, debug: bool) -> None:
    """Print the batches that can be restored, oldest first, and the named checkpoints."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        found = all_checkpoints(settings, job)
        kept, recovered = found if found is not None else ([], None)
        snapshots = snapshots_of(settings.root / job)
        if json:
            print(jsonlib.dumps(_checkpoints_json(job, kept, snapshots, recovered)))
            return
        if recovered is None:
            print(f"{job} has no checkpoint yet")
            return
        show(_checkpoints_table(kept))
        if snapshots:
            show("", _snapshots_table(snapshots))
        for name, commit in recovered.saves.readable().items():
            print(f"saved as {name}: batch {commit.batch}")
        for name, why in recovered.lost_saves.items():
            print(f"saved as {name}: {why}")
        for problem in recovered.problems:
            print(f"damaged: {problem}")


def _status_rows(found: JobStatus) -> Iterator[tuple[str, str]]:
    yield "job", found.job
    yield "state", found.state.value + ("" if found.moved_to is None else f", at {found.moved_to}")
    if found.holder is not None:
        age = "" if found.heartbeat_age is None else f", heartbeat {max(0.0, found.heartbeat_age):,.0f} s ago"
        yield "holder", f"{found.holder}{age}"
    if found.epoch is not None:
        yield "epoch", str(found.epoch)
    if found.last is not None:
        yield from _last_batch(found.last, found.record)
        yield from _totals(found.totals)
        if found.goes_on_from != found.last.batch:
            target = "nothing" if found.goes_on_from is None else f"batch {found.goes_on_from}"
            yield "restored", f"the state in force is that of {target}"
    for step, mark in found.watermarks.items():
        yield "watermark", f"{step} {shown_moment(mark)}"
    if found.pending:
        yield "pending", f"batch {found.next_batch} has its offsets, and no commit"
    left = {name: n for name, n in dict(found.record.get("left") or {}).items() if n is not None}
    if left:
        yield "behind", ", ".join(f"{name} {n:,} rows" for name, n in left.items())
    if (said := found.record.get("data_checkpoint")) is not None:
        yield from _data_checkpoint(said)
    if found.held:
        yield "held", f"{_ids(found.held)} (penstock held {found.job} list)"
    if found.error is not None:
        code = f"{found.error['code']} " if found.error.get("code") else ""
        place = f" ({found.error['where']})" if found.error.get("where") else ""
        yield "last error", f"{code}{found.error['what']}{place}"
        if found.error.get("remedy"):
            yield "do", str(found.error["remedy"])


def _last_batch(last: BatchReport, record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "last batch", f"{last.batch} at {shown_moment(last.time)}"
    cost = f", {record['ms']:,.0f} ms" if record.get("ms") is not None else ""
    yield "rows", f"{last.rows:,} read, {_by_name(last.output)} out, {_by_name(last.late)} late{cost}"
    if last.verdicts:
        yield "verdicts", ", ".join(f"{n:,} {what}" for what, n in last.verdicts.items())


def _totals(totals: Totals | None) -> Iterator[tuple[str, str]]:
    """Return the rows of all batches, beside those of the last one."""
    if totals is None:
        return
    ahead = f" ({totals.ahead:,} too far in the future)" if totals.ahead else ""
    kept_out = f"{totals.quarantined:,} quarantined{ahead}, {totals.filtered:,} filtered, {totals.late:,} late"
    yield "in all", f"{totals.read:,} read, {kept_out}"
    for warning in totals.warnings:
        yield "warning", warning


def _data_checkpoint(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Say what the newest one is of, and when there is a next one."""
    last, every = said["last"], said["interval"]
    if last is not None:
        yield "data checkpoint", f"batch {last['batch']} at {shown_moment(last['time'])}"
    if every is not None:
        seconds = f"{every['seconds']:,.0f} s: " if every["seconds"] else ""
        yield "interval", f"{seconds}{every['why']}"


def _by_name(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{n:,} {name}" for name, n in counts.items()) or "0"


def _ids(batches: tuple[int, ...]) -> str:
    return f"batch {batches[0]}" if len(batches) == 1 else f"batches {', '.join(map(str, batches))}"


_NUMBERS = ("batch", "read", "out", "held", "staged MiB", "stored rows", "state MiB")


def _checkpoints_table(kept: list[KeptCheckpoint]) -> Table:
    """Return a line for each checkpoint; `stored rows` are those of the state's files, which old versions are among."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    names = ("batch", "time", "read", "out", "verdicts", "held", "staged MiB", "stored rows", "state MiB", "watermark")
    for name in (*names, "restorable"):
        table.add_column(name, justify="right" if name in _NUMBERS else "left")
    for point in kept:
        report, stored = point.report, point.stored
        table.add_row(
            str(report.batch),
            shown_moment(report.time),
            f"{report.rows:,}",
            f"{sum(report.output.values()):,}",
            ", ".join(f"{n} {what}" for what, n in report.verdicts.items()) or "none",
            f"{sum(report.held.values()):,}",
            f"{report.staged / _MIB:.2f}",
            "?" if stored is None else f"{stored.rows:,}",
            "?" if stored is None else f"{stored.size / _MIB:.2f}",
            shown_moment(report.watermark),
            _restorable(point),
        )
    return table


def _restorable(point: KeptCheckpoint) -> str:
    if point.trouble is not None:
        return f"no: {point.trouble}"
    notes = [f"{'saved' if point.kept else 'only'} as {name}" for name in point.saved]
    if point.undone:
        notes.append("a restore has gone back behind it")
    return "yes" if not notes else f"yes ({', '.join(notes)})"


def _snapshots_table(snapshots: list[dict[str, SnapshotVersion]]) -> Table:
    """List data checkpoints; their rows are the keys, or slices and keys, that the state had."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("data checkpoint", "batch", "time", "keys", "MiB"):
        table.add_column(name, justify="right" if name in ("batch", "keys", "MiB") else "left")
    for steps in snapshots:
        commit = next(iter(steps.values())).commit
        size = sum(bytes_ for found in steps.values() for bytes_, _ in found.files.values())
        table.add_row(
            ", ".join(f"snapshot={found.step}@{found.version}" for found in steps.values()),
            str(commit.batch),
            shown_moment(commit.time),
            f"{sum(found.rows for found in steps.values()):,}",
            f"{size / _MIB:.2f}",
        )
    return table


def _snapshots_json(steps: dict[str, SnapshotVersion]) -> dict[str, Any]:
    commit = next(iter(steps.values())).commit
    versions = {name: {"version": found.version, "rows": found.rows} for name, found in steps.items()}
    return {"batch": commit.batch, "time": moment(commit.time), "steps": versions}


def _checkpoints_json(
    job: str,
    kept: list[KeptCheckpoint],
    snapshots: list[dict[str, SnapshotVersion]],
    recovered: Recovered | None,
) -> dict[str, Any]:
    return {
        "job": job,
        "checkpoints": [point.to_json() for point in kept],
        "snapshots": [_snapshots_json(steps) for steps in snapshots],
        "saves": {name: commit.batch for name, commit in recovered.saves.readable().items()} if recovered else {},
        "lost_saves": dict(recovered.lost_saves) if recovered else {},
        "problems": [str(problem) for problem in recovered.problems] if recovered else [],
    }
