"""Write state again for a restore: in another number of partitions, from a snapshot, or from a table of the user's.

What is written is named by nobody until the Restore entry is: a restore that is cut short leaves files, and nothing
else. Running aggregates and indexes are rebuilt from what the tables say (`Step.rebuilt`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.checkpoint.log.entries import Commit, ManifestRef, Place, SourceProgress, Takeover
from penstock.checkpoint.log.recovery import Recovered
from penstock.errors import CannotRestore, PartitionsChanged
from penstock.graph.graph import JobGraph
from penstock.runtime.driver.commit import watermarks_after
from penstock.runtime.driver.engine import Engine, StepRewrite
from penstock.runtime.driver.settings import DriverSettings
from penstock.runtime.restore.target import RestorePoint
from penstock.runtime.snapshots.catalog import verify_snapshot
from penstock.runtime.tasks.batch_context import BatchContext

__all__ = ["Plan", "Restored", "planned", "restored", "with_partitions"]


@dataclass(frozen=True, slots=True)
class Restored:
    """Hold the Commit that a restore brings back, with the state it is to have, and the partitions of that."""

    commit: Commit
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold what a restore rewrites, the steps and sources that it drops, and the partitions that the state had."""

    rewrites: tuple[StepRewrite, ...]
    gone: frozenset[str]
    known: Mapping[str, int]

    def partitions(self, graph: JobGraph, state: Collection[str]) -> dict[str, int]:
        """Return the partitions of the steps once that is done; `state` names the steps that have state then."""
        return {**self.known, **{step.name: step.partitions for step in graph.steps if step.name in state}}

    def foreseen(self, commit: Commit, graph: JobGraph) -> Restored:
        """Return what a start would resume from, without the state that is still to be written from tables."""
        if not (self.rewrites or self.gone):
            return Restored(commit, self.known)
        made = {rewrite.step for rewrite in self.rewrites if rewrite.table is not None or rewrite.snapshot is not None}
        state = {step: refs for step, refs in commit.state.items() if step not in {*self.gone, *made}}
        changed = {"state": state, "sources": self.sources(commit)}
        return Restored(commit.model_copy(update=changed), self.partitions(graph, {*state, *made}))

    def sources(self, commit: Commit) -> dict[str, SourceProgress]:
        """Return the positions of a Commit without those that are dropped."""
        return {source: progress for source, progress in commit.sources.items() if source not in self.gone}


def planned(point: RestorePoint, commit: Commit, graph: JobGraph, drop: Collection[str]) -> Plan:
    """Return what a start rewrites and drops of the state of a Commit; writes nothing.

    Raises CannotRestore and PartitionsChanged.
    """
    known = point.partitions
    # What the job does not have and is to be dropped: no start after this one has to say so again.
    has = {*(step.name for step in graph.steps), *(source.name for source in graph.sources)}
    gone = ((commit.state.keys() | commit.sources.keys()) - has) & set(drop)
    return Plan(tuple(_rewrites(point, commit, graph, known)), frozenset(gone), known)


def restored(
    point: RestorePoint, commit: Commit, engine: Engine, takeover: Takeover, settings: DriverSettings
) -> Restored:
    """Return what a start restores of a Commit; state is rewritten where it asks for that, durably, or dropped.

    Raises CannotRestore and PartitionsChanged before anything is written, and what computing raises.
    """
    graph = engine.graph
    plan = planned(point, commit, graph, settings.drop)
    if not (plan.rewrites or plan.gone):
        return Restored(commit, plan.known)
    facts = BatchContext(
        # Not the batch of the Commit: what is named by one below the floor may be swept before the Restore stands.
        batch=max(point.recovered.used, commit.batch),
        time=commit.time,
        epoch=takeover.epoch,
        run=uuid.uuid4().hex[:12],
        spans={},
        late={},
        close=commit.watermarks_in,
        manifests={},
        state_folder=(point.folder / "state").address,
        staging={},
        zero=commit.zero,
        row_cap=settings.row_cap,
    )
    state, due, due_time = dict(commit.state), dict(commit.due), dict(commit.due_time)
    for rewrite in plan.rewrites:
        receipts = engine.rewrite(rewrite, commit, facts)
        step = rewrite.step
        made = [receipt for receipt in receipts if receipt["manifest"] is not None]
        state[step] = {str(receipt["partition"]): ManifestRef(**receipt["manifest"]) for receipt in made}
        for dues, name in ((due, "due"), (due_time, "due_time")):
            dues[step] = min((receipt[name] for receipt in receipts if receipt[name] is not None), default=None)
    for kept in (state, due, due_time):
        for step in plan.gone:
            kept.pop(step, None)
    partitions = plan.partitions(graph, state)
    # Written by who restores: under its Takeover the partitions are those, and no other Commit of the batch is it.
    place = Place(slot=takeover.placed.slot, takeover=takeover.placed.slot)
    who = {"epoch": takeover.epoch, "writer": takeover.writer, "place": place}
    sources = plan.sources(commit)
    # Windows may have waited for a dropped source alone; they are due once the Commit has the watermark without it.
    after = watermarks_after(engine, sources, commit, drained=False) if len(sources) < len(commit.sources) else {}
    marks = {step: after.get(step, mark) for step, mark in commit.watermarks_out.items()}
    changed = {"state": state, "due": due, "due_time": due_time, "snapshots": {}, "sources": sources}
    return Restored(commit.model_copy(update={**changed, **who, "watermarks_out": marks}), partitions)


def _rewrites(point: RestorePoint, commit: Commit, graph: JobGraph, kept: Mapping[str, int]) -> Iterator[StepRewrite]:
    start = point.target
    given = dict(start.state)
    steps = {step.name: step for step in graph.steps}
    if start.partitions not in (None, *(step.partitions for step in graph.steps)):
        says = ", ".join(f"{step.name} {step.partitions}" for step in graph.steps)
        raise PartitionsChanged(
            f"--partitions {start.partitions} is the number of no step; the job's code says {says or 'none'}, and that "
            "is what its state is written for"
        )
    if unknown := sorted(given.keys() - steps.keys()):
        raise CannotRestore(f"the job has no step {unknown[0]!r} with state; there is {sorted(steps)}")
    for table in given.values():
        _refuse_no_table(table)
    snapshots = {} if point.snapshot is None else point.snapshot.steps
    for snapshot in snapshots.values():
        verify_snapshot(point.folder, snapshot)
    for name, step in steps.items():
        # Where no entry says the number any more, the state is not to be read as if it were the job's.
        was = kept.get(name)
        other = was != step.partitions and bool(commit.state.get(name))
        if other and start.partitions is None and name not in snapshots and name not in given:
            raise PartitionsChanged(
                f"step {name!r} has {step.partitions} partitions in the job and its state has "
                f"{'a number that cannot be read any more' if was is None else was}",
                where=str(step.site),
            )
        if name in given or name in snapshots or other:
            yield StepRewrite(step=name, table=given.get(name), snapshot=snapshots.get(name))


def _refuse_no_table(path: str) -> None:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        raise CannotRestore("there is no Delta table with state to resume from", where=path)


def with_partitions(recovered: Recovered, result: Restored) -> Recovered:
    """Return the state of the job after the Restore, as far as the engine is to accept it.

    What was begun is given up by it, and nothing is published again (decision 24).
    """
    return replace(
        recovered, commit=result.commit, partitions=result.partitions, pending=None, last_published_commit=None
    )
