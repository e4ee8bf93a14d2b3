"""Verify the blocks of receivers that kept batches, or the next one, may read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.receivers.block_log import BlockLog
from penstock.receivers.blocks import Place
from penstock.receivers.inventory import BlockFault, Fault, inventory_of, logs_in, places_in

__all__ = ["LeftBlocks", "VerifiedBlocks", "verify_blocks"]

_NAMED = 5
"""The batches that a finding names."""


@dataclass(frozen=True, slots=True)
class LeftBlocks:
    """The whole blocks of a receiver whose `source` no batch that can be restored has; `size` in bytes."""

    source: str
    folder: str
    blocks: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBlocks:
    """The blocks of all receivers of a job.

    Attributes:
        blocks: Whole blocks that a batch may still read.
        size: Their bytes.
        unneeded: Files that no kept batch reads on from, and that the next sweep deletes.
        problems: What is wrong, and what that means for the job.
        left: What sources have left that no batch that can be restored has.
    """

    blocks: int = 0
    size: int = 0
    unneeded: int = 0
    problems: tuple[tuple[str, str], ...] = ()
    left: tuple[LeftBlocks, ...] = ()


def verify_blocks(store: CheckpointStore, recovered: Recovered, *, again: Callable[[], Recovered]) -> VerifiedBlocks:
    """Read every block from the oldest kept batch on. The job may run, and sweep, meanwhile.

    Args:
        store: The job's checkpoint.
        recovered: What its log says.
        again: Returns what the log says now: what was swept meanwhile is not missed.
    """
    blocks = size = unneeded = 0
    problems: list[tuple[str, str]] = []
    left: list[LeftBlocks] = []
    names = {receiver.receiver for receiver in logs_in(store)}
    known = {} if recovered.commit is None else _places(recovered.commit)
    for receiver in (BlockLog(store, name) for name in sorted(names | known.keys())):
        inventory = inventory_of(receiver, _Needs.of(recovered, receiver).start)
        if _is_left(recovered, receiver) and _is_left(again(), receiver):  # a first batch may have come meanwhile
            if inventory.blocks:
                left.append(LeftBlocks(receiver.source, receiver.folder, inventory.blocks, inventory.size))
            problems += [(fault.what, _means_left(receiver)) for fault in inventory.faults]
            continue
        blocks, size = blocks + inventory.blocks, size + inventory.size
        unneeded += inventory.unneeded
        if inventory.faults:
            needs = _Needs.of(again(), receiver)
            problems += [(fault.what, needs.means(fault)) for fault in inventory.faults if needs.has(fault.place)]
    return VerifiedBlocks(blocks=blocks, size=size, unneeded=unneeded, problems=tuple(problems), left=tuple(left))


def _is_left(recovered: Recovered, receiver: BlockLog) -> bool:
    """Return whether no batch that can be restored, or was begun, has the source of a receiver.

    The source was dropped, or no batch has read it yet: only the job's code tells these apart.
    """
    if recovered.commit is None or recovered.problems or recovered.damaged or recovered.saves.lost():
        return False  # what cannot be read may have the source, and be put back from a copy
    source = receiver.source
    commits = [recovered.commit, *recovered.kept, *recovered.saves.readable().values()]
    is_begun = recovered.pending is not None and source in recovered.pending.ranges
    return not is_begun and not any(source in commit.sources for commit in commits)


def _means_left(receiver: BlockLog) -> str:
    return (
        f"if the job has source {receiver.source!r}, it stops before the rows of this block: put the file back from a "
        "copy, or begin with --from empty"
    )


@dataclass(frozen=True, slots=True)
class _Needs:
    """Where batches read on from in the blocks of a receiver; None for a batch from before its first block.

    `force` is the place of the Commit in force, and `kept` has those of all that can be restored.
    """

    force: Place | None
    kept: tuple[tuple[int, Place | None], ...]

    @classmethod
    def of(cls, recovered: Recovered, receiver: BlockLog) -> _Needs:
        commits = [*recovered.kept, *recovered.saves.readable().values()]
        kept = sorted({commit.batch: _places(commit).get(receiver.receiver) for commit in commits}.items())
        return cls(None if recovered.commit is None else _places(recovered.commit).get(receiver.receiver), tuple(kept))

    @property
    def start(self) -> Place | None:
        places = [self.force, *(place for _, place in self.kept)]
        return None if None in places else min(place for place in places if place is not None)

    def has(self, place: Place) -> bool:
        return self.start is None or place >= self.start

    def means(self, fault: BlockFault) -> str:
        if fault.fault is Fault.UNREACHED:
            return "no batch reads its rows: put back from a copy what was there at the end of its epoch"
        if self.force is None or fault.place >= self.force:
            return (
                "the job stops before the rows of this block: put the file back from a copy, or begin with --from empty"
            )
        batches = [str(batch) for batch, place in self.kept if place is None or place <= fault.place]
        return f"{_listed(batches)} cannot be restored; the job continues"


def _places(commit: Commit) -> dict[str, Place]:
    return places_in({source: progress.position for source, progress in commit.sources.items()})


def _listed(batches: Sequence[str]) -> str:
    """Return the newest few of these batches in words."""
    return f"{'batch' if len(batches) == 1 else 'batches'} {', '.join(batches[-_NAMED:])}"
