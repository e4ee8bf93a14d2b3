"""Ask a log without a recovery's reads: for forms, and for a command that is tried again.

Forms list the newest batches and the saved checkpoints that a job can restore. A command finds what it has caused
already, so that it does nothing twice (DESIGN 11).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from penstock.checkpoint.log.entries import Commit, Compaction, Entry, Offsets, Restore, Save, Takeover, Unsave
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.saved import UNKNOWN, read_save
from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.storage import format as fileformat
from penstock.errors import CheckpointCorrupt, CheckpointError, NotFound

__all__ = ["Recent", "find_restore_by_command", "newest_commits", "newest_saves", "old_commands"]


@dataclass(frozen=True, slots=True)
class Recent:
    """A Commit, by its batch and its time in UTC microseconds since 1970."""

    batch: int
    time: int


def newest_commits(log: Log, most: int) -> list[Recent]:
    """Return at most so many Commits, the newest first, down to the floor.

    Unreadable entries are left out, and nothing is judged: `recover` does that for the one that a person picks.
    """
    commits: list[Recent] = []
    floor = 0
    slots = deque(range(log.find_tail(), -1, -1))
    while slots:
        slot = slots.popleft()
        path = log.path(slot)
        try:
            data = log.store.read(path)
            kind = fileformat.read_header(data, path)["kind"]
            if kind == "compaction":  # which names the restorable ones before it
                _, body = fileformat.decode(data, kind=kind, path=path)
                slots = deque(sorted(map(int, body["kept"]), reverse=True))
            if kind != "commit":
                continue
            _, body = fileformat.decode(data, kind="commit", path=path)
            floor = max(floor, int(body["floor"]))
            commits.append(Recent(int(body["batch"]), int(body["time"])))
        except NotFound:
            break  # purged: what is below it is as well
        except (CheckpointError, KeyError, TypeError, ValueError):
            continue
        if len(commits) >= most or commits[-1].batch <= floor:
            break
    return [commit for commit in commits if commit.batch >= floor]


def newest_saves(log: Log) -> dict[str, Recent]:
    """Return the saved checkpoints by name, the newest first; one that cannot be read is left out.

    Reads what the log got since its newest Compaction, which names those before it; without one, each Save.
    """
    saves: dict[str, Recent | None] = {}
    for slot in range(log.find_tail(), -1, -1):
        try:
            entry = log.read(slot)
        except NotFound:
            break
        except CheckpointError:
            continue
        match entry:
            case Save():
                saves.setdefault(entry.name, Recent(entry.commit.batch, entry.commit.time))
            case Unsave():
                saves.setdefault(entry.name, None)
            case Compaction():
                for name, ref in reversed(entry.saves.items()):
                    saves.setdefault(name, None if ref.batch == UNKNOWN else Recent(ref.batch, ref.time))
                break
        place = entry.placed
        # Before the first Compaction an entry names all that was saved before it; the first of all names nothing.
        if place.takeover is not None and place.compaction is None:
            for name, behind in reversed(place.saves.items()):
                if name not in saves:
                    saves[name] = _saved(log, behind, name)
            break
    return {name: commit for name, commit in saves.items() if commit is not None}


def _saved(log: Log, slot: int, name: str) -> Recent | None:
    try:
        commit = read_save(log, slot, name)
    except CheckpointError:
        return None
    return Recent(commit.batch, commit.time)


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
