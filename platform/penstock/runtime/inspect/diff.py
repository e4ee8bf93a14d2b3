"""Compare the code of a job with its checkpoint from outside: nothing is owned, and nothing written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.log.takeover import refuse_ended, survey
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.runtime.inspect.job_status import JobState, read_status
from penstock.runtime.process.launch import analysed
from penstock.runtime.process.project import LoadedJob
from penstock.runtime.restore.compatibility import Finding, when_left
from penstock.time.clock import Clock

__all__ = ["Diff", "diff"]


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
