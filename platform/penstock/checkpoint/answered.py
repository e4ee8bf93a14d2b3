"""Find what a command has caused already, so that one that is tried again does nothing twice (DESIGN 11)."""

from __future__ import annotations

from contextlib import suppress

from penstock.checkpoint.entries import Commit, Entry, Offsets, Restore, Takeover
from penstock.checkpoint.log import Log
from penstock.checkpoint.takeover import survey
from penstock.errors import CheckpointCorrupt, NotFound

__all__ = ["find_restore"]


def find_restore(log: Log, command: str) -> Restore | None:
    """Return the Restore that a command has caused, however long ago; None where it has caused none.

    Walks back over the Takeovers, which are never purged and name the one before; a Restore follows its own at once.
    Where one cannot be read, the entry before it names the next.
    """
    view = survey(log)
    slot, end = view.takeover_slot, view.tail
    while slot is not None:
        takeover: Entry | None = None
        with suppress(CheckpointCorrupt, NotFound):
            takeover = log.read(slot)
        if not isinstance(takeover, Takeover) or takeover.command == command:
            found = _restore_behind(log, slot, end, command)
            if found is not None:
                return found
        end = slot - 1
        place = takeover.place if takeover is not None else None
        slot = place.takeover if place is not None else _takeover_before(log, slot)
    return None


def _takeover_before(log: Log, slot: int) -> int | None:
    """Return the slot of the newest Takeover before a slot that anything tells of."""
    for number in reversed([one for one in log.slots.listed() if one < slot]):
        with suppress(CheckpointCorrupt, NotFound):
            entry = log.read(number)
            return number if isinstance(entry, Takeover) or entry.place is None else entry.place.takeover
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
