"""Keep small numbered records beside the checkpoints: status, heartbeats, commands, desired state.

`_control/<kind>/<job>/<seq>`: each put makes the next number by exclusive create, and the newest that can be read is
in force. The store is that of the folder that holds all jobs.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint import format as fileformat
from penstock.checkpoint.sequence import Sequence
from penstock.checkpoint.settle import ReadBack, settle
from penstock.checkpoint.store import CheckpointStore, corrupt
from penstock.errors import CheckpointCorrupt, CommitUnknown, NotFound

STRIDES = (64, 4_096, 262_144)
"""A record every five seconds for a year leaves some two hundred files; a part of the format."""

_TRIES = 1_000


@dataclass(frozen=True, slots=True)
class NumberedRecord:
    """A record and its number."""

    seq: int
    body: dict[str, Any]


class Records:
    """The records of one kind for one job."""

    def __init__(
        self,
        store: CheckpointStore,
        kind: str,
        job: str,
        *,
        read_back: ReadBack = ReadBack.SKIP,
        strides: tuple[int, ...] = STRIDES,
    ) -> None:
        self._store = store
        self._kind = kind
        self._records = Sequence(store, f"_control/{kind}/{job}", strides)
        self._read_back = read_back
        self._next = 0

    def put(self, body: dict[str, Any]) -> int:
        """Add a record of JSON values and return its number.

        Others may put at the same time: each gets a number of its own, and none is lost.
        Raises `CommitUnknown` when it cannot be told whether the record was written.
        """
        for _ in range(_TRIES):
            seq = self._next or self._records.find_tail() + 1
            data = fileformat.encode(self._kind, {"seq": seq, "id": secrets.token_hex(16), "body": body})
            mine = settle(self._store, self._records.path(seq), data, self._read_back) == data
            if mine and not self._records.in_hole(seq):
                self._next = seq + 1
                return seq
            # Others were faster by one, or by so many that this number had been pruned: then nobody would look there.
            self._next = 0
        raise CommitUnknown("others kept taking the next number", where=self._records.folder)

    def newest(self) -> NumberedRecord | None:
        """Return the newest record that can be read, None when there is none; a damaged one is passed over."""
        seq = self._records.find_tail()
        while seq >= 0:
            try:
                return NumberedRecord(seq, self._read(seq))
            except CheckpointCorrupt:
                seq -= 1
            except NotFound:
                break
        return None

    def prune(self, keep: int = 1) -> int:
        """Delete old records except the newest `keep` and those that the search needs; return how many."""
        tail = self._records.find_tail()
        old = [seq for seq in self._records.listed() if seq <= tail - keep and self._records.expendable(seq, tail)]
        for seq in old:
            self._store.delete(self._records.path(seq))
        return len(old)

    def _read(self, seq: int) -> dict[str, Any]:
        path = self._records.path(seq)
        _, record = fileformat.decode(self._store.read(path), kind=self._kind, path=path)
        body = record.get("body")
        if record.get("seq") != seq or not isinstance(body, dict):
            raise corrupt(path, "a record of another number")
        return body
