"""Find what a command has caused already, so that one that is tried again does nothing twice (DESIGN 11)."""

from __future__ import annotations

from penstock.checkpoint.entries import Commit, Offsets, Restore, Takeover
from penstock.checkpoint.log import Log
from penstock.checkpoint.takeover import survey
from penstock.errors import CheckpointCorrupt, NotFound

__all__ = ["find_restore"]


def find_restore(log: Log, command: str) -> Restore | None:
    """Return the Restore that a command has caused, however long ago; None where it has caused none.

    Walks back over the Takeovers, which are never purged and name the one before; a Restore follows its own at once.
    """
    view = survey(log)
    slot, end = view.takeover_slot, view.tail
    while slot is not None:
        takeover = log.read(slot)
        if isinstance(takeover, Takeover) and takeover.command == command:
            found = _restore_behind(log, slot, end, command)
            if found is not None:
                return found
        end = slot - 1
        slot = takeover.place.takeover if takeover.place is not None else None
    return None


def _restore_behind(log: Log, slot: int, end: int, command: str) -> Restore | None:
    for number in range(slot + 1, end + 1):
        try:
            entry = log.read(number)
        except NotFound:
            return None  # purged: it was a batch's
        except CheckpointCorrupt:
            continue
        if isinstance(entry, Restore) and entry.command == command:
            return entry
        if isinstance(entry, Offsets | Commit):
            return None
    return None
