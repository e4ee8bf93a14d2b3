"""Find what a command has caused already, so that one that is tried again does nothing twice (DESIGN 11)."""

from __future__ import annotations

from contextlib import suppress

from penstock.checkpoint.log.entries import Commit, Entry, Offsets, Restore, Takeover
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import survey
from penstock.errors import CheckpointCorrupt, NotFound

__all__ = ["find_restore_by_command", "old_commands"]


def find_restore_by_command(log: Log, command: str) -> int | None:
    """Return the slot of the Restore that a command has caused; None where it has caused none.

    A Compaction remembers the last of them (`compaction.COMMANDS`); the entry itself may be deleted by then.
    """
    recovered = recover(log, Damage.LIST)
    if recovered.compaction is not None:
        return recovered.commands.get(command)
    return old_commands(log).get(command)


def old_commands(log: Log) -> dict[str, int]:
    """Return the commands that have caused Restores in a log without a Compaction, oldest first, with their slots.

    Walks back over the Takeovers, which name the one before and are all there; a Restore follows its own at once.
    Where one cannot be read, the entry before it names the next.
    """
    view = survey(log)
    commands: dict[str, int] = {}
    slot, end = view.next_place.takeover, view.tail
    while slot is not None:
        takeover: Entry | None = None
        with suppress(CheckpointCorrupt, NotFound):
            takeover = log.read(slot)
        if not isinstance(takeover, Takeover) or takeover.command is not None:
            restored = _restore_behind(log, slot, end, takeover.command if isinstance(takeover, Takeover) else None)
            if restored is not None:
                commands.setdefault(*restored)
        end = slot - 1
        slot = takeover.placed.takeover if takeover is not None else _takeover_before(log, slot)
    return dict(reversed(commands.items()))


def _takeover_before(log: Log, slot: int) -> int | None:
    """Return the slot of the newest Takeover before a slot that anything tells of."""
    for number in reversed([listed for listed in log.slots.listed() if listed < slot]):
        with suppress(CheckpointCorrupt, NotFound):
            entry = log.read(number)
            return number if isinstance(entry, Takeover) else entry.placed.takeover
    return None


def _restore_behind(log: Log, slot: int, end: int, command: str | None) -> tuple[str, int] | None:
    """Return the command and the slot of the Restore after a Takeover, of any command where that cannot be read."""
    for number in range(slot + 1, end + 1):
        try:
            entry = log.read(number)
        except NotFound:
            return None  # purged: it was a batch's
        except CheckpointCorrupt:
            continue
        if isinstance(entry, Restore) and entry.command is not None and command in (None, entry.command):
            return entry.command, number
        if isinstance(entry, Offsets | Commit):
            return None
    return None
