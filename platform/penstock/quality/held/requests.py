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

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.control_records import Records, error_body, error_in
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import PenstockError
from penstock.quality.held.decision_records import Decision, HeldDecision, ruling_of

__all__ = ["AGAIN", "HeldAsk", "HeldAsks"]

AGAIN = 20.0
"""Seconds of its own clock after which who waits asks again."""
_KIND = "asks"
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


@dataclass(slots=True)
class HeldAsks:
    """The asks for one job's held batches; `store` is that of the folder which holds all jobs."""

    store: CheckpointStore
    job: str
    _seen: int | None = None
    _heard: set[tuple[str, int]] = field(default_factory=set)
    _answered: set[str] = field(default_factory=set)

    def ask(self, batch: int, decision: Decision, *, by: str, at: int, again: str | None = None) -> str:
        """Request a decision on a batch, and return the id of the request.

        `by` names a process or a user, for people; `at` is the time, microseconds since 1970. `again` is the id of an
        earlier request, which this one repeats.
        """
        name = again or secrets.token_hex(16)
        records = self._records()
        number = records.put({"ask": name, "batch": batch, "decision": decision.value, "by": by, "at": at})
        if number % _KEEP == 0:
            records.prune(_KEEP)
        return name

    def answer(self, ask: str) -> HeldDecision | None:
        """Return what the driver has done for an ask, None while it has not answered; raises the error it had."""
        for record in reversed(self._newest()):
            if record.get("answer") == ask:
                if "code" in record:
                    raise error_in(record)
                return ruling_of(record)
        return None

    def pending(self) -> list[HeldAsk]:
        """Return what was asked, or asked again, since the last call and nobody has answered, oldest first.

        The first call returns nothing: what was asked before may be of somebody who was killed since.
        For the driver: costs one look at the newest number where nothing was asked since the last call.
        """
        tail, before = self._records().tail(), self._seen
        if tail == before:
            return []
        self._seen = tail
        records = self._newest()
        self._answered |= {str(record["answer"]) for record in records if "answer" in record}
        asks = {ask.id: ask for ask in map(_ask, records) if ask is not None}  # the newest of an id
        new = [ask for ask in asks.values() if (ask.id, ask.at) not in self._heard and ask.id not in self._answered]
        self._heard = {(ask.id, ask.at) for ask in asks.values()}
        return [] if before is None else new

    def reply(self, ask: HeldAsk, outcome: HeldDecision | PenstockError) -> None:
        """Answer an ask."""
        body: dict[str, Any] = {"answer": ask.id}
        if isinstance(outcome, HeldDecision):
            body |= {"decision": outcome.decision.value, "rows": dict(outcome.rows), "done": outcome.done}
        else:
            body |= error_body(outcome)
        self._records().put(body)
        self._answered.add(ask.id)

    def _newest(self) -> list[dict[str, Any]]:
        return [record.body for record in self._records().recent(_KEEP)]

    def _records(self) -> Records:
        return Records(self.store, _KIND, self.job)


def _ask(record: Mapping[str, Any]) -> HeldAsk | None:
    """Return the request in a record; None for a senseless record, which must not end a driver (F77)."""
    name, batch, at = record.get("ask"), record.get("batch"), record.get("at")
    word = record.get("decision")
    if not (isinstance(name, str) and type(batch) is int and type(at) is int and isinstance(word, str)):
        return None
    if word not in {decision.value for decision in Decision}:
        return None
    return HeldAsk(id=name, batch=batch, decision=Decision(word), by=str(record.get("by", "")), at=at)
