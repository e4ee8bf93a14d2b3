"""Let only the newest owner write: the log in the hands of the driver whose Takeover is confirmed (DESIGN 3, 4).

An owner appends to the next slot, by exclusive create. Where another driver has taken the log over, its Takeover is in
that very slot: the create fails, and the owner is fenced for good.
"""

from __future__ import annotations

from typing import TypeVar, cast

from penstock.checkpoint.log.entries import Compaction, Entry, Moved, Place, Release, Save, Takeover, Unsave
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import (
    CheckpointCorrupt,
    CommitUnknown,
    EntryRefused,
    Fenced,
    FormatTooNew,
    NotFound,
    PenstockError,
    SlotTaken,
    StorageDenied,
    StorageFull,
)

__all__ = ["OwnedLog", "fenced", "place_after"]

Appended = TypeVar("Appended", bound=Entry)


class OwnedLog:
    """The log in the hands of the driver whose Takeover is confirmed; `takeover.confirm` makes it."""

    def __init__(self, log: Log, takeover: Takeover) -> None:
        if takeover.place is None:
            raise EntryRefused("a Takeover without a slot owns nothing")
        self.log = log
        self.takeover = takeover
        self.epoch = takeover.epoch
        self.writer = takeover.writer
        self.takeover_slot = takeover.place.slot
        self._next = place_after(takeover)
        self._doubtful: Entry | None = None
        self._lost: PenstockError | None = None
        self.not_compacted = -1
        """The next slot when damage last kept the log from being compacted, -1 where it never did."""

    @property
    def next_slot(self) -> int:
        """The slot that the next entry goes to."""
        return self._next.slot

    @property
    def compaction(self) -> int | None:
        """The slot of the newest Compaction, None before the first."""
        return self._next.compaction

    def append(self, entry: Appended) -> Appended:
        """Append an entry of this epoch and writer, and return it with its `place`.

        A Save pins a Commit that was returned here or recovered, so that the Commit knows its Takeover.

        Raises `Fenced`, with `epoch_mine`, `epoch_seen` and `holder`, when another driver took over; it stays so.
        Raises `CheckpointCorrupt` when anything else is in the slot.
        After `CommitUnknown`, or any failure whose outcome is open, only the same entry is accepted again.
        """
        slot, path = self.next_slot, self.log.path(self.next_slot)
        if (entry.epoch, entry.writer) != (self.epoch, self.writer) or entry.kind == "takeover":
            raise EntryRefused("only entries of the owner's own epoch can be appended", where=path)
        if isinstance(entry, Save) and entry.commit.place is None:
            raise EntryRefused("a Save pins a Commit of the log, not one that was never appended")
        if self._lost is not None:
            raise self._lost
        placed = cast("Appended", entry.model_copy(update={"place": self._next}))
        if self._doubtful is not None and placed != self._doubtful:
            problem = f"whether the {self._doubtful.kind} entry was written is not known; no other may take its slot"
            raise CommitUnknown(problem, where=path, path=path)
        self._put(slot, placed)
        self._next = place_after(placed)
        if isinstance(entry, Release):
            self._lost = EntryRefused("the log was released; take it over again to write", where=path)
        if isinstance(entry, Moved):
            self._lost = EntryRefused("the log has ended", where=path)
        return placed

    def refuse_lost(self) -> None:
        """Raise `Fenced` where another driver has taken the log over; costs one request to storage.

        For who publishes without an entry that stands for it: it asks right before.
        """
        if self._lost is not None:
            raise self._lost
        path = self.log.path(self.next_slot)
        try:
            entry = self.log.read(self.next_slot)
        except NotFound:
            return
        except (CheckpointCorrupt, FormatTooNew) as why:
            raise fenced(path, self.epoch, self.epoch + 1, "an entry that cannot be read") from why
        if entry != self._doubtful:
            self._lost = self._lost_to(path, entry)
            raise self._lost

    def _put(self, slot: int, entry: Entry) -> None:
        was_doubtful, self._doubtful = self._doubtful, entry
        path = self.log.path(slot)
        try:
            self.log.append_at(slot, entry)
        except SlotTaken as taken:
            self._lost = self._lost_to(path, cast("Entry", taken.fields["holder"]))
            raise self._lost from taken
        except FormatTooNew as error:  # not ours for certain, so by the protocol a Takeover
            self._lost = fenced(path, self.epoch, self.epoch + 1, "a later Penstock")
            raise self._lost from error
        except CheckpointCorrupt as error:
            self._lost = error
            raise
        except (StorageFull, StorageDenied, EntryRefused):  # certainly not written
            self._doubtful = was_doubtful
            raise
        self._doubtful = None

    def _lost_to(self, path: str, holder: Entry) -> PenstockError:
        if isinstance(holder, Takeover):
            return fenced(path, self.epoch, holder.epoch, holder.holder)
        return corrupt(path, f"a {holder.kind} entry of epoch {holder.epoch} in the owner's next slot")


def place_after(entry: Entry) -> Place:
    """Return the place of the entry that follows one of the log; savepoints are not in it after a Compaction."""
    place = entry.placed
    saves = dict(place.saves)
    if isinstance(entry, Save):
        saves[entry.name] = place.slot
    if isinstance(entry, Unsave):
        saves.pop(entry.name, None)
    compaction = place.slot if isinstance(entry, Compaction) else place.compaction
    return Place(
        slot=place.slot + 1,
        takeover=place.slot if isinstance(entry, Takeover) else place.takeover,
        saves=saves if compaction is None else {},
        compaction=compaction,
    )


def fenced(path: str, mine: int, seen: int, holder: str) -> Fenced:
    """Make the error of a driver that has lost the log."""
    problem = f"epoch {mine} has lost the log to epoch {seen}, held by {holder}"
    return Fenced(problem, where=path, epoch_mine=mine, epoch_seen=seen, holder=holder)
