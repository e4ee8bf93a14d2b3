"""Keep the records of streams, and of who supervises, in the control root: each one follows from the one before it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pydantic import ValidationError

from penstock.checkpoint.control_records import NumberedRecord, Records
from penstock.checkpoint.log.entries import Record
from penstock.checkpoint.storage.store import CheckpointStore, corrupt
from penstock.errors import CheckpointCorrupt, CommitUnknown, StorageUnavailable
from penstock.supervise.stream import Stream

__all__ = ["Lease", "LeaseRecords", "LeaseWatch", "StreamRecords", "supervised_jobs"]

_KEEP = 100
"""Old records that are kept: the history of a stream."""
_TRIES = 100
_KIND = "streams"
Answer = TypeVar("Answer")


class StreamRecords:
    """The records of one stream; `store` is that of the folder which holds all jobs."""

    def __init__(self, store: CheckpointStore, job: str) -> None:
        self._records = Records(store, _KIND, job)
        self._job = job

    def newest(self) -> Stream:
        """Return the stream's newest record; a stream without any is stopped."""
        record = self._records.newest()
        return Stream() if record is None else self._read(record)

    def history(self) -> list[tuple[int, Stream]]:
        """Return the kept records that can be read, oldest first, with their numbers."""
        known = []
        for record in self._records.kept():
            with suppress(CheckpointCorrupt):
                known.append((record.seq, self._read(record)))
        return known

    def number(self) -> int:
        """Return the number of the newest record, -1 where there is none: it grows with each change."""
        return self._records.tail()

    def update(self, change: Callable[[Stream], tuple[Stream, Answer]]) -> tuple[Stream, Answer]:
        """Write what `change` makes of the newest record, calling it again as long as others are faster.

        Returns the newest record and the answer of `change`; nothing is written where it changes nothing. Raises
        CommitUnknown when it is unknown whether the record was written.
        """
        for _ in range(_TRIES):
            tail = self._records.tail()
            before = self.newest()
            after, answer = change(before)
            if after == before:
                return before, answer
            # What drivers of an older version do not know is said only where it means something.
            unsaid = {name for name in ("saves", "unsaves", "checks", "options") if not getattr(after, name)}
            body = after.model_dump(mode="json", exclude=unsaid)
            if self._records.put_after(tail, body):
                if (tail + 1) % _KEEP == 0:
                    with suppress(StorageUnavailable):  # the change is written; the next hundred tidy up
                        self._records.prune(_KEEP)
                return after, answer
        raise CommitUnknown("others kept writing the stream's record", where=self._job)

    def replace(self, before: Stream, after: Stream) -> bool:
        """Write `after` if `before` is still the newest record; return whether it was written."""
        wrote, is_current = self.update(lambda newest: (after, True) if newest == before else (newest, False))
        return is_current and wrote == after

    def _read(self, record: NumberedRecord) -> Stream:
        try:
            return Stream.model_validate_json(record.text())
        except ValidationError as why:
            path = f"_control/{_KIND}/{self._job}/{record.seq:012d}"
            raise corrupt(path, f"not a stream's record: {why.errors()[0]['msg']}") from None


def supervised_jobs(store: CheckpointStore) -> list[str]:
    """Return the jobs that have records, as a listing shows them."""
    parts = (path.split("/") for path in store.list(f"_control/{_KIND}"))
    return sorted({part[2] for part in parts if len(part) > 3})  # noqa: PLR2004 - _control/streams/JOB/NUMBER


class Lease(Record):
    """Who supervises: `writer` is a random id of the process, `at` its wall clock, `place` its host and process."""

    writer: str
    place: str
    at: int
    left: bool = False


class LeaseRecords:
    """The records of who supervises a control root."""

    def __init__(self, store: CheckpointStore) -> None:
        self._records = Records(store, "supervisor", "lease")

    def number(self) -> int:
        """Return the number of the newest record, -1 where nobody ever supervised."""
        return self._records.tail()

    def holder(self) -> Lease | None:
        """Return what the newest record says."""
        record = self._records.newest()
        try:
            return None if record is None else Lease.model_validate_json(record.text())
        except ValidationError as why:
            raise corrupt("_control/supervisor/lease", f"not a lease: {why.errors()[0]['msg']}") from None


class LeaseWatch(LeaseRecords):
    """Holds the lease of a control root, or stands by for it.

    The holder writes the next number again and again; who finds the number unmoved for `patience` seconds of the
    watcher's own clock writes it instead. A holder that finds its next number taken has lost the lease.
    Two who believe to hold it do no harm: each acts on a stream's record only after writing its next number.
    """

    def __init__(self, store: CheckpointStore, *, writer: str, place: str, patience: float) -> None:
        super().__init__(store)
        self._writer = writer
        self._place = place
        self._patience = patience
        self._held: int | None = None
        self._seen: tuple[int, float] | None = None

    def hold(self, *, wall: int, monotonic: float) -> bool:
        """Return whether this process supervises now; called every second or two."""
        if self._held is not None:
            return self._write(self._held, wall)
        tail = self._records.tail()
        if self._seen is None or self._seen[0] != tail:
            self._seen = (tail, monotonic)
        holder = self.holder()
        # Our own: storage failed after it was written.
        ours = holder is not None and holder.writer == self._writer
        if holder is not None and not (ours or holder.left) and monotonic - self._seen[1] < self._patience:
            return False
        return self._write(tail, wall)

    def leave(self, *, wall: int) -> None:
        """Give the lease back, so that a standby need not wait."""
        if self._held is not None:
            self._write(self._held, wall, left=True)
            self._held = None

    def _write(self, after: int, wall: int, *, left: bool = False) -> bool:
        lease = Lease(writer=self._writer, place=self._place, at=wall, left=left)
        if not self._records.put_after(after, lease.model_dump(mode="json")):
            self._held, self._seen = None, None
            holder = self.holder()
            if holder is None or holder.writer != self._writer or holder.left or left:
                return False
            after = self._records.tail() - 1  # storage failed after it was written, and nobody else has come
        self._held = after + 1
        if self._held % _KEEP == 0:
            with suppress(StorageUnavailable):
                self._records.prune()
        return True
