"""Run `penstock held JOB list | release N | discard N`."""

from __future__ import annotations

import json as jsonlib
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from penstock.checkpoint.metadata import read_metadata
from penstock.checkpoint.mirror import open_store, shown
from penstock.checkpoint.recovery import Recovered, recover
from penstock.checkpoint.takeover import refuse_moved, survey
from penstock.cli.outcome import outcome, show
from penstock.errors import HeldNotFound
from penstock.runtime.batch_report import moment, shown_moment
from penstock.runtime.events import configure_events
from penstock.runtime.held import HeldBatch, SessionOnDemand, discard, find_held, release, undecided, undone_by_restore
from penstock.runtime.held_records import HeldRecords, Ruling
from penstock.runtime.launch import open_spark
from penstock.runtime.project import LoadedJob, Project, find_project
from penstock.runtime.roots import control_store, job_log

__all__ = ["discard_command", "list_command", "release_command"]


def list_command(job: str, *, json: bool, project: Path | None, debug: bool) -> None:
    """Print the held batches that wait for a decision."""
    configure_events(json=False)
    with outcome(debug=debug):
        found = _find_all(find_project(given=project), job)
        if json:
            print(jsonlib.dumps({"job": job, "held": [_to_json(held) for held in found]}))
        elif not found:
            print(f"{job} holds no batch back")
        else:
            show(_table(found))


def release_command(job: str, batch: int, *, json: bool, project: Path | None, debug: bool) -> None:
    """Publish a held batch."""
    configure_events(json=False)
    with outcome(debug=debug):
        one = _find_one(find_project(given=project).load(job), batch)
        spark = SessionOnDemand(lambda: open_spark(one.loaded, here=True))
        try:
            ruling = release(
                one.records,
                one.held,
                one.loaded.job.graph(),
                uuid=one.uuid,
                staged=one.staged,
                spark=spark,
                by=_who(),
            )
        finally:
            spark.close()
        _say(batch, ruling, "released", json=json)


def discard_command(job: str, batch: int, *, json: bool, project: Path | None, debug: bool) -> None:
    """Drop a held batch."""
    configure_events(json=False)
    with outcome(debug=debug):
        one = _find_one(find_project(given=project).load(job), batch)
        ruling = discard(one.records, one.held, one.loaded.job.graph(), staged=one.staged, by=_who())
        _say(batch, ruling, "discarded", json=json)


@dataclass(frozen=True, kw_only=True)
class _One:
    """Hold a held batch and what it takes to decide on it."""

    loaded: LoadedJob
    held: HeldBatch
    records: HeldRecords
    uuid: str
    staged: Path


def _find_one(loaded: LoadedJob, batch: int) -> _One:
    name, root = loaded.job.name, loaded.settings.root
    recovered = _recovered(root, name)
    if recovered is None:
        raise HeldNotFound(f"job {name!r} has no checkpoint, so it holds nothing", where=shown(root / name))
    records = HeldRecords(control_store(root), name)
    return _One(
        loaded=loaded,
        held=find_held(records, recovered, batch),
        records=records,
        uuid=read_metadata(open_store(root / name)).uuid,
        staged=root / name / "staged",
    )


def _find_all(project: Project, job: str) -> list[HeldBatch]:
    root = project.settings(job).root
    recovered = _recovered(root, job)
    if recovered is None:
        return []
    undone = undone_by_restore(recovered)
    records = HeldRecords(control_store(root), job)
    found = undecided(records, (kept.commit for kept in recovered.kept))
    return [find_held(records, recovered, held.batch) if held.batch in undone else held for held in found]


def _recovered(root: Path, job: str) -> Recovered | None:
    log = job_log(root / job)
    if log is not None:
        refuse_moved(log, survey(log))  # what is held is decided on where the job goes on
    return None if log is None else recover(log)


def _table(found: list[HeldBatch]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("batch", "time", "checks", "rows", "note"):
        table.add_column(name, justify="right" if name == "batch" else "left")
    for held in found:
        rows = ", ".join(f"{n:,} for {sink}" for sink, n in held.rows.items())
        table.add_row(str(held.batch), shown_moment(held.time), ", ".join(held.checks), rows, _note(held))
    return table


def _note(held: HeldBatch) -> str:
    if held.ruling is not None:
        return f"{held.ruling.decision.value} was begun and not finished: ask for it again"
    return "a restore has gone back behind it; its rows come again, so discard it" if held.undone else ""


def _to_json(held: HeldBatch) -> dict[str, object]:
    return {
        "batch": held.batch,
        "time": moment(held.time),
        "checks": list(held.checks),
        "rows": held.rows,
        "begun": held.ruling.decision.value if held.ruling is not None else None,
        "undone": held.undone,
    }


def _say(batch: int, ruling: Ruling, done: str, *, json: bool) -> None:
    if json:
        print(jsonlib.dumps({"batch": batch, "decision": ruling.decision.value, "rows": dict(ruling.rows)}))
        return
    rows = ", ".join(f"{n:,} rows of {sink}" for sink, n in ruling.rows.items())
    before = " before" if ruling.done else ""
    print(f"batch {batch} was {done}{before}: {rows}")


def _who() -> str:
    from penstock.runtime.jobrun import holder_name

    return holder_name()
