"""Ask the driver of a job to send quarantined rows through again, and learn what came of it (decision 134).

`<root>/_control/requeues/<job>/` has numbered records of two forms:

- a request: `{"request": ID, "source": NAME, "from_batch": N or null, "by": WHO}`, with `"unreadable": N` where records
  up to number N cannot be read, and `penstock requeue` has named them
- its answer, by the driver: `{"answer": ID, "batch": N or null, "rows": N}`, where `batch` is the last batch that took
  rows of it, or `{"answer": ID, "code": …, "what": …, "where": …}` for a request that cannot be carried out

A request stays until it is answered, so it waits for a driver as long as need be. Two with one id are one request.
One that cannot be read is named to everybody who looks, until somebody asks again (decision 139).
Imports nothing that is slow to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.answered_records import AnsweredRecords, new_id
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import PenstockError, RequeueRefused

__all__ = ["Requeue", "RequeueAnswer", "RequeueRequests"]

_KEEP = 256
"""Records that are kept, and looked at: more than people ask in an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """One request; `from_batch` is the first batch whose quarantine is sent, None for what was not sent yet.

    `doubt` says why nobody can tell whether it was answered, None where it was not.
    """

    id: str
    source: str
    from_batch: int | None = None
    doubt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueAnswer:
    """What the driver did: how many rows were sent, the last of them in `batch`, None for none."""

    rows: int
    batch: int | None


class RequeueRequests:
    """The requests for one job; `store` is that of the folder which holds all jobs."""

    def __init__(self, store: CheckpointStore, job: str) -> None:
        self._records = AnsweredRecords(store, "requeues", job, keep=_KEEP)
        self._seen: int | None = None
        self._open: list[Requeue] = []
        self._unreadable: list[str] = []

    def ask(self, source: str, *, from_batch: int | None, by: str, again: str | None = None) -> str:
        """Leave a request, and return its id; one that has the id `again` already is that request.

        Raises RequeueRefused where the id has asked for something else.
        """
        name = again or new_id()
        for record in self._records.bodies():
            if record.get("request") == name:
                if (record.get("source"), record.get("from_batch")) != (source, from_batch):
                    raise RequeueRefused(f"request {name!r} has asked for {record.get('source')!r} already")
                return name
        body: dict[str, Any] = {"request": name, "source": source, "from_batch": from_batch, "by": by}
        told = self._numbers_unreadable()
        self._records.request({**body, "unreadable": told[-1]} if told else body)
        return name

    def has(self, request: str) -> bool:
        """Return whether the id has asked for something already."""
        return any(record.get("request") == request for record in self._records.bodies())

    def answer(self, request: str) -> RequeueAnswer | None:
        """Return what became of a request, None while nothing has; raises the error in its answer."""
        body = self._records.answer(request)
        return None if body is None else RequeueAnswer(rows=int(body["rows"]), batch=body["batch"])

    def open(self) -> list[Requeue]:
        """Return the requests without an answer, oldest first; costs one look where nothing has changed."""
        self._look()
        return list(self._open)

    def unreadable(self) -> list[str]:
        """Return where the records are that cannot be read, and may be requests; costs one look where nothing changed.

        None before a later request, because `penstock requeue` has named them.
        """
        self._look()
        return list(self._unreadable)

    def _look(self) -> None:
        tail = self._records.tail()
        if tail != self._seen:
            records, damaged = self._records.recent(), max(self._records.damaged(), default=-1)
            answered = {record.body["answer"] for record in records if "answer" in record.body}
            read = (_request(record.body, record.seq, damaged) for record in reversed(records))
            asked = {known.id: known for known in read if known is not None}
            self._open = [known for known in reversed(asked.values()) if known.id not in answered]
            self._unreadable = [self._records.place(seq) for seq in self._numbers_unreadable()]
            self._seen = tail

    def _numbers_unreadable(self) -> list[int]:
        records = self._records.recent()
        senseless = [known.seq for known in records if "answer" not in known.body and _request(known.body) is None]
        told = [known.body["unreadable"] for known in records if type(known.body.get("unreadable")) is int]
        return sorted(seq for seq in (*self._records.damaged(), *senseless) if seq > max(told, default=-1))

    def reply(self, request: str, outcome: RequeueAnswer | PenstockError) -> None:
        """Answer a request, unless it was answered."""
        if isinstance(outcome, PenstockError):
            self._records.reply(request, outcome)
        elif self.answer(request) is None:
            self._records.reply(request, {"batch": outcome.batch, "rows": outcome.rows})


def _request(record: Mapping[str, Any], seq: int = 0, damaged: int = -1) -> Requeue | None:
    """Return the request in a record; None for a senseless record, which must not end a driver (F77).

    A record after it that is damaged may be its answer. To carry it out once more could send rows twice.
    """
    name, source, since = record.get("request"), record.get("source"), record.get("from_batch")
    if not (isinstance(name, str) and isinstance(source, str) and (since is None or type(since) is int)):
        return None
    doubt = (
        f"record {damaged} of the requests cannot be read, and may be the answer: ask again" if damaged > seq else None
    )
    return Requeue(id=name, source=source, from_batch=since, doubt=doubt)
