"""Read a driver's orders from the record of its stream."""

from __future__ import annotations

from penstock.runtime.orders import Order
from penstock.sources.base import ReadLimit
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Stream, Wish

__all__ = ["StreamOrders"]


class StreamOrders:
    """The orders of one driver.

    One that was started by hand has generation 0: it obeys what is asked after its start, because what was asked
    before, perhaps to stop, was not meant for it.
    """

    def __init__(self, records: StreamRecords, generation: int) -> None:
        self._records = records
        self._generation = generation
        self._asked_at = None if generation else records.newest().asked_at
        self._number = -2
        self._last = Order()

    def look(self) -> Order:
        """Return what is wanted now; the record is read when there is a new one."""
        number = self._records.number()
        if number != self._number:
            self._last = self._order(self._records.newest())
            self._number = number
        return self._last

    def _order(self, stream: Stream) -> Order:
        limit = ReadLimit(rows=stream.limits.rows) if stream.limits is not None else None
        if not self._generation and stream.asked_at == self._asked_at:
            return Order(limit=limit)
        if 0 < self._generation < stream.generation:
            over = f"generation {stream.generation} was claimed after this driver's, {self._generation}"
            return Order(over=over, stop=True, limit=limit)
        return Order(
            stop=stream.wish in (Wish.STOP, Wish.SUSPEND),
            drain=stream.wish is Wish.DRAIN,
            limit=limit,
        )
