"""Gather rows of many senders into blocks, and hold senders up where blocks or a rate allow no more."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import RowsTooLarge
from penstock.receivers.blocks import MOST_BYTES

__all__ = ["BlockBuffer", "Pace"]

_BURST = 0.2
"""Seconds of a rate that may come at once, after a pause."""


@dataclass(slots=True)
class Pace:
    """Rows a second that may be taken, as an account: rows are taken on credit, and who comes next waits for them.

    Attributes:
        rate: Rows a second; None for no bound, 0 to hold all up.
    """

    rate: float | None = None
    _account: float = 0.0
    _at: float = -math.inf

    def wait(self, now: float) -> float:
        """Return for how many seconds nothing may be taken."""
        if self.rate is None:
            return 0.0
        if self.rate <= 0:
            return math.inf
        self._account = min(self._account + self.rate * (now - self._at), self.rate * _BURST)
        self._at = now
        return 0.0 if self._account >= 0 else -self._account / self.rate

    def take(self, rows: int) -> None:
        """Take rows, after `wait` has returned 0."""
        if self.rate is not None:
            self._account -= rows

    def change(self, rate: float | None) -> None:
        """Set another rate; a debt by the old one is forgiven where there was none."""
        if self.rate is None:
            self._account, self._at = 0.0, -math.inf
        self.rate = rate


class BlockBuffer:
    """Rows that wait to become a block. Senders call `put`, on any thread, and one thread is in `run`.

    Memory is bounded: by one block that waits, one that is written, and what each sender holds that is held up.

    Args:
        write: Makes a block durable; it returns when it is.
        interval: Seconds after its first row at which a block is cut.
        most: Bytes at which a block is cut before that.
        monotonic: The clock, in seconds.
    """

    def __init__(
        self,
        write: Callable[[pa.Table], None],
        *,
        interval: float,
        most: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._interval = interval
        self._most = most
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._pace = Pace()
        self._waiting: list[tuple[pa.Table, Future[None]]] = []
        self._bytes = 0
        self._since = 0.0
        self._is_closed = False
        self._error: BaseException | None = None

    def limit(self, rate: float | None) -> None:
        """Bound the rows a second; None for no bound, 0 to hold senders up."""
        with self._changed:
            self._pace.change(rate)
            self._changed.notify_all()

    def put(self, rows: pa.Table) -> Future[None]:
        """Add rows, which will be in one block, and return what tells that they are durable.

        It returns when there is room for them. Raises RowsTooLarge, and what has ended the buffer.
        """
        size = rows.nbytes
        if size > MOST_BYTES:
            raise RowsTooLarge(f"{rows.num_rows:,} rows have {size:,} bytes, and a block has {MOST_BYTES:,} at most")
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # who gives up on one must not end the thread that answers all
        with self._changed:
            while (wait := self._held_up(size)) > 0:
                self._changed.wait(None if math.isinf(wait) else wait)
            self._pace.take(rows.num_rows)
            if not self._waiting:
                self._since = self._monotonic()
            self._waiting.append((rows, done))
            self._bytes += size
            self._changed.notify_all()
        return done

    def _held_up(self, size: int) -> float:
        """Return for how many seconds a sender waits; infinite where only somebody else can change that."""
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise RuntimeError("the receiver has stopped")
        if self._waiting and self._bytes + size > self._most:
            return math.inf
        return self._pace.wait(self._monotonic())

    def run(self) -> None:
        """Write block after block until the buffer is closed and empty; raises what `write` raises."""
        while cut := self._cut():
            try:
                self._write(pa.concat_tables([rows for rows, _ in cut]))
            except BaseException as why:
                self._fail(why, cut)
                raise
            for _, done in cut:
                done.set_result(None)

    def _cut(self) -> list[tuple[pa.Table, Future[None]]]:
        """Wait until a block is due, and return its rows; none when all is written."""
        with self._changed:
            while not self._is_due():
                left = self._since + self._interval - self._monotonic() if self._waiting else None
                self._changed.wait(left)
            cut, self._waiting, self._bytes = self._waiting, [], 0
            self._changed.notify_all()
        return cut

    def _is_due(self) -> bool:
        if self._is_closed or self._bytes >= self._most:
            return True
        return bool(self._waiting) and self._monotonic() >= self._since + self._interval

    def _fail(self, why: BaseException, cut: list[tuple[pa.Table, Future[None]]]) -> None:
        with self._changed:
            self._error = why
            lost, self._waiting = [*cut, *self._waiting], []
            self._changed.notify_all()
        for _, done in lost:
            done.set_exception(why)

    def close(self) -> None:
        """Take no more rows; `run` ends when those that wait are written."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
