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

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256

from penstock.checkpoint.log.entries import Entry, Place, Takeover, Void, from_bytes, kind_of, to_bytes
from penstock.checkpoint.storage.numbered_files import Sequence
from penstock.checkpoint.storage.store import CheckpointStore, corrupt, create_or_read
from penstock.errors import CheckpointCorrupt, EntryRefused, LogGap, NotFound, SlotTaken

STRIDE = 4_096
"""Every so many slots one is never purged; a part of the format. Tests use less."""

_SEARCHES = 3
_NAMED = 20
_REMEMBERED, _BYTES = 256, 16 * 2**20
"""Entries of its own that a log need not parse again, and the bytes of their files that they may have together.

Two Compactions apart stand 130, and what is kept is beside. An entry may have 64 MiB, and takes more in memory.
"""


class Log:
    """The slots `log/000000000000`, `log/000000000001`, … of a store.

    `seen` is the highest slot this object knows to be in use; -1 before it has looked.
    """

    def __init__(self, store: CheckpointStore, *, stride: int = STRIDE) -> None:
        self.store = store
        self.slots = Sequence(store, "log", (stride,))
        self.seen = -1
        self._written: OrderedDict[int, tuple[bytes, int, Entry]] = OrderedDict()
        """What this object appended last, by slot, with the digests and the bytes of the files."""

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
        with suppress(NotFound, CheckpointCorrupt):  # a folder has no bytes that would tell
            return kind_of(self.store.read(self.path(slot)), slot, self.path(slot))
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
        if entry.placed.slot != slot:
            raise EntryRefused("an entry belongs to one slot", where=self.path(slot))
        data, path = to_bytes(entry), self.path(slot)
        stored = create_or_read(self.store, path, data)
        if stored != data:
            holder = self._entry(slot, stored)  # not read again: it may have been purged since
            raise SlotTaken(f"slot {slot} holds another entry", where=path, slot=slot, holder=holder)
        self.seen = max(self.seen, slot)
        self._written[slot] = (sha256(data).digest(), len(data), entry)
        while len(self._written) > _REMEMBERED or sum(size for _, size, _ in self._written.values()) > _BYTES:
            self._written.popitem(last=False)

    def _entry(self, slot: int, data: bytes) -> Entry:
        path = self.path(slot)
        digest, _, written = self._written.get(slot, (b"", 0, None))
        if written is not None and digest == sha256(data).digest():
            return written  # read, so that damage shows, but not parsed: 2 ms for the verdicts of one batch
        entry = from_bytes(data, path)
        if entry.placed.slot != slot:
            raise corrupt(path, "an entry of another slot")
        return entry


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
