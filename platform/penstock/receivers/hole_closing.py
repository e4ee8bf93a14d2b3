"""Make the chain of a receiver whole again where blocks are lost for good, so that readers come past them.

A block without rows takes the place of each block that is missing or damaged, and a seal that of a seal. So numbers
stay as they were, a writer of long ago finds no hole to write to, and all readers pass over the same blocks.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from penstock.checkpoint.storage.store import create_or_read
from penstock.errors import CheckpointCorrupt
from penstock.receivers.block_log import BEGINNING, BlockLog, ends_epoch
from penstock.receivers.blocks import Block, Place, block_file, encoded, seal_file
from penstock.receivers.inventory import Fault, inventory_of

__all__ = ["close_holes", "end_of", "lost_epoch"]

_NOBODY = "0" * 32
"""The writer of what is put in the place of others."""


def close_holes(log: BlockLog, known: Place = BEGINNING) -> int:
    """Close the holes of a receiver's chain, from its oldest block on, and return how many blocks are passed over.

    It reads every byte of the blocks, and deletes files that are damaged. Cut short, another call closes the others.
    Where the first blocks are lost, those that were swept before count as well: nobody knows them apart.

    Args:
        log: The blocks.
        known: A place that batches have read up to. Where the chain ends before it, its end is lost.
    """
    passed_over = 0
    listed, first = log.listed(), log.first()
    for fault in inventory_of(log, first).faults:
        place = fault.place
        match fault.fault:
            case Fault.MISSING:
                after = next(other for other in listed if other > place)
                passed_over += _close(log, place, after, fill=place != first)
            case Fault.DAMAGED:
                log.store.delete(log.path(place))
                after = Place(place.epoch + 1, place.number) if ends_epoch(place, listed) else place.next
                passed_over += _close(log, place, after)
    passed_over += _skip_lower_numbers(log)
    end = end_of(log)
    if known <= end:
        return passed_over
    # The epoch is not given twice either: an old writer of it may be alive.
    return passed_over + _close(log, end, Place(known.epoch, max(known.number, end.number)), fill=end != first)


def _skip_lower_numbers(log: BlockLog) -> int:
    """End each epoch whose numbers the next one has as well, and return how many blocks no reader reaches then.

    So it is where blocks were put back after `--from empty` had passed over them: no chain has both.
    """
    end, is_whole = end_of(log), True
    while any(other > end for other in log.listed()):
        is_whole = False
        _seal(log, end)
        end = end_of(log)
    if is_whole:
        return 0
    unreached = [fault.place for fault in inventory_of(log, log.first()).faults if fault.fault is Fault.UNREACHED]
    return sum(isinstance(log.look(place), Block) for place in unreached)


def lost_epoch(log: BlockLog) -> int | None:
    """Begin the folder of the newest epoch again where it is gone, and return its number; None where it is there.

    Nobody knows how many blocks it had.
    """
    epoch = end_of(log).epoch
    with suppress(CheckpointCorrupt):  # where the seal before it is damaged, nobody knows whether there was a folder
        if not log.is_deleted(epoch, log.listed()):
            return None
    log.open_epoch(epoch)
    return epoch


def end_of(log: BlockLog) -> Place:
    """Return where the chain ends that begins with the oldest block."""
    cursor = log.follow(log.first())
    for _ in cursor:
        pass
    return cursor.place


def _close(log: BlockLog, first: Place, after: Place, *, fill: bool = True) -> int:
    """Fill the places before `after`, and return how many blocks they had: none where `after` has a lower number.

    Before the first block there is nothing to `fill`: the seals are enough, as after a sweep. An epoch that has none
    gets the last block, so that numbers continue after it.
    """
    if after.number < first.number:
        return 0
    begin = first.number
    if not fill:
        begin = max(begin, after.number - 1) if after.epoch == first.epoch else after.number
    for number in range(begin, after.number):
        place = Place(first.epoch, number)
        empty = block_file(log.receiver, place, writer=_NOBODY, rows=0, stream=encoded(pa.table({})))
        create_or_read(log.store, log.path(place), empty)
    for epoch in range(first.epoch, after.epoch):
        _seal(log, Place(epoch, after.number))
    return after.number - first.number


def _seal(log: BlockLog, place: Place) -> None:
    log.open_epoch(place.epoch + 1)
    create_or_read(log.store, log.path(place), seal_file(log.receiver, place, writer=_NOBODY))
