"""Collect the entries of a log that matter, from the tail back to the floor."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.checkpoint.entries import Commit, Entry, Offsets, Restore, Void
from penstock.checkpoint.log import STRIDE, Log
from penstock.errors import CheckpointCorrupt, NotFound


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that is damaged; `kind` is what its header or its body says, None when neither is whole."""

    slot: int
    path: str
    reason: str
    kind: str | None


@dataclass(frozen=True, slots=True)
class Walk:
    """What stands from the Offsets of the floor's batch, or from slot 0, to the tail, in the order of the log.

    Slots given up by a Void are left out. `missing` are slots that should be there and are not.
    `from_start` says that the walk reached slot 0.
    """

    tail: int
    found: tuple[tuple[int, Entry | Unreadable], ...]
    missing: tuple[int, ...]
    floor: int
    from_start: bool


def walk(log: Log, tail: int, newest: int | None = None) -> Walk:
    """Read backwards from the tail; with `newest` so many batches, and what the last Restore goes back to if need be.

    The floor is the highest that a Commit read so far states, because purging may have gone by any of them.
    The walk ends at Offsets at or below it; and once past the floor's Commit, or past damage that may have been a
    Commit with a higher floor, a missing slot may have been purged and is an end too.
    """
    found: list[tuple[int, Entry | Unreadable]] = []
    missing: list[int] = []
    voided: set[int] = set()
    floor, at_floor, damage = 0, False, False
    bounded, back = newest is None, None
    milestone = tail - tail % log.slots.strides[0]
    slot = tail
    while slot >= 0:
        if slot not in voided:
            entry = _look(log, slot)
            if entry is None:
                if slot < milestone and (at_floor or damage or len(missing) > STRIDE):
                    break
                missing.append(slot)
            else:
                found.append((slot, entry))
            if isinstance(entry, Unreadable):
                damage = True
            elif isinstance(entry, Void):
                voided.add(entry.slot)
            elif isinstance(entry, Restore) and back is None:
                back = entry.batch
            elif isinstance(entry, Commit):
                floor = max(floor, entry.floor)
                if newest is not None and not bounded:
                    bounded, last = True, entry.batch - newest + 1
                    floor = max(floor, last if back is None else min(last, back))
                at_floor = at_floor or entry.batch <= floor
            elif isinstance(entry, Offsets) and entry.batch <= floor:
                break
        slot -= 1
    return Walk(tail, tuple(reversed(found)), tuple(reversed(missing)), floor, slot < 0)


def _look(log: Log, slot: int) -> Entry | Unreadable | None:
    try:
        return log.read(slot)
    except NotFound:
        return None
    except CheckpointCorrupt as error:
        return Unreadable(slot, log.path(slot), str(error.fields["reason"]), log.kind_at(slot))
