"""Delete what no restart and no restore can need any more from a log (DESIGN 4, stage c6).

Only Offsets and Commits are ever deleted: below the floor of a Commit that is in the log, before the newest milestone,
oldest first. Takeovers, Saves, Restores, Voids and Releases stay; they are few, and others point at them.
The rules look at entries that never change, so a purge may be repeated, broken off, or run late by a fenced driver.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.checkpoint.entries import Commit, Offsets
from penstock.checkpoint.format import read_header
from penstock.checkpoint.log import Log
from penstock.errors import CheckpointCorrupt, EntryRefused, NotFound

AT_MOST = 32
"""Entries that one call looks at: a bounded share of a batch, also when a milestone frees thousands at once.
A batch adds two, so a purge always catches up."""

_JUDGED_PER_STRIDE = 64
_DELETED = {"offsets", "commit"}


@dataclass(slots=True)
class Purge:
    """The purge of one log, kept between batches so that most calls ask the store nothing.

    The newest `keep` Commits are never touched, whatever the floor says.
    What it remembers is found again after a restart. Not for use by several threads.
    """

    log: Log
    keep: int
    _todo: deque[int] = field(default_factory=deque)
    _listed_for: int = 0
    _limit: int = 0
    _judged_at: int = -1

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise EntryRefused("a log keeps at least one Commit")

    def run(self, floor_batch: int, *, at_most: int = AT_MOST) -> int:
        """Delete entries of batches before `floor_batch`, oldest first, and return how many.

        Never passes the floor that the newest Commit in the log states.
        """
        self._list()
        deleted = 0
        for _ in range(at_most):
            if not self._todo or not self._allowed(self._todo[0], floor_batch):
                break
            slot = self._todo[0]
            if self._may_go(slot):
                self.log.store.delete(self.log.path(slot))
                deleted += 1
            self._todo.popleft()  # not before: what could not be deleted is tried again
        return deleted

    def _list(self) -> None:
        """Look for entries once for each milestone; one that a stale listing leaves out waits for the next (F29)."""
        log = self.log
        seen = log.seen if log.seen >= 0 else log.find_tail()
        milestone = seen - seen % log.slots.strides[0]
        if milestone > self._listed_for:
            self._todo = deque(slot for slot in log.slots.listed() if log.slots.expendable(slot, seen))
            self._listed_for = milestone

    def _may_go(self, slot: int) -> bool:
        """Say whether Offsets or a Commit stand in the slot; what cannot be read stays."""
        path = self.log.path(slot)
        try:
            return read_header(self.log.store.read(path), path)["kind"] in _DELETED
        except (NotFound, CheckpointCorrupt):
            return False

    def _allowed(self, slot: int, floor_batch: int) -> bool:
        seen, patience = self.log.seen, self.log.slots.strides[0] // _JUDGED_PER_STRIDE
        if slot >= self._limit and (self._judged_at < 0 or seen - self._judged_at >= patience):
            self._limit = max(self._limit, self._judge(floor_batch))
            self._judged_at = seen
        return slot < self._limit

    def _judge(self, floor_batch: int) -> int:
        """Return the slot before which all Offsets and Commits may go; 0 when that cannot be told.

        It is that of the Offsets of a batch that has a Commit, is at or below the floor, and is not among the newest
        `keep`. Not the floor itself, which may be an id without a Commit: recovery reads back to a Commit.
        """
        floor, commits, oldest = 0, 0, -1
        try:
            for slot, entry in self.log.entries_back(self.log.seen):
                if isinstance(entry, Commit) and oldest < 0:
                    commits += 1
                    floor = max(floor, entry.floor)
                    if commits >= self.keep and entry.batch <= min(floor, floor_batch):
                        oldest = entry.batch
                elif isinstance(entry, Offsets) and entry.batch == oldest:
                    return slot
        except CheckpointCorrupt:
            pass  # a log with damage is not made smaller
        return 0


def purge(log: Log, floor_batch: int, keep: int, *, at_most: int = AT_MOST) -> int:
    """Purge once, with nothing remembered between calls; a driver keeps a `Purge` instead."""
    return Purge(log, keep).run(floor_batch, at_most=at_most)
