"""Read all blocks of a receiver, and find those that are missing, damaged, or that no reader reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import CheckpointCorrupt, NotFound
from penstock.receivers.block_log import FOLDER, BlockLog, ends_epoch, unneeded
from penstock.receivers.blocks import Place, Seal, parse, rows_in

__all__ = ["BlockFault", "BlockInventory", "Fault", "inventory_of", "logs_in", "places_in", "receivers_in"]


class Fault(Enum):
    """What is wrong at a place."""

    MISSING = "is gone"
    DAMAGED = "is damaged"
    UNREACHED = "is reached by no reader"
    FOLDER = "has lost the folder of its epoch"


@dataclass(frozen=True, slots=True)
class BlockFault:
    """A place of a block log where something is wrong; `what` says it in words, with the path."""

    place: Place
    fault: Fault
    what: str


@dataclass(slots=True)
class BlockInventory:
    """What one receiver has.

    Attributes:
        blocks: Whole blocks that a reader reaches, from the place on where the reading began.
        size: Their bytes.
        unneeded: Files before that place which the next sweep deletes.
        faults: What is wrong, in the order of places.
    """

    blocks: int = 0
    size: int = 0
    unneeded: int = 0
    faults: list[BlockFault] = field(default_factory=list)


def logs_in(store: CheckpointStore) -> list[BlockLog]:
    """Return the block logs that a checkpoint has, by a listing."""
    names = {path.split("/")[1] for path in store.list(FOLDER)}
    return [BlockLog(store, name) for name in sorted(names)]


def receivers_in(store: CheckpointStore, source: str) -> set[str]:
    """Return the numbers, as text, of the receivers of a source that have blocks in a checkpoint."""
    return {log.number for log in logs_in(store) if log.source == source and log.number.isdecimal()}


def places_in(positions: Mapping[str, Mapping[str, Any]]) -> dict[str, Place]:
    """Return the places of positions by source, by the names of block logs."""
    return {
        f"{source}-{number}": Place(int(epoch), int(block))
        for source, position in positions.items()
        for number, (epoch, block) in position.get("receivers", {}).items()
    }


def inventory_of(log: BlockLog, start: Place | None) -> BlockInventory:
    """Read the chain of a receiver from a place on, every byte of it.

    Args:
        log: The blocks.
        start: The least place that a batch may read; None to begin with the oldest block that is there.
    """
    listed = log.listed()
    inventory = BlockInventory()
    if start is None:
        start = log.first()
    reached: set[Place] = set()
    for place, result in _walk(log, start, listed):
        reached.add(place)
        match result:
            case BlockFault():
                inventory.faults.append(result)
            case int():
                inventory.blocks += 1
                inventory.size += result
    inventory.unneeded = len(unneeded(listed, start))
    for place in listed:
        if place >= start and place not in reached:
            what = f"block {place.number:,} of epoch {place.epoch} of {log.receiver} follows the end of its epoch"
            inventory.faults.append(BlockFault(place, Fault.UNREACHED, f"{what} ({log.path(place)})"))
    return inventory


def _walk(log: BlockLog, start: Place, listed: list[Place]) -> Iterator[tuple[Place, BlockFault | int | None]]:
    """Yield each place of the chain with its fault, the bytes of a whole block, or None for a seal."""
    place = start
    while True:
        path = log.path(place)
        try:
            data = log.store.read(path) if log.store.exists(path) else None
        except NotFound:
            data = None
        if data is None:
            beyond = [other for other in listed if other > place]
            if not beyond:
                if (what := _lost_folder(log, place, listed)) is not None:
                    yield place, BlockFault(place, Fault.FOLDER, f"{what} ({path})")
                return
            what = f"block {place.number:,} of epoch {place.epoch} of {log.receiver} is gone ({path})"
            yield place, BlockFault(place, Fault.MISSING, what)
            place = beyond[0]
            continue
        try:
            if isinstance(parse(data, receiver=log.receiver, place=place, path=path), Seal):
                yield place, None
                place = Place(place.epoch + 1, place.number)
                continue
            rows_in(data, receiver=log.receiver, place=place, path=path)
            yield place, len(data)
        except CheckpointCorrupt as why:
            yield place, BlockFault(place, Fault.DAMAGED, f"{why.what} ({path})")
            if ends_epoch(place, listed):
                place = Place(place.epoch + 1, place.number)
                continue
        place = place.next


def _lost_folder(log: BlockLog, end: Place, listed: list[Place]) -> str | None:
    """Say that the folder of the epoch at the end of a chain is gone, or may be; None where it is not."""
    try:
        is_gone = log.is_deleted(end.epoch, listed)
    except CheckpointCorrupt as why:
        return f"epoch {end.epoch} of {log.receiver} has no folder, and the seal before it is damaged: {why.what}"
    return f"the folder of epoch {end.epoch} of {log.receiver} is gone, with its newest blocks" if is_gone else None
