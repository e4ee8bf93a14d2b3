"""Delete what no restart and no restore can need any more from a log (DESIGN 4, stage c6).

A purge deletes entries before the last Compaction but one that neither of the last two names, and that have a milestone
after them. Each process begins at another place among them. A driver that lives only for a few batches would else look
at nothing but the Takeovers of those that were killed before it, which stay. A Takeover goes only with the Release
before it, or alone where that one is a milestone. After any other entry, its slot is the next one of a driver that may
still sleep, and only the Takeover there fences that driver (decision 58).
The rules look at entries that never change, so a purge may be repeated, interrupted, or run late by a fenced driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from penstock.checkpoint.log.entries import Compaction, Entry, Release, Restore, Takeover
from penstock.checkpoint.log.log import Log
from penstock.errors import CheckpointCorrupt, NotFound

__all__ = ["AT_MOST", "BURST", "Purge"]

AT_MOST = 4
"""Entries that the purge of a batch looks at, also when a milestone frees thousands at once: 0.35 ms each on a disk.
A batch adds two."""

BURST = 128
"""Entries that who leaves the log looks at: twice what was appended since the last Compaction, so that a job that only
ever runs for a moment catches up too."""

_DELETED = {"offsets", "commit", "restore", "save", "unsave", "void", "release", "compaction", "takeover"}


@dataclass(slots=True)
class Purge:
    """The purge of one log, kept between batches so that most calls ask the store nothing.

    What it remembers is found again after a restart. Not for use by several threads.
    """

    log: Log
    _todo: dict[int, None] = field(default_factory=dict)
    """The slots that may go one day, in the order of the purge."""
    _listed_for: int = 0
    _judged: int | None = None
    _compactions: tuple[Compaction, ...] = ()
    _before: int = 0
    _needed: set[int] = field(default_factory=set)

    def run(self, newest: int | None, *, at_most: int = AT_MOST) -> int:
        """Delete what may go, and return how much; `newest` is the slot of the newest Compaction.

        `at_most` is how many entries it looks at; those that a Compaction names are passed over unread.
        """
        self._judge(newest)
        self._list()
        may_go = (slot for slot in self._todo if slot < self._before and slot not in self._needed)
        deleted = 0
        for slot in [*islice(may_go, at_most)]:
            deleted += self._delete(slot)
            del self._todo[slot]  # not before: what could not be deleted is tried again
        return deleted

    def _list(self) -> None:
        """Look for entries once for each milestone; one that a stale listing leaves out waits for the next (F29)."""
        log = self.log
        seen = log.seen if log.seen >= 0 else log.find_tail()
        milestone = seen - seen % log.slots.strides[0]
        if milestone > self._listed_for:
            slots = [slot for slot in log.slots.listed() if log.slots.expendable(slot, seen)]
            begin = seen % len(slots) if slots else 0
            self._todo = dict.fromkeys(reversed([*slots[begin:], *slots[:begin]]))
            self._listed_for = milestone

    def _follows_a_milestone_release(self, slot: int) -> bool:
        return not (slot - 1) % self.log.slots.strides[0] and isinstance(self._read(slot - 1), Release)

    def _judge(self, newest: int | None) -> None:
        """Read the last two Compactions, once; where one cannot be read, nothing goes until there is another."""
        if newest is None or newest == self._judged:
            return
        self._before, self._needed = 0, set()
        last = self._compaction(newest)
        before = None if last is None else self._compaction(last.placed.compaction)
        if last is not None and before is not None:
            self._compactions = (last, before)
            self._before, self._needed = before.placed.slot, last.needed | before.needed
        self._judged = newest  # not before: a store that does not answer is asked again

    def _compaction(self, slot: int | None) -> Compaction | None:
        entry = None if slot is None else self._read(slot)
        return entry if isinstance(entry, Compaction) else None

    def _read(self, slot: int) -> Entry | None:
        try:
            return self.log.read(slot)
        except (NotFound, CheckpointCorrupt):
            return None

    def _delete(self, slot: int) -> int:
        """Delete the entry in a slot if it may go, and with a Release the Takeover after it."""
        entry = self._read(slot)  # what cannot be read stays
        if entry is None or slot in self._needed or entry.kind not in _DELETED:
            return 0
        saves = (ref.slot for compaction in self._compactions for ref in compaction.saves.values())
        if isinstance(entry, Restore) and entry.truncate and min(saves, default=slot) < slot:
            return 0  # it says that rows of what was saved before it are in their tables no more
        slots = [slot]
        if isinstance(entry, Takeover) and not self._follows_a_milestone_release(slot):
            return 0
        if isinstance(entry, Release) and isinstance(self._read(slot + 1), Takeover):
            if slot + 1 in self._needed:
                return 0  # together, later
            if self.log.slots.expendable(slot + 1, self.log.seen):
                slots.insert(0, slot + 1)
        for number in slots:
            self.log.store.delete(self.log.path(number))
        return len(slots)
