"""Make the chain of a receiver whole again where blocks are lost for good, so that readers come past them.

A block without rows takes the place of each block that is missing or damaged, and a seal that of a seal. So numbers
stay as they were, a writer of long ago finds no hole to write to, and all readers pass over the same blocks.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.checkpoint.storage.store import create_or_read
from penstock.receivers.block_log import BlockLog, ends_epoch
from penstock.receivers.blocks import Place, block_file, encoded, seal_file
from penstock.receivers.inventory import Fault, inventory_of

__all__ = ["close_holes"]

_NOBODY = "0" * 32
"""The writer of what is put in the place of others."""


def close_holes(log: BlockLog) -> int:
    """Close the holes of a receiver's chain, from its oldest block on, and return how many blocks are passed over.

    It reads every byte of the blocks, and deletes files that are damaged. Cut short, another call closes the others.
    """
    passed_over = 0
    listed = log.listed()
    for fault in inventory_of(log, log.first()).faults:
        place = fault.place
        match fault.fault:
            case Fault.MISSING:
                passed_over += _close(log, place, next(other for other in listed if other > place))
            case Fault.DAMAGED:
                log.store.delete(log.path(place))
                after = Place(place.epoch + 1, place.number) if ends_epoch(place, listed) else place.next
                passed_over += _close(log, place, after)
    return passed_over


def _close(log: BlockLog, first: Place, after: Place) -> int:
    """Fill the places before `after`, and return how many blocks they had: none where `after` has a lower number."""
    if after.number < first.number:
        return 0
    for number in range(first.number, after.number):
        place = Place(first.epoch, number)
        empty = block_file(log.receiver, place, writer=_NOBODY, rows=0, stream=encoded(pa.table({})))
        create_or_read(log.store, log.path(place), empty)
    for epoch in range(first.epoch, after.epoch):
        place = Place(epoch, after.number)
        create_or_read(log.store, log.path(place), seal_file(log.receiver, place, writer=_NOBODY))
    return after.number - first.number
