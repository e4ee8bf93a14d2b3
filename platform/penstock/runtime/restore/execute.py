"""Restore a checkpoint: own the log, rewrite state where the target says so, append a Restore (SEMANTICS 10.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import structlog

from penstock.checkpoint.log.entries import Restore, Void
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.queries import find_restore_by_command
from penstock.checkpoint.log.recovery import Damage, Recovered, recover, takeover_of
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import Fenced, LogGap
from penstock.receivers.block_log import BEGINNING, BlockLog
from penstock.receivers.blocks import Place as BlockPlace
from penstock.receivers.hole_closing import close_holes, lost_epoch
from penstock.receivers.inventory import logs_in, places_in
from penstock.runtime.driver.loop import Driver
from penstock.runtime.driver.sink_recovery import refuse_missing, refuse_unpublished
from penstock.runtime.driver.stages import Hook
from penstock.runtime.restore.compatibility import lost_rows, refuse
from penstock.runtime.restore.sink_truncation import plan_truncation
from penstock.runtime.restore.state_rewrite import restored, with_partitions
from penstock.runtime.restore.target import RestoreTarget

__all__ = ["restore"]

log = structlog.get_logger()


def restore(driver: Driver, start: RestoreTarget) -> Iterator[Hook]:
    """Own the log, append a Restore, unless the driver's command has caused one, and release the log in any case.

    Raises CannotRestore, and what else says that the job cannot resume from there; then the log is unchanged.
    """
    yield from driver.guarded(_restore(driver, start))


def _restore(driver: Driver, start: RestoreTarget) -> Iterator[Hook]:
    _close_gaps(driver.log, start, driver.janitor.root, driver.identity.writer)
    recovered = yield from driver.own(Damage.LIST)
    owned = driver.owned
    assert owned is not None
    command = driver.identity.command
    # Asked now that nobody else can append: another try of the command may have had its Restore since the start.
    if command is not None and find_restore_by_command(driver.log, command) is not None:
        driver.tell(lambda listener: listener.on_answered(command))
        yield from driver.release()
        return
    rewritten = None
    try:
        _refuse_gaps(recovered)
        point = start.resolve(recovered, driver.janitor.root)
        commit = point.commit
        if commit is not None:
            last = recovered.last_published_commit
            refuse_unpublished(driver.unpublished, last, commit.batch)
            refuse_missing(driver.behind.values(), commit.batch)
            if last is not None and commit.batch >= last.batch:  # else they are computed again
                refuse(lost_rows(driver.engine.graph, recovered))
        truncate = plan_truncation(driver.engine.graph, driver.app, point)
        if commit is not None:
            rewritten = restored(point, commit, driver.engine, owned.takeover, driver.settings)
            driver.engine.accept(with_partitions(recovered, rewritten), driver.settings.drop)
    except Fenced:
        raise
    except Exception:
        yield from driver.release()
        raise
    # A Commit that no kept slot has, or that has state of its own, must be in the Restore itself.
    named = start.saved is None and any(kept is commit for kept in recovered.kept)
    held = rewritten is not None and (start.rewrites or rewritten.commit is not commit or not named)
    # Where the Takeover that fixed the partitions cannot be read, the Restore says them itself.
    known = rewritten is not None and not held and takeover_of(driver.log, rewritten.commit) is not None
    entry = Restore(
        epoch=owned.epoch,
        writer=owned.writer,
        command=command,
        batch=None if rewritten is None else rewritten.commit.batch,
        source="empty" if rewritten is None else start.source,
        saved=start.saved,
        partitions=None if rewritten is None or known else dict(rewritten.partitions) or None,
        commit=rewritten.commit if rewritten is not None and held else None,
        truncate=truncate,
    )
    if commit is None:
        _close_holes_of_receivers(driver.log.store, recovered)
    yield Hook("Restore", "before", entry.batch)
    owned.append(entry)
    # It makes up for what sinks have lost, which nobody is to miss from here on.
    driver.published |= {sink: why.shown for sink, why in driver.behind.items()}
    yield Hook("Restore", "after", entry.batch)
    yield from driver.release()


def _close_gaps(entries: Log, start: RestoreTarget, folder: CheckpointFolder, writer: str) -> None:
    """Put a Void into each slot that is missing, so that the end of the log is found again (decision 52).

    Where no batch has followed, nobody knows which ids the missing entries have used: those are given up with them.
    Until the Restore follows the job is refused as before, because nobody who held the log has written these.
    Raises CannotRestore where there is nothing to restore, and then the log is unchanged.
    """
    recovered = recover(entries, Damage.LIST)
    gaps = [cast("list[int]", gap.fields["missing"]) for gap in recovered.problems if isinstance(gap, LogGap)]
    missing = sorted({slot for slots in gaps for slot in slots})
    if not missing:
        return
    start.resolve(recovered, folder)
    begun = [*recovered.kept, *([recovered.pending] if recovered.pending is not None else [])]
    newest = max((entry.placed.slot for entry in begun), default=-1)
    reason = "the entry is missing; a restore makes up for it"
    for slot in missing:
        log.warning("log.gap_closed", slot=slot)
        used = recovered.used + len(missing) if slot == missing[-1] > newest else None
        entries.append_at(slot, Void(epoch=1, writer=writer, slot=slot, reason=reason, batch=used))


def _close_holes_of_receivers(store: CheckpointStore, recovered: Recovered) -> None:
    """Pass over blocks that are lost, because a job that begins with nothing reads all blocks that are there."""
    reached: dict[str, BlockPlace] = {}
    for commit in (*recovered.kept, *([] if recovered.commit is None else [recovered.commit])):
        for name, place in places_in({of: progress.position for of, progress in commit.sources.items()}).items():
            reached[name] = max(place, reached.get(name, BEGINNING))
    for name in sorted({receiver.receiver for receiver in logs_in(store)} | reached.keys()):
        receiver = BlockLog(store, name)
        if blocks := close_holes(receiver, reached.get(name, BEGINNING)):
            log.warning("receiver.blocks_passed_over", receiver=name, blocks=blocks)
        if (epoch := lost_epoch(receiver)) is not None:
            log.warning("receiver.epoch_passed_over", receiver=name, epoch=epoch)


def _refuse_gaps(recovered: Recovered) -> None:
    """Raise LogGap where an entry has gone since, because a Restore alone does not make up for it."""
    for problem in recovered.problems:
        if isinstance(problem, LogGap):
            raise problem
