"""Entries and a small driver without Spark, for the tests of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.log.compaction import compact
from penstock.checkpoint.log.entries import Commit, Offsets, Release, Restore, Save, Takeover, Void
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.purge import Purge
from penstock.checkpoint.log.recovery import Recovered, recover
from penstock.checkpoint.log.scan import Damaged
from penstock.checkpoint.log.takeover import claim, confirm, survey
from penstock.checkpoint.storage.memory import MemoryStore

COMPACT_EVERY = 7
"""Slots from one Compaction to the next."""


def takeover(epoch: int = 1, writer: str = "w1", **other: Any) -> Takeover:
    """Return a Takeover of host `host-<writer>`."""
    fields = {"generation": 1, "holder": f"host-{writer}", "code_version": "abc", "partitions": {"hourly": 8}}
    return Takeover(epoch=epoch, writer=writer, **fields | other)


def offsets(batch: int, epoch: int = 1, writer: str = "w1", **other: Any) -> Offsets:
    """Return Offsets whose range is the batch itself."""
    fields = {
        "time": batch * 1_000_000,
        "ranges": {"orders": {"start": batch, "end": batch + 1}},
        "watermarks": {},
        "limits": {},
        "settings": {},
    }
    return Offsets(epoch=epoch, writer=writer, batch=batch, **fields | other)


def commit(batch: int, epoch: int = 1, writer: str = "w1", floor: int = 0, **other: Any) -> Commit:
    """Return a Commit that says next to nothing."""
    names = ("state", "staged", "held", "sources", "watermarks_out", "due", "accounting", "timings", "published")
    fields: dict[str, Any] = {name: {} for name in names} | {"verdicts": [], "time": batch * 1_000_000}
    return Commit(epoch=epoch, writer=writer, batch=batch, floor=floor, **fields | other)


def own(log: Log, writer: str = "w1", **other: Any) -> OwnedLog:
    """Take the log over, or fail."""
    view = survey(log)
    slot = claim(log, view, takeover(view.next_epoch, writer, **other))
    assert slot is not None
    return confirm(log, slot)


def run_batch(owned: OwnedLog, batch: int, floor: int = 0) -> Commit:
    """Append the Offsets and the Commit of a batch."""
    owned.append(offsets(batch, owned.epoch, owned.writer))
    return owned.append(commit(batch, owned.epoch, owned.writer, floor=floor))


def saved_as(name: str, commit: Commit) -> Save:
    """Return the entry that names a Commit."""
    return Save(epoch=1, writer="w1", name=name, commit=commit)


def leave(owned: OwnedLog) -> None:
    """Append a Release."""
    owned.append(Release(epoch=owned.epoch, writer=owned.writer, reason="done"))


def purge(log: Log, owned: OwnedLog, *, compact_every: int = 0) -> int:
    """Append two Compactions where they are due, and delete all that may go by them; return how much that is."""
    for _ in range(2):
        compact(log, owned, every=compact_every)
    return Purge(log).run(owned.compaction, at_most=1_000_000)


def void(lost: Damaged, owned: OwnedLog) -> Void:
    """Return the entry that gives a damaged one up."""
    return Void(epoch=owned.epoch, writer=owned.writer, slot=lost.slot, reason=lost.reason, batch=lost.batch)


@dataclass
class Driver:
    """A driver loop: takes over, gives up what is torn, finishes what is pending, runs batches, purges after each.

    `start` returns False when it was beaten to the slot. `run` yields after each durable step.
    """

    log: Log
    writer: str
    keep: int = 2
    owned: OwnedLog | None = None
    at_start: Recovered | None = None

    def start(self) -> bool:
        """Survey, claim, confirm."""
        view = survey(self.log)
        slot = claim(self.log, view, takeover(view.next_epoch, self.writer))
        if slot is None:
            return False
        self.owned = confirm(self.log, slot)
        return True

    def run(self, batches: int = 0, *, until: int | None = None) -> Iterator[str]:
        """Recover and run so many batches, or those before `until`; a pending one first."""
        owned = self.owned
        assert owned is not None
        self.at_start = recover(self.log)
        for lost in self.at_start.damaged:
            owned.append(void(lost, owned))
            yield "void"
        pending, batch, floor = self.at_start.pending, self.at_start.next_batch, self.at_start.floor
        purge = Purge(self.log)
        for _ in range(batches if until is None else until - batch):
            if pending is None:
                owned.append(offsets(batch, owned.epoch, owned.writer))
                yield "offsets"
            floor = max(floor, batch - self.keep + 1)
            owned.append(commit(batch, owned.epoch, owned.writer, floor=floor))
            yield "commit"
            if compact(self.log, owned, every=COMPACT_EVERY) is not None:
                yield "compaction"
            purge.run(owned.compaction)
            yield "purge"
            pending, batch = None, batch + 1


def restore_entry(owned: OwnedLog, **fields: Any) -> Restore:
    """Return a Restore; to a batch unless told otherwise."""
    asked: dict[str, Any] = {"batch": None, "source": "batch", "saved": None, "partitions": None}
    return Restore(epoch=owned.epoch, writer=owned.writer, **asked | fields)


def restored(log: Log, writer: str = "cli", **fields: Any) -> None:
    """Do what `penstock restore` does."""
    owned = own(log, writer)
    owned.append(restore_entry(owned, **fields))
    leave(owned)


def job(batches: int = 3, stride: int = 4_096) -> tuple[MemoryStore, Log, OwnedLog]:
    """Return a log with some batches."""
    store = MemoryStore()
    log = Log(store, stride=stride)
    owned = own(log)
    for batch in range(batches):
        run_batch(owned, batch)
    return store, log, owned


def overwrite(store: MemoryStore, path: str, data: bytes) -> None:
    """Damage a file."""
    store.delete(path)
    store.create(path, data)


def batches(recovered: Recovered) -> list[int]:
    """Return the batches that can be restored."""
    return [kept.batch for kept in recovered.kept]
