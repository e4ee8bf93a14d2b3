"""Ask the sinks what they show, where the log alone cannot be trusted: old copies, an unreadable end, damage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.checkpoint.entries import Commit
from penstock.checkpoint.recovery import Recovered
from penstock.checkpoint.replay import Damaged
from penstock.errors import CannotRestore, CheckpointCorrupt, SinkAhead
from penstock.runtime.engine import Engine

__all__ = ["find_damaged", "refuse_lost_commit", "refuse_old_copy", "refuse_unpublished"]

AppOf = Callable[[str], str]


def refuse_old_copy(engine: Engine, sinks: Sequence[str], app: AppOf, recovered: Recovered) -> None:
    """Raise SinkAhead where a sink shows a batch that the log does not know to be committed (F31).

    Asked at the start and not left to publishing: the next batches may have no rows for that sink, and once the ids
    have caught up it would take other rows under the same id for the ones it has.
    Where damage is listed for a Restore, a Commit that cannot be read may have been published; ids go on above it.
    """
    free = recovered.used + 1 if recovered.problems else recovered.next_batch
    for sink in sinks:
        seen = engine.version(sink, app(sink))
        if seen is not None and seen >= free:
            raise SinkAhead(
                f"{sink} shows batch {seen} of this checkpoint, and its log ends before batch {free} is committed",
                seen=seen,
                batch=free,
            )


def refuse_lost_commit(engine: Engine, sinks: Sequence[str], app: AppOf, damaged: Damaged) -> None:
    """Raise CheckpointCorrupt where a sink shows that an entry that cannot be read was a Commit (F13)."""
    for sink in sinks:
        seen = engine.version(sink, app(sink))
        if seen is not None and damaged.batch is not None and seen >= damaged.batch:
            raise CheckpointCorrupt(
                f"slot {damaged.slot} cannot be read, and {sink} shows batch {seen}, so it was more than offsets",
                where=damaged.path,
            )


def find_damaged(engine: Engine, sinks: Sequence[str], app: AppOf, commit: Commit) -> CheckpointCorrupt | None:
    """Return what is wrong with files of a Commit that a sink does not show yet: they are read before it takes them."""
    for sink in sinks:
        files = commit.staged.get(sink)
        seen = engine.version(sink, app(sink)) if files else None
        if files and (seen is None or seen < commit.batch):
            try:
                engine.verify_staged(sink, files)
            except CheckpointCorrupt as why:
                return why
    return None


def refuse_unpublished(damaged: CheckpointCorrupt | None, commit: Commit | None, batch: int) -> None:
    """Raise CannotRestore for a batch whose rows could never be published, because their files are damaged."""
    if damaged is not None and commit is not None and batch >= commit.batch:
        raise CannotRestore(f"the rows of batch {commit.batch} are damaged ({damaged}): go back to one before it")
