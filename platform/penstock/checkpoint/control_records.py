"""Keep small numbered records beside the checkpoints: status, heartbeats, commands, desired state.

`_control/<kind>/<job>/<seq>`: each put makes the next number by exclusive create, and the newest that can be read is
in force. The store is that of the folder that holds all jobs.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock import errors
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.numbered_files import Sequence
from penstock.checkpoint.storage.store import CheckpointStore, corrupt, create_or_read
from penstock.errors import CheckpointCorrupt, CommitUnknown, NotFound, PenstockError, StorageUnavailable

STRIDES = (64, 4_096, 262_144)
"""A record every five seconds for a year leaves some two hundred files; a part of the format."""

_TRIES = 1_000


@dataclass(frozen=True, slots=True)
class NumberedRecord:
    """A record and its number."""

    seq: int
    body: dict[str, Any]

    def text(self) -> str:
        """Return the body as JSON, for models that read it strictly."""
        return json.dumps(self.body)


def error_body(error: PenstockError) -> dict[str, Any]:
    """Return what an answer says of an error: `code`, `what` and `where`."""
    return {"code": error.code, "what": error.what, "where": error.where}


def error_in(body: Mapping[str, Any]) -> PenstockError:
    """Return the error that an answer names; one of a code that this version does not know is a PenstockError."""
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError))
    kind: type[PenstockError] = {kind.code: kind for kind in kinds}.get(str(body["code"]), PenstockError)
    where = body.get("where")
    return kind(str(body["what"]), where=None if where is None else str(where))


class Records:
    """The records of one kind for one job."""

    def __init__(self, store: CheckpointStore, kind: str, job: str, *, strides: tuple[int, ...] = STRIDES) -> None:
        self._store = store
        self._kind = kind
        self._records = Sequence(store, f"_control/{kind}/{job}", strides)
        self._next = 0

    def put(self, body: dict[str, Any]) -> int:
        """Add a record of JSON values and return its number.

        Others may put at the same time: each gets a number of its own, and none is lost.
        Raises `CommitUnknown` when it is unknown whether the record was written.
        """
        for _ in range(_TRIES):
            seq = self._next or self._records.find_tail() + 1
            if self.put_after(seq - 1, body):
                self._next = seq + 1
                return seq
            # Others were faster by one, or by so many that this number had been pruned: then nobody would look there.
            self._next = 0
        raise CommitUnknown("others kept taking the next number", where=self._records.folder)

    def put_after(self, seq: int, body: dict[str, Any]) -> bool:
        """Add a record right after a number, or return False where another has come there since.

        So a record can follow from the one that was read: of all who read the same one, exactly one puts the next.
        Raises `CommitUnknown` when it is unknown whether the record was written.
        """
        data = fileformat.encode(self._kind, {"seq": seq + 1, "id": secrets.token_hex(16), "body": body})
        path = self._records.path(seq + 1)
        if create_or_read(self._store, path, data) != data:
            return False
        try:
            return not self._records.in_hole(seq + 1)
        except StorageUnavailable as why:
            raise CommitUnknown("whether the record is in force is unknown", where=path) from why

    def tail(self) -> int:
        """Return the number of the newest record, -1 where there is none."""
        return self._records.find_tail()

    def kept(self) -> list[NumberedRecord]:
        """Return the records that a listing shows and that can be read, oldest first."""
        return self._readable(self._records.listed())

    def recent(self, most: int) -> list[NumberedRecord]:
        """Return the newest records that can be read, at most so many, oldest first."""
        tail = self._records.find_tail()
        return self._readable(range(max(0, tail - most + 1), tail + 1))

    def damaged(self, most: int) -> list[int]:
        """Return the numbers of those among the newest `most` records that are damaged, oldest first."""
        tail = self._records.find_tail()
        numbers = []
        for seq in range(max(0, tail - most + 1), tail + 1):
            try:
                self._read(seq)
            except CheckpointCorrupt:
                numbers.append(seq)
            except NotFound:
                continue  # pruned
        return numbers

    def place(self, seq: int) -> str:
        """Return where the record of a number is, as people are shown it."""
        return f"{self._store.root}/{self._records.path(seq)}"

    def _readable(self, numbers: Iterable[int]) -> list[NumberedRecord]:
        records = []
        for seq in numbers:
            with suppress(CheckpointCorrupt, NotFound):
                records.append(self._read(seq))
        return records

    def newest(self) -> NumberedRecord | None:
        """Return the newest record that can be read, None when there is none; a damaged one is passed over.

        Raises `StorageUnavailable` where others put and prune faster than one can read.
        """
        for _ in range(_TRIES):
            tail = self._records.find_tail()
            for seq in range(tail, -1, -1):
                try:
                    return self._read(seq)
                except CheckpointCorrupt:
                    continue
                except NotFound:
                    break  # pruned: since the search, or before what is damaged was put
            if self._records.find_tail() == tail:
                return max(self.kept(), key=lambda record: record.seq, default=None)
        raise StorageUnavailable("records were pruned faster than they could be read", where=self._records.folder)

    def prune(self, keep: int = 1) -> int:
        """Delete old records except the newest `keep` and those that the search needs; return how many."""
        tail = self._records.find_tail()
        old = [seq for seq in self._records.listed() if seq <= tail - keep and self._records.expendable(seq, tail)]
        for seq in old:
            self._store.delete(self._records.path(seq))
        return len(old)

    def _read(self, seq: int) -> NumberedRecord:
        path = self._records.path(seq)
        _, record = fileformat.decode(self._store.read(path), kind=self._kind, path=path)
        body = record.get("body")
        if record.get("seq") != seq or not isinstance(body, dict):
            raise corrupt(path, "a record of another number")
        return NumberedRecord(seq, body)
