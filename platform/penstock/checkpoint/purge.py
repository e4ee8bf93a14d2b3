"""Delete what no restart and no restore can need any more from a log (DESIGN 4, stage c6).

Only Offsets and Commits are ever deleted: below the floor of a Commit that is in the log, before the newest milestone,
oldest first. Takeovers, Saves, Restores, Voids and Releases stay; they are few, and others point at them.
The rules look at entries that never change, so a purge may be repeated, broken off, or run late by a fenced driver.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.checkpoint.entries import Commit, Offsets
from penstock.checkpoint.log import Log
from penstock.errors import CheckpointCorrupt, EntryRefused, NotFound

AT_MOST = 256
"""Entries that one call looks at: a bounded share of a batch, also when a milestone frees thousands at once."""

_JUDGED_PER_STRIDE = 64


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
    _below: int = 0
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
            if not self._todo:
                break
            batch = self._batch(self._todo[0])
            if batch is not None:
                if batch >= floor_batch or not self._allowed(batch):
                    break
                self.log.store.delete(self.log.path(self._todo[0]))
                deleted += 1
            self._todo.popleft()
        return deleted

    def _list(self) -> None:
        """Look for entries once for each milestone; one that a stale listing leaves out waits for the next (F29)."""
        log = self.log
        seen = log.seen if log.seen >= 0 else log.find_tail()
        milestone = seen - seen % log.slots.strides[0]
        if milestone > self._listed_for:
            self._todo = deque(slot for slot in log.slots.listed() if log.slots.expendable(slot, seen))
            self._listed_for = milestone

    def _batch(self, slot: int) -> int | None:
        """Return the batch of an entry that may go; None for one that stays, is gone, or cannot be read."""
        try:
            entry = self.log.read(slot)
        except (NotFound, CheckpointCorrupt):
            return None
        return entry.batch if isinstance(entry, Offsets | Commit) else None

    def _allowed(self, batch: int) -> bool:
        seen, patience = self.log.seen, self.log.slots.strides[0] // _JUDGED_PER_STRIDE
        if batch >= self._below and (self._judged_at < 0 or seen - self._judged_at >= patience):
            self._below = max(self._below, self._judge())
            self._judged_at = seen
        return batch < self._below

    def _judge(self) -> int:
        """Return the batch below which all may go: a Commit at or below the floor, with `keep` from it to the newest.

        Not the floor itself, which may be an id without a Commit: recovery reads back to a Commit at or below it.
        0 when there is none such.
        """
        floor, commits = 0, 0
        try:
            for _, entry in self.log.entries_back(self.log.seen):
                if isinstance(entry, Commit):
                    commits += 1
                    floor = max(floor, entry.floor)
                    if commits >= self.keep and entry.batch <= floor:
                        return entry.batch
        except CheckpointCorrupt:
            pass  # a log with damage is not made smaller
        return 0


def purge(log: Log, floor_batch: int, keep: int, *, at_most: int = AT_MOST) -> int:
    """Purge once, with nothing remembered between calls; a driver keeps a `Purge` instead."""
    return Purge(log, keep).run(floor_batch, at_most=at_most)
