"""Compare the code of a job with its checkpoint from outside, or judge a start before anything is ended for it (F79).

Nothing is owned, and nothing written. A driver may run meanwhile: the code is judged by the checkpoint as it will be
when that driver has finished its batch and left.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import refuse_ended, survey
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CannotRestore
from penstock.runtime.inspect.job_status import JobState, read_status
from penstock.runtime.process.choices import refuse_disagreement
from penstock.runtime.process.launch import analysed
from penstock.runtime.process.project import LoadedJob
from penstock.runtime.restore.compatibility import Finding, when_left
from penstock.runtime.restore.sink_truncation import plan_truncation
from penstock.runtime.restore.state_rewrite import planned, with_partitions
from penstock.runtime.restore.target import RestoreTarget
from penstock.time.clock import Clock

if TYPE_CHECKING:
    from penstock.runtime.spark.engine import SparkEngine

__all__ = ["Diff", "diff", "preflight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Say what the code of a job makes of a checkpoint.

    `folder` is that checkpoint, `batch` the one whose state is in force, None for no state. `running`: a driver runs,
    and what is said holds when it has finished its batch and left.
    """

    job: str
    folder: CheckpointFolder
    batch: int | None
    running: bool
    findings: tuple[Finding, ...]

    @property
    def accepted(self) -> bool:
        """Return whether a start would resume from it."""
        return all(finding.refusal is None for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "job": self.job,
            "checkpoint": str(self.folder),
            "batch": self.batch,
            "running": self.running,
            "accepted": self.accepted,
            "findings": [finding.to_json() for finding in self.findings],
        }


def diff(loaded: LoadedJob, clock: Clock, *, root: CheckpointFolder | None = None, drop: Collection[str] = ()) -> Diff:
    """Return what a start of the job would make of its checkpoint; `root` names another folder of checkpoints.

    Raises what a start raises for a job that cannot be analysed and for a log that cannot be resumed.
    """
    name = loaded.job.name
    settings = loaded.settings if root is None else loaded.settings.model_copy(update={"root": root})
    folder = settings.root / name
    log = job_log(folder)
    if log is not None and root is None:
        refuse_ended(log, survey(log))
    recovered = recover(log or Log(MemoryStore()))
    running = read_status(settings, name, clock, recovered=recovered).state is JobState.RUNNING
    with analysed(loaded, folder) as engine:
        findings = engine.compare(when_left(recovered) if running else recovered, drop)
    batch = None if recovered.commit is None else recovered.commit.batch
    return Diff(job=name, folder=folder, batch=batch, running=running, findings=tuple(findings))


def preflight(loaded: LoadedJob, start: RestoreTarget, drop: Collection[str] = ()) -> None:
    """Raise the error that would refuse a start of the job.

    `start` is where it begins, with the paths of tables that state is written from; `drop` names steps to drop.
    Raises what a start raises: JobError for code that cannot be analysed, ConfigError for rates that contradict each
    other, CannotRestore, PartitionsChanged, StepsChanged and CannotTruncate. What only reading all rows shows, such as
    a null key in a table, is not judged.
    """
    folder = loaded.settings.root / loaded.job.name
    log = job_log(folder)
    if log is not None:
        refuse_ended(log, survey(log))
    refuse_disagreement(loaded.job, loaded.settings)
    with analysed(loaded, folder) as engine:
        if log is None and (start.goes_back or start.rewrites):
            raise CannotRestore(f"there is no checkpoint to restore {start.target} from", where=str(folder))
        if log is not None:
            _judge(engine, log, start, drop, folder)


def _judge(
    engine: SparkEngine, log: Log, start: RestoreTarget, drop: Collection[str], folder: CheckpointFolder
) -> None:
    recovered = when_left(recover(log, Damage.LIST if start.restore else Damage.FAIL))
    if not start.restore:
        engine.accept(recovered, drop)
        return
    uuid = read_metadata(log.store).uuid
    point = start.resolve(recovered, folder)
    plan_truncation(engine.graph, lambda sink: f"{uuid}/{sink}", point)
    commit = point.commit
    if commit is None:
        engine.accept(replace(recovered, commit=None, partitions=None, last_published_commit=None), drop)
        return
    plan = planned(point, commit, engine.graph, drop)
    for rewrite in plan.rewrites:
        engine.plan_rewrite(rewrite, commit)
    engine.accept(with_partitions(recovered, plan.foreseen(commit, engine.graph)), drop)
