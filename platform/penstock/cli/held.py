"""Run `penstock held JOB list | release N | discard N`."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

from rich.table import Table

from penstock.checkpoint.log.batch_report import moment, shown_moment
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.recovery import Recovered, recover
from penstock.checkpoint.log.takeover import refuse_moved, survey
from penstock.checkpoint.roots import control_store, job_log
from penstock.checkpoint.storage.hdfs_cache import open_store, shown
from penstock.cli.outcome import outcome, show
from penstock.errors import HeldNotFound, HolderAlive
from penstock.quality.held.batches import HeldBatch, SessionOnDemand, find_held, undecided
from penstock.quality.held.decisions import Decision, HeldDecision, HeldRecords
from penstock.quality.held.requests import AGAIN, HeldAsks
from penstock.runtime.driver.settings import Identity
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.held_service import HeldWork, decide_at_rest
from penstock.runtime.process.job_run import holder_name
from penstock.runtime.process.launch import open_spark
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import LoadedJob, Project, find_project
from penstock.runtime.process.takeover_policy import HolderWatch
from penstock.time.clock import SystemClock

__all__ = ["discard_command", "list_command", "release_command"]

_POLL = 0.3
_POLLS = 10
"""Looks for an answer until it is asked whether the driver lives still."""


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
    _decide(job, batch, Decision.RELEASE, json=json, project=project, debug=debug)


def discard_command(job: str, batch: int, *, json: bool, project: Path | None, debug: bool) -> None:
    """Drop a held batch."""
    _decide(job, batch, Decision.DISCARD, json=json, project=project, debug=debug)


def _decide(job: str, batch: int, decision: Decision, *, json: bool, project: Path | None, debug: bool) -> None:
    configure_events(json=False)
    with outcome(debug=debug):
        loaded = find_project(given=project).load(job)
        spark = SessionOnDemand(lambda: open_spark(loaded, here=True))
        try:
            ruling = _decided(loaded, batch, decision, spark)
        finally:
            spark.close()
        _say(batch, ruling, json=json)


def _decided(loaded: LoadedJob, batch: int, decision: Decision, spark: SessionOnDemand) -> HeldDecision:
    """Have the driver decide that runs, or decide in its place; returns when that is done."""
    name, root = loaded.job.name, loaded.settings.root
    recovered = _recovered(root, name)
    log = job_log(root / name)
    if recovered is None or log is None:
        raise HeldNotFound(f"job {name!r} has no checkpoint, so it holds nothing", where=shown(root / name))
    control = control_store(root)
    records, asks, status = HeldRecords(control, name), HeldAsks(control, name), StatusRecords(control, name)
    uuid, staged = read_metadata(open_store(root / name)).uuid, root / name / "staged"
    work = HeldWork(records, log, loaded.job.graph(), uuid=uuid, staged=staged, spark=spark)
    find_held(records, recovered, batch)  # what is not held is said before anybody is asked
    clock = SystemClock()
    asked: str | None = None
    asked_at: float | None = None
    while True:
        # A new one each time: who has given signs of life for a while may give none any more.
        watch = HolderWatch(
            look=lambda: survey(log),
            heartbeats=status,
            clock=clock,
            patience=loaded.settings.run.takeover_after.seconds,
        )
        me = Identity(holder=holder_name(), code_version="penstock held")
        try:
            return decide_at_rest(work, batch, decision, me, watch.may_take_over, status)
        except HolderAlive:
            if asked_at is None or clock.monotonic() - asked_at > AGAIN:
                asked_at = clock.monotonic()
                asked = asks.ask(batch, decision, by=me.holder, at=clock.wall(), again=asked)
        for _ in range(_POLLS):
            clock.sleep(_POLL)  # until the batch that runs is done
            ruling = asks.answer(asked) if asked is not None else None
            if ruling is not None:
                return ruling


def _find_all(project: Project, job: str) -> list[HeldBatch]:
    root = project.settings(job).root
    recovered = _recovered(root, job)
    if recovered is None:
        return []
    return undecided(HeldRecords(control_store(root), job), recovered)


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
    if held.undone:
        return "a restore has superseded it, and its rows are read again; discard it"
    return "" if held.ruling is None else f"{held.ruling.decision.value} was begun and not finished: ask for it again"


def _to_json(held: HeldBatch) -> dict[str, object]:
    return {
        "batch": held.batch,
        "time": moment(held.time),
        "checks": list(held.checks),
        "rows": held.rows,
        "begun": held.ruling.decision.value if held.ruling is not None else None,
        "undone": held.undone,
    }


def _say(batch: int, ruling: HeldDecision, *, json: bool) -> None:
    if json:
        print(jsonlib.dumps({"batch": batch, "decision": ruling.decision.value, "rows": dict(ruling.rows)}))
        return
    rows = ", ".join(f"{n:,} rows of {sink}" for sink, n in ruling.rows.items())
    done = {Decision.RELEASE: "released", Decision.DISCARD: "discarded"}[ruling.decision]
    before = " before" if ruling.done else ""
    print(f"batch {batch} was {done}{before}: {rows}")
