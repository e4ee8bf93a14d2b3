"""Read a driver's orders from the record of its stream."""

from __future__ import annotations

from dataclasses import replace

from penstock.rates.limits import Limits
from penstock.runtime.process.control import ControlState
from penstock.runtime.restore.target import parse_start
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Stream, Wish

__all__ = ["StreamOrders"]


class StreamOrders:
    """The orders of one driver.

    One that was started by hand has generation 0: it obeys what is asked after its start, because what was asked
    before, perhaps to stop, was not meant for it. A restart ends it: no newer driver is started while it holds the job.
    """

    def __init__(self, records: StreamRecords, generation: int) -> None:
        self._records = records
        self._generation = generation
        self._before = frozenset() if generation else frozenset(known.id for known in records.newest().answered)
        self._seen = (-2, ControlState())  # one value: two threads look

    def look(self) -> ControlState:
        """Return what is wanted now; the record is read when there is a new one."""
        number = self._records.number()
        if number != self._seen[0]:
            self._seen = (number, self._order(self._records.newest()))
        return self._seen[1]

    def _order(self, stream: Stream) -> ControlState:
        return replace(
            self._wanted(stream),
            limits=stream.limits or Limits(),
            saves=dict(stream.saves),
            unsaves=dict(stream.unsaves),
            checks=dict(stream.checks),
            ignored=self._before,
        )

    def _wanted(self, stream: Stream) -> ControlState:
        if not self._generation:
            # Not the wish: a stop is answered with "nothing to do" where no stream runs, and means this driver still.
            verbs = {known.verb for known in stream.answered if known.id not in self._before}
            begins = parse_start(stream.start).batch if "restart" in verbs else None
            stop = bool({"stop", "suspend", "restart"} & verbs)
            return ControlState(stop=stop, drain="drain" in verbs, begins=begins)
        if self._generation > stream.generation:  # another program counts the generations
            return ControlState()
        if self._generation < stream.generation:
            over = f"generation {stream.generation} was claimed after this driver's, {self._generation}"
            return ControlState(over=over, begins=parse_start(stream.start).batch, stop=True)
        # A stream that was given up is over too: its last driver may have been launched later than anybody waited.
        stop = stream.is_over or stream.wish in (Wish.STOP, Wish.SUSPEND)
        return ControlState(stop=stop, drain=stream.wish is Wish.DRAIN)
