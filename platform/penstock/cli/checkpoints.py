"""`penstock checkpoints JOB`: list the batches that can be restored, and the named checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.options import Debug, JobName, Json, ProjectFolder
from penstock.cli.outcome import columns, outcome, project_at, show, shown_moment, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.checkpoint.log.recovery import Recovered
    from penstock.runtime.inspect.job_status import KeptCheckpoint
    from penstock.runtime.snapshots.catalog import Snapshot

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)
_MIB = 2**20
_NUMBERS = ("batch", "read", "out", "held", "staged MiB", "stored rows", "state MiB")


@commands.command()
def checkpoints(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List the checkpoints that can be restored.

    These are the kept batches, the savepoints and the data checkpoints.

    \b
    Examples:
      penstock checkpoints flights
      penstock checkpoints flights --json
    """  # noqa: D301 - click knows the character, not the two
    from penstock.runtime.inspect.job_status import all_checkpoints
    from penstock.runtime.snapshots.catalog import snapshots_of

    with outcome(debug=debug):
        settings = project_at(project).settings(job)
        kept, recovered = all_checkpoints(settings, job) or ([], None)
        snapshots = snapshots_of(settings.root / job)
        if json:
            write_json(_to_json(job, kept, snapshots, recovered))
            return
        if recovered is None:
            print(f"{job} has no checkpoint yet")
            return
        show(_kept_table(kept))
        if snapshots:
            show("", _snapshots_table(snapshots))
        for name, commit in recovered.saves.readable().items():
            print(f"saved as {name}: batch {commit.batch}")
        for name, why in recovered.saves.lost().items():
            print(f"saved as {name}: {why}")
        for problem in recovered.problems:
            print(f"damaged: {problem}")


def _kept_table(kept: list[KeptCheckpoint]) -> Table:
    """Return a line for each checkpoint; `stored rows` are those of the state's files, which old versions are among."""
    names = ("batch", "time", "read", "out", "verdicts", "held", "staged MiB", "stored rows", "state MiB", "watermark")
    table = columns(*names, "restorable", right=_NUMBERS)
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


def _snapshots_table(snapshots: list[Snapshot]) -> Table:
    """List data checkpoints; their rows are the keys, or slices and keys, that the state had."""
    table = columns("data checkpoint", "batch", "time", "keys", "MiB", right=("batch", "keys", "MiB"))
    for snapshot in snapshots:
        versions = snapshot.steps.values()
        size = sum(file_size for version in versions for file_size, _ in version.files.values())
        table.add_row(
            ", ".join(f"snapshot={name}" for name in snapshot.names),
            str(snapshot.commit.batch),
            shown_moment(snapshot.commit.time),
            f"{sum(version.rows for version in versions):,}",
            f"{size / _MIB:.2f}",
        )
    return table


def _snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    from penstock.checkpoint.log.batch_report import moment

    versions = {name: {"version": version.version, "rows": version.rows} for name, version in snapshot.steps.items()}
    return {"batch": snapshot.commit.batch, "time": moment(snapshot.commit.time), "steps": versions}


def _to_json(
    job: str,
    kept: list[KeptCheckpoint],
    snapshots: list[Snapshot],
    recovered: Recovered | None,
) -> dict[str, Any]:
    return {
        "job": job,
        "checkpoints": [point.to_json() for point in kept],
        "snapshots": [_snapshot_json(snapshot) for snapshot in snapshots],
        "saves": {name: commit.batch for name, commit in recovered.saves.readable().items()} if recovered else {},
        "lost_saves": recovered.saves.lost() if recovered else {},
        "problems": [str(problem) for problem in recovered.problems] if recovered else [],
    }
