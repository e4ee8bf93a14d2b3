"""`penstock held JOB list | release N | discard N`: decide on batches that a gate has held."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Debug, Json, ProjectFolder, job_group
from penstock.cli.outcome import columns, outcome, project_at, show, shown_moment, tell, write_json
from penstock.errors import HeldNotFound, HolderAlive

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.checkpoint.log.log import Log
    from penstock.checkpoint.storage.folder import CheckpointFolder
    from penstock.quality.held.decision_records import Decision, HeldDecision
    from penstock.quality.held.release import HeldBatch, SessionOnDemand
    from penstock.runtime.process.project import LoadedJob

__all__ = ["commands"]

_POLL = 0.3
_POLLS = 10
"""Looks for an answer until it is asked whether the driver lives still."""

BatchId = Annotated[int, typer.Argument(metavar="N", min=0, help="The batch.", show_default=False)]

commands = job_group(
    "held",
    """Decide on batches that a gate has held.

    \b
    Examples:
      penstock held flights list
      penstock held flights release 17
      penstock held flights discard 17
    """,
)


@commands.command("list")
def _list(context: typer.Context, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List the held batches that wait for a decision."""
    from penstock.checkpoint.log.recovery import recover
    from penstock.checkpoint.roots import control_store
    from penstock.quality.held.decision_records import HeldRecords
    from penstock.quality.held.release import undecided

    job = context.obj
    with outcome(debug=debug):
        root = project_at(project).settings(job).root
        log = _log(root, job)
        batches = [] if log is None else undecided(HeldRecords(control_store(root), job), recover(log))
        if json:
            write_json({"job": job, "held": [_to_json(held) for held in batches]})
        elif not batches:
            print(f"{job} holds no batch back")
        else:
            show(_table(batches))


def _add_decision(verb: str, summary: str) -> None:
    @commands.command(verb, help=summary)
    def _decide(
        context: typer.Context,
        batch: BatchId,
        *,
        json: Json = False,
        project: ProjectFolder = None,
        debug: Debug = False,
    ) -> None:
        from penstock.quality.held.decision_records import Decision
        from penstock.quality.held.release import SessionOnDemand
        from penstock.runtime.process.launch import open_spark

        with outcome(debug=debug):
            loaded = project_at(project).load(context.obj)
            with closing(SessionOnDemand(lambda: open_spark(loaded, here=True))) as spark:
                ruling = _decided(loaded, batch, Decision(verb), spark)
            rows = ", ".join(
                f"{n:,} rows of {sink}{_taken(n, ruling.newest.get(sink, n))}" for sink, n in ruling.rows.items()
            )
            done = {"release": "released", "discard": "discarded"}[verb]
            text = f"batch {batch} was {done}{' before' if ruling.done else ''}: {rows}"
            counts = {"rows": dict(ruling.rows), "newest": dict(ruling.newest)}
            tell({"batch": batch, "decision": verb, **counts}, text, json=json)


def _taken(rows: int, newest: int) -> str:
    """Return what a sink with keys has taken of so many rows, nothing where it has taken them all."""
    return "" if newest == rows else f", of which it took the {newest:,} that are the newest of their keys"


_add_decision("release", "Publish a held batch. Repeating it has no effect, and the job may run at the same time.")
_add_decision("discard", "Drop a held batch, with a count. It cannot be undone.")


def _decided(loaded: LoadedJob, batch: int, decision: Decision, spark: SessionOnDemand) -> HeldDecision:
    """Have the driver decide that runs, or decide in its place; returns when that is done."""
    from penstock.checkpoint.log.metadata import read_metadata
    from penstock.checkpoint.log.recovery import recover
    from penstock.checkpoint.roots import control_store
    from penstock.quality.held.decision_records import HeldRecords
    from penstock.quality.held.release import find_held
    from penstock.quality.held.requests import AGAIN, HeldAsks
    from penstock.runtime.driver.settings import Identity
    from penstock.runtime.process.heartbeat import StatusRecords
    from penstock.runtime.process.held_service import HeldWork, decide_at_rest
    from penstock.runtime.process.takeover_policy import HolderWatch, holder_name
    from penstock.time.clock import SystemClock

    name, root = loaded.job.name, loaded.settings.root
    log = _log(root, name)
    if log is None:
        raise HeldNotFound(f"job {name!r} has no checkpoint, so it holds nothing", where=str(root / name))
    control = control_store(root)
    records, asks, status = HeldRecords(control, name), HeldAsks(control, name), StatusRecords(control, name)
    uuid, staged = read_metadata((root / name).store()).uuid, root / name / "staged"
    work = HeldWork(records, log, loaded.job.graph(), uuid=uuid, staged=staged, spark=spark)
    find_held(records, recover(log), batch)  # what is not held is said before anybody is asked
    clock = SystemClock()
    asked: str | None = None
    asked_at: float | None = None
    while True:
        # A new one each time: who has given signs of life for a while may give none any more.
        watch = HolderWatch(root / name, patience=loaded.settings.run.takeover_after.seconds, clock=clock)
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


def _log(root: CheckpointFolder, job: str) -> Log | None:
    """Return the log of a job that has not moved away, None where there is none."""
    from penstock.checkpoint.log.takeover import refuse_moved, survey
    from penstock.checkpoint.roots import job_log

    log = job_log(root / job)
    if log is not None:
        refuse_moved(log, survey(log))  # what is held is decided on where the job goes on
    return log


def _table(batches: list[HeldBatch]) -> Table:
    table = columns("batch", "time", "checks", "rows", "note", right=("batch",))
    for held in batches:
        rows = ", ".join(f"{n:,} for {sink}" for sink, n in held.rows.items())
        table.add_row(str(held.batch), shown_moment(held.time), ", ".join(held.checks), rows, _note(held))
    return table


def _note(held: HeldBatch) -> str:
    if held.undone:
        return "a restore has superseded it, and its rows are read again; discard it"
    return "" if held.ruling is None else f"{held.ruling.decision.value} was begun and not finished: ask for it again"


def _to_json(held: HeldBatch) -> dict[str, object]:
    from penstock.checkpoint.log.batch_report import moment

    return {
        "batch": held.batch,
        "time": moment(held.time),
        "checks": list(held.checks),
        "rows": held.rows,
        "begun": held.ruling.decision.value if held.ruling is not None else None,
        "undone": held.undone,
    }
