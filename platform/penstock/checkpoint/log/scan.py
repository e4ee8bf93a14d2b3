"""Collect the entries of a log that matter, from the tail back to the floor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.log.entries import Commit, Compaction, Entry, Offsets, Restore, Void
from penstock.checkpoint.log.log import STRIDE, Log
from penstock.errors import CheckpointCorrupt, NotFound


@dataclass(frozen=True, slots=True)
class Damaged:
    """An entry that cannot be read; `kind` is what its header or its body says, None when neither is whole.

    At the end of the log a Void may give it up. `batch` is the id that it may have begun then, None when its kind shows
    that it began no batch. Nothing of that batch can have been published under this log. A sink that holds its version
    proves that the entry was a Commit, and then nobody may give it up (F13).
    """

    slot: int
    path: str
    reason: str
    kind: str | None = None
    batch: int | None = None

    @property
    def why(self) -> str:
        """Return the reason, and what is lost with the entry."""
        lost = f"was a {self.kind} entry" if self.kind else "may have been a saved checkpoint"
        return f"{self.reason}; it {lost}"


@dataclass(frozen=True, slots=True)
class Walk:
    """The entries from the newest Compaction to the tail, in the order of the log, and those the Compaction names.

    Where there is none, it begins at the Offsets of the floor's batch, or at slot 0. Slots given up by a Void are left
    out. `missing` are slots that should be there and are not. `from_start` says that the walk reached slot 0.
    """

    tail: int
    found: tuple[tuple[int, Entry | Damaged], ...]
    missing: tuple[int, ...]
    floor: int
    from_start: bool
    base: Compaction | None = None
    named: Mapping[int, Entry | Damaged | None] = field(default_factory=dict)


def walk(log: Log, tail: int, newest: int | None = None) -> Walk:
    """Read backwards from the tail; with `newest` so many batches, and the target of the last Restore if need be.

    The walk ends at a Compaction. One that cannot be read decides nothing, and all since the one before is still there.

    Before the first Compaction the floor is the highest that a Commit read so far states. The walk ends:

    - at Offsets at or below the floor;
    - at a missing slot past the floor's Commit, or past damage that may have been a Commit with a higher floor. A
      Penstock that knew no Compactions may have purged it.

    Where the first Compaction is lost, or what may have been it, the entries that it named are still there, and are
    read from below the floor.
    """
    entries: list[tuple[int, Entry | Damaged]] = []
    missing: list[int] = []
    voided: set[int] = set()
    floor, at_floor, damage, lost = 0, False, False, False
    bounded, back = newest is None, None
    milestone = tail - tail % log.slots.strides[0]
    base: Compaction | None = None
    expected: int | None = None
    slot = tail
    while slot >= 0 and base is None:
        entry = None if slot in voided else _look(log, slot)
        if entry is not None:
            entries.append((slot, entry))
        elif slot not in voided:
            purged = expected is None and slot < milestone and (at_floor or damage)
            if purged or len(missing) > STRIDE:
                break
            missing.append(slot)
        damage = damage or isinstance(entry, Damaged)
        lost = lost or (isinstance(entry, Damaged) and entry.kind in ("compaction", None))
        expected = _compaction_before(entry, slot, expected)
        match entry:
            case Compaction():
                base, floor = entry, max(floor, entry.floor)
            case Void():
                voided.add(entry.slot)
            case Restore() if back is None:
                back = entry.batch
            case Commit():
                floor = max(floor, entry.floor)
                if not bounded:
                    oldest = entry.batch - (newest or 0) + 1
                    bounded, floor = True, max(floor, oldest if back is None else min(oldest, back))
                at_floor = at_floor or entry.batch <= floor
            case Offsets() if entry.batch <= floor and expected is None and not lost:
                break
        slot -= 1
    named = {} if base is None else {slot: _look(log, slot) for slot in sorted(base.entries)}
    return Walk(tail, tuple(reversed(entries)), tuple(reversed(missing)), floor, slot < 0, base, named)


def _compaction_before(entry: Entry | Damaged | None, slot: int, expected: int | None) -> int | None:
    """Return the slot of the Compaction before a slot, as the last entry says that could be read."""
    if entry is None or isinstance(entry, Damaged):
        return None if slot == expected else expected
    if entry.placed.takeover is None:  # the first of all, or who closed a gap
        return expected
    return entry.placed.compaction


def _look(log: Log, slot: int) -> Entry | Damaged | None:
    try:
        return log.read(slot)
    except NotFound:
        return None
    except CheckpointCorrupt as error:
        return Damaged(slot, log.path(slot), str(error.fields["reason"]), log.kind_at(slot))
