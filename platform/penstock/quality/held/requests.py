"""Ask the driver that runs to release or discard a held batch, and learn what came of it (SEMANTICS 9.4, 11.5).

`<root>/_control/asks/<job>/` has numbered records of two forms:

- an ask: `{"ask": ID, "batch": N, "decision": "release" | "discard", "by": WHO, "at": MICROSECONDS}`
- its answer, by the driver: `{"answer": ID, "decision": …, "rows": {SINK: N}, "done": BOOL}`, where `done` says that
  the decision had been carried out before, or `{"answer": ID, "code": …, "what": …, "where": …}` for an error

Who still waits asks again under the same id, and who was killed does not. A driver hears what is said after its first
look, by the order of the records: the clocks of two machines may be a day apart. Only a driver answers; where none
runs, `penstock held` decides as the owner of the log (`held_service.decide_at_rest`).
Imports nothing that is slow to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.answered_records import AnsweredRecords, new_id
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import PenstockError
from penstock.quality.held.decision_records import Decision, HeldDecision, ruling_of

__all__ = ["AGAIN", "HeldAsk", "HeldAsks"]

AGAIN = 20.0
"""Seconds of its own clock after which who waits asks again."""
_KEEP = 64
"""Records that are kept, and looked at: more than people ask in a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAsk:
    """One wish for a held batch; `at` is when it was last said, microseconds since 1970 by the clock of who asks."""

    id: str
    batch: int
    decision: Decision
    by: str
    at: int


class HeldAsks:
    """The asks for one job's held batches; `store` is that of the folder which holds all jobs."""

    def __init__(self, store: CheckpointStore, job: str) -> None:
        self._records = AnsweredRecords(store, "asks", job, keep=_KEEP)
        self._seen: int | None = None
        self._heard: set[tuple[str, int]] = set()
        self._answered: set[str] = set()

    def ask(self, batch: int, decision: Decision, *, by: str, at: int, again: str | None = None) -> str:
        """Request a decision on a batch, and return the id of the request.

        `by` names a process or a user, for people; `at` is the time, microseconds since 1970. `again` is the id of an
        earlier request, which this one repeats.
        """
        name = again or new_id()
        self._records.request({"ask": name, "batch": batch, "decision": decision.value, "by": by, "at": at})
        return name

    def answer(self, ask: str) -> HeldDecision | None:
        """Return what the driver has done for an ask, None while it has not answered; raises the error it had."""
        body = self._records.answer(ask)
        return None if body is None else ruling_of(body)

    def pending(self) -> list[HeldAsk]:
        """Return what was asked, or asked again, since the last call and nobody has answered, oldest first.

        The first call returns nothing: what was asked before may be of somebody who was killed since.
        For the driver: costs one look at the newest number where nothing was asked since the last call.
        """
        tail, before = self._records.tail(), self._seen
        if tail == before:
            return []
        self._seen = tail
        records = self._records.bodies()
        self._answered |= {str(record["answer"]) for record in records if "answer" in record}
        asks = {ask.id: ask for ask in map(_ask, records) if ask is not None}  # the newest of an id
        new = [ask for ask in asks.values() if (ask.id, ask.at) not in self._heard and ask.id not in self._answered]
        self._heard = {(ask.id, ask.at) for ask in asks.values()}
        return [] if before is None else new

    def reply(self, ask: HeldAsk, outcome: HeldDecision | PenstockError) -> None:
        """Answer an ask."""
        if isinstance(outcome, HeldDecision):
            counts = {"rows": dict(outcome.rows), "newest": dict(outcome.newest)}
            self._records.reply(ask.id, {"decision": outcome.decision.value, **counts, "done": outcome.done})
        else:
            self._records.reply(ask.id, outcome)
        self._answered.add(ask.id)


def _ask(record: Mapping[str, Any]) -> HeldAsk | None:
    """Return the request in a record; None for a senseless record, which must not end a driver (F77)."""
    name, batch, at = record.get("ask"), record.get("batch"), record.get("at")
    word = record.get("decision")
    if not (isinstance(name, str) and type(batch) is int and type(at) is int and isinstance(word, str)):
        return None
    if word not in {decision.value for decision in Decision}:
        return None
    return HeldAsk(id=name, batch=batch, decision=Decision(word), by=str(record.get("by", "")), at=at)
