"""Judge a start before anything is ended for it, by the code that a start runs (F79).

Nothing is owned, and nothing of the checkpoint is written. A driver may run meanwhile: the start is judged by the
checkpoint as it will be when that driver has finished its batch and left.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import refuse_ended, survey
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CannotRestore
from penstock.runtime.process.launch import analysed
from penstock.runtime.process.project import LoadedJob
from penstock.runtime.restore.compatibility import when_left
from penstock.runtime.restore.sink_truncation import plan_truncation
from penstock.runtime.restore.state_rewrite import planned, with_partitions
from penstock.runtime.restore.target import RestoreTarget

if TYPE_CHECKING:
    from penstock.runtime.spark.engine import SparkEngine

__all__ = ["preflight"]


def preflight(loaded: LoadedJob, start: RestoreTarget, drop: Collection[str] = ()) -> None:
    """Raise the error that would refuse a start of the job.

    `start` is where it begins, with the paths of tables that state is written from; `drop` names steps to drop.
    Raises what a start raises: JobError for code that cannot be analysed, CannotRestore, PartitionsChanged,
    StepsChanged and CannotTruncate. What only reading all rows shows, such as a null key in a table, is not judged.
    """
    folder = loaded.settings.root / loaded.job.name
    log = job_log(folder)
    if log is not None:
        refuse_ended(log, survey(log))
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
