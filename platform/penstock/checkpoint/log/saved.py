"""Read the Commits that a log keeps beside its newest, one by one: those that have a name, and those that were held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from penstock.checkpoint.log.entries import Commit, HeldRef, Restore, Save, SavedRef
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.replay import Standing
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import CheckpointCorrupt, NotFound

__all__ = ["UNKNOWN", "HeldCommits", "Saves", "read_save"]

UNKNOWN = 2**62
"""The batch of a named checkpoint whose entry cannot be read: later than any, so that nothing older is deleted."""


class Saves(Mapping[str, Commit]):
    """The named checkpoints of a log: a list of names and batches, and the Commits read one by one.

    To ask for one whose entry cannot be read raises `CheckpointCorrupt`.
    """

    def __init__(self, log: Log, refs: Mapping[str, SavedRef]) -> None:
        self.refs = dict(refs)
        self._log = log
        self._read: dict[str, Commit] = {}

    def __getitem__(self, name: str) -> Commit:
        """Return the Commit that a name pins."""
        if name not in self._read:
            self._read[name] = read_save(self._log, self.refs[name].slot, name)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a name; reads nothing."""
        return name in self.refs

    def __iter__(self) -> Iterator[str]:
        """Go through the names, in the order in which they were given; reads nothing."""
        return iter(self.refs)

    def __len__(self) -> int:
        """Return how many names there are."""
        return len(self.refs)

    def __eq__(self, other: object) -> bool:
        """Compare where the names stand; with any other mapping, the Commits."""
        return self.refs == other.refs if isinstance(other, Saves) else Mapping.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]

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
        lost: dict[str, str] = {}
        for name in self:
            try:
                self[name]
            except CheckpointCorrupt as error:
                lost[name] = f"cannot be read: {error.what} ({error.where})"
        return lost


class HeldCommits(Mapping[int, Commit]):
    """The Commits of held batches that somebody may still decide on, by their batch ids.

    To ask for one that cannot be read raises `CheckpointCorrupt`.
    """

    def __init__(self, log: Log, standing: Standing) -> None:
        self.refs: dict[int, HeldRef] = dict(standing.held)
        self._log = log
        self._read = {kept.batch: kept.commit for kept in standing.commits}

    def __getitem__(self, batch: int) -> Commit:
        """Return the Commit of a held batch."""
        ref = self.refs[batch]
        if batch not in self._read:
            try:
                found = self._log.read(ref.slot)
            except NotFound:
                raise corrupt(self._log.path(ref.slot), "the Commit of a held batch is missing") from None
            if not isinstance(found, Commit) or found.batch != batch:
                raise corrupt(self._log.path(ref.slot), f"not the Commit of batch {batch}")
            self._read[batch] = found
        return self._read[batch]

    def before(self, batch: int) -> Commit | None:
        """Return the Commit that a held batch follows, None where a Restore stands between, or the log has let it go.

        Reads a few entries.
        """
        with suppress(CheckpointCorrupt):
            for _, entry in self._log.entries_back(self.refs[batch].slot - 1):
                if isinstance(entry, Commit):
                    return entry
                if isinstance(entry, Restore):
                    return None
        return None

    def __contains__(self, batch: object) -> bool:
        """Return whether there is such a batch; reads nothing."""
        return batch in self.refs

    def __iter__(self) -> Iterator[int]:
        """Go through the batch ids, in the order of the log; reads nothing."""
        return iter(self.refs)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.refs)

    def __eq__(self, other: object) -> bool:
        """Compare where they stand."""
        return isinstance(other, HeldCommits) and self.refs == other.refs

    __hash__ = None  # type: ignore[assignment]

    @property
    def undone(self) -> set[int]:
        """Return the batches that a Restore has gone back behind, and that no other has brought back; reads nothing."""
        return {batch for batch, ref in self.refs.items() if len(ref.out) % 2}


def read_save(log: Log, slot: int, name: str) -> Commit:
    """Return the Commit that a Save pins; raises `CheckpointCorrupt` where that name's does not stand in the slot."""
    try:
        found = log.read(slot)
    except NotFound:
        raise corrupt(log.path(slot), "the saved checkpoint is missing") from None
    if not isinstance(found, Save) or found.name != name:
        raise corrupt(log.path(slot), f"not the saved checkpoint {name!r}")
    return found.commit
