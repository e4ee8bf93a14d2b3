"""Truncate sinks to the batch of a restore: take back the rows that they have published after it (SEMANTICS 10.1).

The Restore names the version of each table to put in force again. Every new owner of the log does that while no Commit
has followed the Restore, also when another process wrote it. So it is a redo, as publishing is: a driver that dies
before, or between two sinks, loses nothing, and each sink remembers for which Restore it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import structlog

from penstock.checkpoint.log.entries import Commit, Restore
from penstock.checkpoint.log.recovery import Recovered
from penstock.errors import CannotRestore, CannotTruncate, CheckpointCorrupt, CheckpointError, NotFound
from penstock.graph.graph import JobGraph
from penstock.runtime.restore.target import RestorePoint, find_superseded
from penstock.sinks.base import Target, TruncatableSink

__all__ = ["plan_truncation", "refuse_before_truncation", "was_truncated"]

log = structlog.get_logger()


def plan_truncation(graph: JobGraph, app: Callable[[str], str], point: RestorePoint) -> dict[str, int]:
    """Return the version of each sink's table that a restore is to put in force again; nothing if that is not wanted.

    Raises CannotTruncate for a sink that cannot, or must not, take rows back. Without truncation raises CannotRestore
    for a batch whose rows an earlier restore has taken back, because they would be missing for good.
    """
    recovered, done = point.recovered, partial(was_truncated, graph, app)
    if not point.target.truncate:
        _refuse_taken_back(recovered, point.commit, done)
        return {}
    sinks = {node.name: node.sink for node in graph.sinks}
    # Held rows count as well: whether somebody has released them, the table itself tells.
    superseded = find_superseded(point, released=[kept.batch for kept in recovered.kept], was_truncated=done)
    rows = {sink.sink: sink.rows for sink in superseded.sinks}
    for name in [*sinks, *(name for name in rows if name not in sinks)]:
        if not isinstance(sinks.get(name), TruncatableSink) and (name in rows or superseded.before is not None):
            which = "is not among the job's sinks any more" if name not in sinks else "takes nothing back"
            amount = f"{rows[name]:,} rows" if name in rows else "rows that the log no longer counts"
            raise CannotTruncate(f"sink {name!r} {which}, and has {amount} of later batches", sink=name)
    versions: dict[str, int] = {}
    for name, sink in sinks.items():
        if isinstance(sink, TruncatableSink):
            try:
                version = sink.find_version(_target(app(name), point))
            except CannotTruncate as why:
                raise CannotTruncate(f"sink {name!r}: {why.what}", where=why.where, sink=name) from why
            if version is not None:
                versions[name] = version
    return versions


def _target(app: str, point: RestorePoint) -> Target:
    recovered, commit = point.recovered, point.commit
    if commit is None:
        return Target(app=app, batch=None, slot=-1)
    # That of a snapshot may be in the log of another checkpoint, from which this one was copied.
    known = {(kept.batch, kept.placed.slot) for kept in recovered.kept}
    saves = (recovered.saves[name] for name, saved in recovered.saves.batches.items() if saved == commit.batch)
    known |= {(saved.batch, saved.placed.slot) for saved in saves}
    if commit.place is None or (commit.batch, commit.place.slot) not in known:
        raise CannotTruncate(
            f"batch {commit.batch} is neither kept nor saved, so which versions are its own is unknown"
        )
    return Target(app=app, batch=commit.batch, slot=commit.place.slot)


def was_truncated(graph: JobGraph, app: Callable[[str], str], restore: Restore) -> bool:
    """Return whether the tables say that a Restore's truncation was carried out, of those that the job still has.

    It is not where somebody wrote to a table in between: then a restore without truncation is the way out.
    """
    sinks = {node.name: node.sink for node in graph.sinks}
    slot = restore.placed.slot
    known = ((name, sinks.get(name)) for name in restore.truncate)
    done = [sink.truncated(app(name)) for name, sink in known if isinstance(sink, TruncatableSink)]
    return not done or any(at is not None and at >= slot for at in done)


def refuse_before_truncation(
    graph: JobGraph, app: Callable[[str], str], recovered: Recovered, *, refusal: type[CheckpointError]
) -> None:
    """Raise for a command at rest while a sink has still to take rows back: a commit to its table would forbid it."""
    restore = recovered.truncation
    if restore is None:
        return
    for sink in restore.truncate:
        if not was_truncated(graph, app, restore.model_copy(update={"truncate": {sink: restore.truncate[sink]}})):
            raise refusal(f"sink {sink!r} is to take rows back, as a restore has asked for; start the job first")


def _refuse_taken_back(recovered: Recovered, commit: Commit | None, done: Callable[[Restore], bool]) -> None:
    if commit is None or commit.place is None:
        return
    for restore in _restores_since(recovered, commit.place.slot):
        if restore.truncate and done(restore) and (restore.batch is None or restore.batch < commit.batch):
            back = "nothing" if restore.batch is None else f"batch {restore.batch}"
            sinks = ", ".join(restore.truncate)
            raise CannotRestore(
                f"a restore to {back} has taken rows of batch {commit.batch} back from {sinks}; only a restore with "
                "--truncate-sinks brings them back, by the version that had them",
                batch=commit.batch,
            )


def _restores_since(recovered: Recovered, slot: int) -> Iterator[Restore]:
    """Yield the Restores after the Commit in a slot, also where other entries of the log cannot be read.

    Recovery has those after the kept batches. After an older saved batch, this reads all remaining entries: no Restore
    that truncates is purged as long as a name precedes it.
    """
    if any(kept.placed.slot <= slot for kept in recovered.kept):
        yield from (restore for restore in recovered.restores if restore.placed.slot > slot)
        return
    for number in recovered.log.slots.listed():
        try:
            entry = recovered.log.read(number) if number > slot else None
        except (CheckpointCorrupt, NotFound):
            continue
        if isinstance(entry, Restore):
            yield entry
