"""Read the Commits that a log keeps beside its newest, one by one: those that have a name, and those that were held."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from penstock.checkpoint.log.entries import Commit, HeldRef, Restore, Save, SavedRef
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.replay import Standing
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import CheckpointCorrupt, NotFound

__all__ = ["UNKNOWN", "HeldCommits", "Saves", "read_save"]

UNKNOWN = 2**62
"""The batch of a named checkpoint whose entry cannot be read: later than any, so that nothing older is deleted."""


Key = TypeVar("Key")
Ref = TypeVar("Ref")


class _Commits(Mapping[Key, Commit], Generic[Key, Ref]):
    """Commits by key: the slot of each is known, and it is read when it is first asked for.

    To ask for one whose entry cannot be read raises `CheckpointCorrupt`; nothing else reads anything.
    """

    def __init__(self, log: Log, refs: Mapping[Key, Ref], read: Mapping[Key, Commit]) -> None:
        self.refs: dict[Key, Ref] = dict(refs)
        self._log = log
        self._read: dict[Key, Commit] = dict(read)

    def __getitem__(self, key: Key) -> Commit:
        ref = self.refs[key]  # which may lack what was read for another reason
        if key not in self._read:
            self._read[key] = self._commit(key, ref)
        return self._read[key]

    @abstractmethod
    def _commit(self, key: Key, ref: Ref) -> Commit:
        """Read the Commit of a key; raises `CheckpointCorrupt`."""

    def __contains__(self, key: object) -> bool:
        return key in self.refs

    def __iter__(self) -> Iterator[Key]:
        return iter(self.refs)

    def __len__(self) -> int:
        return len(self.refs)

    def __eq__(self, other: object) -> bool:
        """Compare where the entries stand; with any other mapping, the Commits."""
        return self.refs == other.refs if isinstance(other, _Commits) else Mapping.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]


class Saves(_Commits[str, SavedRef]):
    """The named checkpoints of a log: a list of names and batches, and the Commits read one by one."""

    def __init__(self, log: Log, refs: Mapping[str, SavedRef]) -> None:
        super().__init__(log, refs, {})

    def _commit(self, key: str, ref: SavedRef) -> Commit:
        return read_save(self._log, ref.slot, key)

    @property
    def batches(self) -> dict[str, int]:
        """Return the batch of each name, of those not known to be lost; reads nothing."""
        return {name: ref.batch for name, ref in self.refs.items() if ref.batch != UNKNOWN}

    def readable(self) -> dict[str, Commit]:
        """Return the Commits of all names whose entries can be read; reads them all."""
        lost = self.lost()
        return {name: self[name] for name in self if name not in lost}

    def lost(self) -> dict[str, str]:
        """Return the names whose entries cannot be read, and why; reads them all."""
        lost = {}
        for name in self:
            try:
                self[name]
            except CheckpointCorrupt as error:
                lost[name] = f"cannot be read: {error.what} ({error.where})"
        return lost


class HeldCommits(_Commits[int, HeldRef]):
    """The Commits of held batches that somebody may still decide on, by their batch ids."""

    def __init__(self, log: Log, standing: Standing) -> None:
        super().__init__(log, standing.held, {commit.batch: commit for commit in standing.commits})

    def _commit(self, key: int, ref: HeldRef) -> Commit:
        try:
            entry = self._log.read(ref.slot)
        except NotFound:
            raise corrupt(self._log.path(ref.slot), "the Commit of a held batch is missing") from None
        if not isinstance(entry, Commit) or entry.batch != key:
            raise corrupt(self._log.path(ref.slot), f"not the Commit of batch {key}")
        return entry

    def before(self, batch: int) -> Commit | None:
        """Return the Commit that a held batch follows, None where a Restore is between them, or the log has purged it.

        Reads a few entries.
        """
        with suppress(CheckpointCorrupt):
            for _, entry in self._log.entries_back(self.refs[batch].slot - 1):
                if isinstance(entry, Commit):
                    return entry
                if isinstance(entry, Restore):
                    return None
        return None

    @property
    def undone(self) -> set[int]:
        """Return the batches that a Restore has rewound past, and that no other has brought back; reads nothing."""
        return {batch for batch, ref in self.refs.items() if len(ref.out) % 2}


def read_save(log: Log, slot: int, name: str) -> Commit:
    """Return the Commit that a Save pins; raises `CheckpointCorrupt` where that name's does not stand in the slot."""
    try:
        entry = log.read(slot)
    except NotFound:
        raise corrupt(log.path(slot), "the saved checkpoint is missing") from None
    if not isinstance(entry, Save) or entry.name != name:
        raise corrupt(log.path(slot), f"not the saved checkpoint {name!r}")
    return entry.commit
