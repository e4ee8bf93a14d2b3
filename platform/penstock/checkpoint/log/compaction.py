"""Compact a log: one entry embeds what later readers need of all before it, so that a start reads from there.

The owner appends it every so many slots. Entries before the last Compaction but one, which neither of the last two
names, may then be deleted (`purge`). So an unreadable Compaction is no loss: the one before is whole, and all since.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.checkpoint.log.entries import Compaction, EntryBase, Restore
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.queries import old_commands
from penstock.checkpoint.log.recovery import Damage, Recovered, recover
from penstock.errors import StorageUnavailable

__all__ = ["ASKED", "COMMANDS", "EVERY", "compact"]

EVERY = 64
"""Slots from one Compaction to the next: a start reads no more entries than these and those that are kept."""
COMMANDS = 256
"""Ids of commands that are remembered: a command is tried again within hours, and each of these restored the job."""
ASKED = 32
"""Held batches that one Compaction asks after: however many are held, no batch asks after them all."""


def compact(
    log: Log, owned: OwnedLog, *, decided_on: Callable[[int], bool] = lambda _: False, every: int | None = None
) -> Compaction | None:
    """Append a Compaction where that is due, and return it; None where it is not.

    `decided_on` says whether a decision on a held batch was carried out, so that nobody looks for it any more.
    A log with damage stays as it is: what is lost in it, the entries before may still tell. All of it was read to
    find that, so it is not tried again before as many slots have followed (`owned.not_compacted`).
    """
    last = max(-1 if owned.compaction is None else owned.compaction, owned.not_compacted)
    if owned.next_slot - last <= (EVERY if every is None else every):
        return None
    try:
        # A listing has some thousand names, and would take twice as long as all else here.
        recovered = recover(log, Damage.LIST, tail=owned.next_slot - 1)
    except StorageUnavailable:  # the next append reports it; nothing is lost by a later one
        return None
    if recovered.problems or recovered.damaged:
        owned.not_compacted = owned.next_slot
        return None
    return owned.append(compaction_of(recovered, owned, decided_on))


def compaction_of(recovered: Recovered, owned: OwnedLog, decided_on: Callable[[int], bool]) -> Compaction:
    """Return the entry with the state of a job that was read from its log."""
    commands = recovered.commands if recovered.compaction is not None else old_commands(recovered.log)
    held = dict(recovered.held.refs)
    batches = list(held)
    turn = owned.next_slot % max(1, len(batches))
    for batch in [*batches[turn:], *batches[:turn]][:ASKED]:
        if decided_on(batch):
            del held[batch]
    decided = recovered.decided
    named = [decided, recovered.pending, recovered.last_published_commit, *recovered.kept]
    others = {entry.placed.takeover for entry in (*named, recovered.commit) if entry is not None}
    others.add(owned.takeover_slot)
    if isinstance(decided, Restore) and decided.commit is None:
        others.add(decided.placed.saves.get(decided.saved or ""))  # as versions before this one wrote it
    return Compaction(
        epoch=owned.epoch,
        writer=owned.writer,
        used=recovered.used,
        time=recovered.time,
        floor=recovered.floor,
        decided=_slot(decided),
        redo=_slot(recovered.last_published_commit),
        pending=_slot(recovered.pending),
        published=dict(recovered.published),
        kept=[kept.placed.slot for kept in recovered.kept],
        restores=_restores(recovered),
        others=sorted(slot for slot in others if slot is not None),
        saves=dict(recovered.saves.refs),
        held={str(batch): ref for batch, ref in held.items()},
        commands=dict(list(commands.items())[-COMMANDS:]),
        skipped={sink: sorted(b for b in left if b >= recovered.floor) for sink, left in recovered.skipped.items()},
    )


def _restores(recovered: Recovered) -> list[int]:
    """Return the slots of the Restores that still matter for the kept batches.

    Of several in a row the last says from where batches continue; those that truncate also say what sinks show.
    """
    kept = [commit.placed.slot for commit in recovered.kept]
    slots: list[int] = []
    following: int | None = None
    for restore in reversed(recovered.restores):
        slot = _slot(restore)
        if slot is None or not (restore is recovered.decided or slot > min(kept, default=-1)):
            continue
        last = following is None or any(slot < commit < following for commit in kept)
        if last or restore.truncate:
            slots.append(slot)
        following = slot
    return slots[::-1]


def _slot(entry: EntryBase | None) -> int | None:
    return None if entry is None else entry.placed.slot
