"""The log of one job: numbered slots, each written once, never changed, never moved (DESIGN 4).

A log whose driver died while batch 1 was computed, and that a second driver resumed::

    log/000000000000  takeover  epoch 1, writer 5f0c...
    log/000000000001  offsets   batch 0: rows 0 to 3 of departures
    log/000000000002  commit    batch 0: state, staged files, verdicts, counts
    log/000000000003  offsets   batch 1: rows 3 to 6
    log/000000000004  takeover  epoch 2, writer a41e...       the first driver is fenced from here on
    log/000000000005  commit    batch 1: of the rows that slot 3 fixed
    log/000000000006  release   published: hourly_delays up to batch 1

Write order of batch N. Each step begins when the one before it is durable:

1. The driver appends Offsets N.
2. Tasks write and sync state and staged files, under names of their own.
3. The driver appends Commit N, which names them.
4. The sinks publish the staged files.
5. The driver acknowledges sources, and deletes what no kept Commit names.

So the newest entry alone says what a crash has left to do, and files that no Commit names are no state.

Only the writer of the newest Takeover may append, and always to the next slot, by exclusive create.
That is the whole fencing: a driver that slept through a takeover finds a Takeover in the very slot it is about to use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

from penstock.checkpoint.log.entries import (
    Compaction,
    Entry,
    Moved,
    Place,
    Release,
    Save,
    Takeover,
    Unsave,
    Void,
    from_bytes,
    kind_of,
    to_bytes,
)
from penstock.checkpoint.storage.exclusive_create import ReadBack, create_or_read
from penstock.checkpoint.storage.numbered_files import Sequence
from penstock.checkpoint.storage.store import CheckpointStore, corrupt
from penstock.errors import (
    CheckpointCorrupt,
    CommitUnknown,
    EntryRefused,
    Fenced,
    FormatTooNew,
    LogGap,
    NotFound,
    PenstockError,
    SlotTaken,
    StorageDenied,
    StorageFull,
)

STRIDE = 4_096
"""Every so many slots one is never purged; a part of the format. Tests use less."""

Appended = TypeVar("Appended", bound=Entry)

_SEARCHES = 3
_NAMED = 20


class Log:
    """The slots `log/000000000000`, `log/000000000001`, … of a store.

    `seen` is the highest slot this object knows to be in use; -1 before it has looked.
    """

    def __init__(self, store: CheckpointStore, *, read_back: ReadBack = ReadBack.SKIP, stride: int = STRIDE) -> None:
        self.store = store
        self.slots = Sequence(store, "log", (stride,))
        self.seen = -1
        self._read_back = read_back

    def path(self, slot: int) -> str:
        """Return the path of a slot."""
        return self.slots.path(slot)

    def find_tail(self) -> int:
        """Return the last slot in use by existence alone, -1 when the log is empty."""
        tail = self.slots.find_tail(self.seen)
        self.seen = max(self.seen, tail)
        return tail

    def tail(self) -> int:
        """Return the last slot in use, after asking a listing whether an entry before it is missing (F16).

        The search by existence takes a missing entry for the end, and an append there would hide the loss. Entries
        that go missing before the last one that this object has seen are for the next process to find.
        Raises `LogGap` naming the missing slots. A stale listing (F29) at worst fails to notice.
        """
        tail = self.find_tail()
        newest = max(self.slots.listed(), default=-1)
        for _ in range(_SEARCHES):
            if newest <= tail or not self.slots.exists(newest):
                return tail
            tail = self.find_tail()
            if newest > tail and (missing := self.slots.gaps(newest)):
                raise gap(missing, self.path(missing[0]), newest=newest)
        return tail

    def read(self, slot: int) -> Entry:
        """Return the entry in a slot.

        Raises `NotFound`, `CheckpointCorrupt` (also for an entry that was copied from another slot) and
        `FormatTooNew`.
        """
        return self._entry(slot, self.store.read(self.path(slot)))

    def kind_at(self, slot: int) -> str | None:
        """Return what kind of entry is in a slot that `read` says is damaged, None if that is unknown."""
        try:
            return kind_of(self.store.read(self.path(slot)), slot, self.path(slot))
        except NotFound:
            return None

    def entries_back(self, from_slot: int) -> Iterator[tuple[int, Entry]]:
        """Yield slots and entries from a slot backwards, until one is not there (purged, or before the first).

        Passes over entries that a Void met on the way has given up; raises `CheckpointCorrupt` at others with damage.
        """
        given_up: set[int] = set()
        for slot in range(from_slot, -1, -1):
            if slot in given_up:
                continue
            try:
                entry = self.read(slot)
            except NotFound:
                return
            if isinstance(entry, Void):
                given_up.add(entry.slot)
            yield slot, entry

    def append_at(self, slot: int, entry: Entry) -> None:
        """Put an entry into a slot, or raise `SlotTaken` with the `holder`, the entry in it.

        The entry's own bytes, found there after a lost acknowledgement, count as success (F23).
        Raises `CheckpointCorrupt` when the entry there cannot be read, `CommitUnknown` when it is unknown whose entry
        has the slot, and what the store raises when nothing was written.
        """
        if entry.place is None:
            entry = entry.model_copy(update={"place": Place(slot=slot)})
        if entry.place is None or entry.place.slot != slot:
            raise EntryRefused("an entry belongs to one slot", where=self.path(slot))
        data, path = to_bytes(entry), self.path(slot)
        stored = create_or_read(self.store, path, data, self._read_back)
        if stored != data:
            holder = self._entry(slot, stored)  # not read again: it may have been purged since
            raise SlotTaken(f"slot {slot} holds another entry", where=path, slot=slot, holder=holder)
        self.seen = max(self.seen, slot)

    def _entry(self, slot: int, data: bytes) -> Entry:
        path = self.path(slot)
        entry = from_bytes(data, path)
        if entry.place is None or entry.place.slot != slot:
            raise corrupt(path, "an entry of another slot")
        return entry


class OwnedLog:
    """The log in the hands of the driver whose Takeover is confirmed; `takeover.confirm` makes it."""

    def __init__(self, log: Log, takeover: Takeover) -> None:
        if takeover.place is None:
            raise EntryRefused("a Takeover that stands in no slot owns nothing")
        self.log = log
        self.takeover = takeover
        self.epoch = takeover.epoch
        self.writer = takeover.writer
        self._at = takeover.place.slot
        self._saves = takeover.place.saves
        self._compaction = takeover.place.compaction
        self._next = self._at + 1
        self._doubtful: Entry | None = None
        self._lost: PenstockError | None = None
        self.not_compacted = -1
        """The next slot when damage last kept the log from being compacted, -1 where it never did."""

    @property
    def takeover_slot(self) -> int:
        """Return the slot of the Takeover that the log is owned by."""
        return self._at

    @property
    def compaction(self) -> int | None:
        """Return the slot of the newest Compaction, None before the first."""
        return self._compaction

    @property
    def next_slot(self) -> int:
        """Return the slot that the next entry goes to."""
        return self._next

    def append(self, entry: Appended) -> Appended:
        """Append an entry of this epoch and writer, and return it with its `place`.

        A Save pins a Commit that was returned here or recovered, so that the Commit knows its Takeover.

        Raises `Fenced`, with `epoch_mine`, `epoch_seen` and `holder`, when another driver took over; it stays so.
        Raises `CheckpointCorrupt` when anything else is in the slot.
        After `CommitUnknown`, or any failure whose outcome is open, only the same entry is accepted again.
        """
        if (entry.epoch, entry.writer) != (self.epoch, self.writer) or entry.kind == "takeover":
            raise EntryRefused("only entries of the owner's own epoch can be appended", where=self.log.path(self._next))
        if isinstance(entry, Save) and entry.commit.place is None:
            raise EntryRefused("a Save pins a Commit of the log, not one that was never appended")
        if self._lost is not None:
            raise self._lost
        slot = self._next
        place = Place(slot=slot, takeover=self._at, saves=self._saves, compaction=self._compaction)
        placed = cast("Appended", entry.model_copy(update={"place": place}))
        if self._doubtful is not None and placed != self._doubtful:
            problem = f"whether the {self._doubtful.kind} entry was written is not known; no other may take its slot"
            raise CommitUnknown(problem, where=self.log.path(slot), path=self.log.path(slot))
        self._put(slot, placed)
        self._next = slot + 1
        if isinstance(entry, Compaction):
            self._saves, self._compaction = {}, slot
        self._saves = saves_behind(self._saves, self._compaction, entry, slot)
        if isinstance(entry, Release):
            self._lost = EntryRefused("the log was released; take it over again to write", where=self.log.path(slot))
        if isinstance(entry, Moved):
            self._lost = EntryRefused("the log has ended", where=self.log.path(slot))
        return placed

    def refuse_lost(self) -> None:
        """Raise `Fenced` where another driver has taken the log over; costs one request to storage.

        For who publishes without an entry that stands for it: it asks right before.
        """
        if self._lost is not None:
            raise self._lost
        path = self.log.path(self._next)
        try:
            entry = self.log.read(self._next)
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


def saves_behind(saves: dict[str, int], compaction: int | None, entry: Entry, slot: int) -> dict[str, int]:
    """Return the slots of named checkpoints that an entry names which follows this one; none after a Compaction."""
    if compaction is not None:
        return {}
    if isinstance(entry, Save):
        return {**saves, entry.name: slot}
    if isinstance(entry, Unsave):
        return {name: known for name, known in saves.items() if name != entry.name}
    return saves


def fenced(path: str, mine: int, seen: int, holder: str) -> Fenced:
    """Make the error of a driver that has lost the log."""
    problem = f"epoch {mine} has lost the log to epoch {seen}, held by {holder}"
    return Fenced(problem, where=path, epoch_mine=mine, epoch_seen=seen, holder=holder)


def gap(missing: list[int], path: str, *, newest: int | None = None) -> LogGap:
    """Make the error for slots that are missing; it carries them as `missing`, and the last slot that is there."""
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return LogGap(f"slots {missing[:_NAMED]}{more} of the log are missing", where=path, missing=missing, newest=newest)


def read_takeover(log: Log, slot: int, epoch: int, writer: str) -> Takeover:
    """Return the Takeover that entries name as their owner's, or raise `CheckpointCorrupt` when it is not that."""
    try:
        entry = log.read(slot)
    except NotFound:
        raise corrupt(log.path(slot), "the Takeover that later entries stand on is missing") from None
    if not isinstance(entry, Takeover) or (entry.epoch, entry.writer) != (epoch, writer):
        raise corrupt(log.path(slot), f"not the Takeover of epoch {epoch}")
    return entry
