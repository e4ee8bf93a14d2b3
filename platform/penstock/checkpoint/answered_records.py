"""Leave requests for the driver of a job, and read its answers: numbered records that both sides put.

A request has an id under a word of its kind. The answer is a record with that id as `answer`: what was done, or the
error as `code`, `what` and `where`. Two records with one id are one request.
Imports nothing that is slow to load.
"""

from __future__ import annotations

import secrets
from typing import Any

from penstock.checkpoint.control_records import NumberedRecord, Records, error_body, error_in
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import PenstockError

__all__ = ["AnsweredRecords", "new_id"]


def new_id() -> str:
    """Return an id that no other request has."""
    return secrets.token_hex(16)


class AnsweredRecords:
    """The records of one kind for one job; `keep` of them are kept, and looked at."""

    def __init__(self, store: CheckpointStore, kind: str, job: str, *, keep: int) -> None:
        self._records = Records(store, kind, job)
        self._keep = keep

    def request(self, body: dict[str, Any]) -> None:
        """Add a request; old records are deleted now and then."""
        number = self._records.put(body)
        if number % self._keep == 0:
            self._records.prune(self._keep)

    def reply(self, request: str, outcome: dict[str, Any] | PenstockError) -> None:
        """Answer the request of this id, by what was done or by an error."""
        if isinstance(outcome, PenstockError):
            outcome = error_body(outcome)
        self._records.put({"answer": request, **outcome})

    def answer(self, request: str) -> dict[str, Any] | None:
        """Return the newest answer to a request, None while there is none; raises the error in it."""
        for body in self.bodies()[::-1]:
            if body.get("answer") == request:
                if "code" in body:
                    raise error_in(body)
                return body
        return None

    def tail(self) -> int:
        """Return the number of the newest record, by which one sees whether something is new; -1 without any."""
        return self._records.tail()

    def bodies(self) -> list[dict[str, Any]]:
        """Return the newest records, oldest first."""
        return [record.body for record in self.recent()]

    def recent(self) -> list[NumberedRecord]:
        """Return the newest records with their numbers, oldest first."""
        return self._records.recent(self._keep)

    def damaged(self) -> list[int]:
        """Return the numbers of the records that cannot be read, oldest first: each may be a request or an answer."""
        return self._records.damaged(self._keep)

    def place(self, seq: int) -> str:
        """Return where the record of a number is, as people are shown it."""
        return self._records.place(seq)
