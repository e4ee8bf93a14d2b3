"""Store the decisions on held batches: `<root>/_control/held/<job>/<uuid>/<batch>/`.

Record 0 is the decision, and record 1 says that it was carried out. The uuid is that of the job's checkpoint: another
checkpoint of the name counts its batches from 0 again. Earlier versions had no folder for the uuid; their decisions
apply to the current checkpoint. Imports nothing that is slow to load.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from penstock.checkpoint.control_records import STRIDES, Records
from penstock.checkpoint.log.batch_report import Windows
from penstock.checkpoint.log.metadata import uuid_of
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.numbered_files import Sequence
from penstock.checkpoint.storage.store import CheckpointStore, create_or_read

__all__ = ["Decision", "HeldDecision", "HeldRecords", "ruling_of"]

_KIND = "held"


class Decision(Enum):
    """A decision on a held batch."""

    RELEASE = "release"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDecision:
    """The decision on a batch, whether it was carried out, and how many rows of each sink it concerns.

    `windows` are those that the batch has closed, as `batch_report.closed_windows` has them; a decision of an earlier
    version names none. `newest` has, of each sink with keys, how many of the rows it got: the newest of their keys when
    the batch was released.
    """

    decision: Decision
    done: bool
    rows: Mapping[str, int]
    windows: Windows = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)


class HeldRecords:
    """The decisions on one job's held batches; `store` is that of the folder which holds all jobs."""

    def __init__(self, store: CheckpointStore, job: str) -> None:
        self._store = store
        self._job = job
        self._uuid: str | None = None

    def ruling(self, batch: int) -> HeldDecision | None:
        """Return the decision on a batch, None while there is none."""
        kept = (Records(self._store, _KIND, folder).newest() for folder in self._folders(batch))
        decision = next((record for record in kept if record is not None), None)
        return None if decision is None else ruling_of(decision.body)

    def decide(
        self, batch: int, decision: Decision, rows: Mapping[str, int], *, by: str, windows: Windows | None = None
    ) -> HeldDecision:
        """Decide, unless somebody has; return the decision in force.

        Raises CheckpointCorrupt when the existing record cannot be read.
        """
        sequences = [Sequence(self._store, f"_control/{_KIND}/{at}", STRIDES) for at in self._folders(batch)]
        # A decision of an earlier version, also one that cannot be read, gets no second one beside it.
        path = next((sequence for sequence in sequences if sequence.exists(0)), sequences[0]).path(0)
        ruling = HeldDecision(decision=decision, done=False, rows=rows, windows=windows or {})
        body = _body(ruling, by)
        data = fileformat.encode(_KIND, {"seq": 0, "id": secrets.token_hex(16), "body": body})
        stored = create_or_read(self._store, path, data)
        if stored == data:
            return ruling
        _, record = fileformat.decode(stored, kind=_KIND, path=path)
        return self.ruling(batch) or ruling_of(record["body"])

    def carried_out(self, batch: int, ruling: HeldDecision, *, by: str) -> None:
        """Note that a decision was carried out."""
        self._records(batch).put(_body(replace(ruling, done=True), by))

    def released_of(self, batches: Iterable[int]) -> list[int]:
        """Return those of some batches that were released and published; reads nothing of others."""
        rulings = ((batch, self.ruling(batch)) for batch in batches)
        return [b for b, ruling in rulings if ruling and ruling.done and ruling.decision is Decision.RELEASE]

    def released(self, *, but: Collection[int] = ()) -> list[int]:
        """Return the batches that were released and published, as a listing shows them, without those of `but`."""
        base = f"_control/{_KIND}/{self._job}/"
        uuid = self.uuid()
        parts = [path.removeprefix(base).split("/") for path in self._store.list(base.rstrip("/"))]
        named = {part[1] if part[0] == uuid else part[0] for part in parts if len(part) > 1}
        batches = sorted(int(name) for name in named if name.isdecimal())
        return self.released_of(batch for batch in batches if batch not in but)

    def uuid(self) -> str | None:
        """Return the uuid of the job's checkpoint, None where there is none; raises as reading metadata does."""
        if self._uuid is None:
            self._uuid = uuid_of(self._store, self._job)
        return self._uuid

    def _records(self, batch: int) -> Records:
        return Records(self._store, _KIND, self._folders(batch)[0])

    def _folders(self, batch: int) -> list[str]:
        """Return the folders that a batch may be decided on in, the one to write to first."""
        uuid, old = self.uuid(), f"{self._job}/{batch:012d}"
        return [old] if uuid is None else [f"{self._job}/{uuid}/{batch:012d}", old]


def _body(ruling: HeldDecision, by: str) -> dict[str, Any]:
    windows = {step: list(bounds) for step, bounds in ruling.windows.items()}
    decision = {"decision": ruling.decision.value, "done": ruling.done, "rows": dict(ruling.rows), "by": by}
    return {**decision, "windows": windows, "newest": dict(ruling.newest)}


def ruling_of(body: Mapping[str, Any]) -> HeldDecision:
    """Return the decision in a record."""
    return HeldDecision(
        decision=Decision(body["decision"]),
        done=bool(body["done"]),
        rows=dict(body["rows"]),
        windows={step: (after, until) for step, (after, until) in body.get("windows", {}).items()},
        newest=dict(body.get("newest", {})),
    )
