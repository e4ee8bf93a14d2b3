"""Run `penstock sinks JOB list | redo SINK | skip SINK`."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.roots import control_store, job_log
from penstock.checkpoint.storage.hdfs_cache import open_store, shown
from penstock.cli.outcome import outcome
from penstock.errors import CannotSkip
from penstock.quality.held.batches import SessionOnDemand
from penstock.runtime.driver.settings import Identity
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.job_run import holder_name
from penstock.runtime.process.launch import open_spark
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import find_project
from penstock.runtime.process.takeover_policy import HolderWatch
from penstock.runtime.restore.sink_repair import SinksAtRest, SinkStand, redo, skip, stands
from penstock.time.clock import SystemClock

__all__ = ["sinks_command"]


def sinks_command(
    job: str, verb: str, sink: str | None = None, *, json: bool, project: Path | None, debug: bool
) -> None:
    """List the batches that each sink lacks, publish them again (`redo`), or skip them (`skip`)."""
    configure_events(json=False)
    with outcome(debug=debug):
        loaded = find_project(given=project).load(job)
        root, name = loaded.settings.root, loaded.job.name
        log = job_log(root / name)
        if log is None:
            raise CannotSkip(f"job {name!r} has no checkpoint yet", where=shown(root / name))
        uuid = read_metadata(open_store(root / name)).uuid
        spark = SessionOnDemand(lambda: open_spark(loaded, here=True))
        sinks = SinksAtRest(loaded.job.graph(), root / name / "staged", spark)
        try:
            if sink is None:
                found = stands(sinks, recover(log, Damage.LIST), uuid)
            else:
                watch = HolderWatch(
                    look=lambda: survey(log),
                    heartbeats=StatusRecords(control_store(root), name),
                    clock=SystemClock(),
                    patience=loaded.settings.run.takeover_after.seconds,
                )
                me = Identity(holder=holder_name(), code_version=f"penstock sinks {verb}")
                work = redo if verb == "redo" else skip
                found = [work(log, sinks, sink, uuid, me, watch.may_take_over)]
        finally:
            spark.close()
        if json:
            print(jsonlib.dumps({"job": name, "sinks": [_to_json(stand) for stand in found]}))
        else:
            print("\n".join(_line(stand, verb) for stand in found))


def _to_json(stand: SinkStand) -> dict[str, object]:
    return {
        "sink": stand.sink,
        "missing": {str(commit.batch): stand.rows(commit) for commit in stand.missing},
        "waiting": {str(c.batch): stand.rows(c) for c in stand.behind if c not in stand.missing},
    }


def _line(stand: SinkStand, verb: str) -> str:
    missing = ", ".join(f"batch {commit.batch} ({stand.rows(commit):,} rows)" for commit in stand.missing)
    behind = ", ".join(f"batch {commit.batch} ({stand.rows(commit):,} rows)" for commit in stand.behind)
    if verb == "skip":
        return f"{stand.sink} skips {behind}"
    if verb == "redo":
        return f"{stand.sink} shows {missing} again" if missing else f"{stand.sink} has lost nothing"
    if not behind:
        return f"{stand.sink}: shows all that the log has for it"
    waits = f"; the next start publishes batch {stand.waiting.batch}" if stand.waiting is not None else ""
    return f"{stand.sink}: " + (f"has lost {missing}" if missing else "has lost nothing") + waits
