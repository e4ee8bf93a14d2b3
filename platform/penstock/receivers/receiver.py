"""Define what a receiver is: code of a job that takes rows from senders, in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from penstock.errors import JobError

__all__ = ["Port", "Receiver", "Rows"]

Rows: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch
"""One row, several, or Arrow."""


class Port(Protocol):
    """What a receiver is connected to while it runs."""

    def put(self, rows: Rows) -> Future[None]:
        """Take rows, when there is room for them."""

    def report(self, error: str) -> None:
        """Show an error."""

    def show(self, address: str) -> None:
        """Show where senders reach the receiver."""

    def restart(self, reason: str) -> None:
        """End the process, so that another one is started."""


class Receiver:
    """Take rows from senders. Subclass it, and give an object of the class to `penstock.sources.Receive`.

    Each receiver runs in a process of its own, beside the driver or, on a cluster, in a task. The object is pickled for
    it, so `__init__` keeps settings, and `on_start` opens what cannot be pickled. A process that ends, or raises, is
    started again.

    Attributes:
        index: The number of this receiver among those of its source, from 0.
        receivers: How many there are.
        stopping: Is set when the receiver has to end. `on_start` may run until then, and wait by `stopping.wait(1)`.
        listens: The address that it listens on, as "127.0.0.1:8080", where it is known before the start. Two sources of
            a job with the same one are refused.
    """

    index: int = 0
    receivers: int = 1
    stopping: threading.Event
    listens: str | None = None
    _port: Port | None = None

    def on_start(self) -> None:
        """Begin to receive, on a thread of its own: return when threads are started, or run until `stopping` is set.

        What it raises is shown as the receiver's error, and the receiver is restarted.
        """
        raise NotImplementedError

    def on_check(self) -> None:
        """Raise where the receiver could not start on this machine, such as for a port that is taken; else return.

        Called in the driver, before any receiver of a run is started, where receivers run beside it and `Receive` has
        an object and no class. It is called again for a few seconds, because a receiver of the driver before may be
        ending. Then the run ends with what it raises, before its first batch. An OSError becomes CannotListen.
        `stopping` and `store` are not there yet. By default nothing is checked.
        """

    def on_stop(self) -> None:
        """Close what `on_start` has opened. Called when `stopping` is set; rows can still be stored meanwhile."""

    def store(self, rows: Rows) -> None:
        """Keep rows, and return when they are durable: only then acknowledge them to their sender.

        It waits where the limit of the rate, or the block that is being written, leaves no room. Several threads may
        call it. The rows of one call are in one block: after a crash all of them are there, or none.

        Args:
            rows: A row as a dict, a list of rows, or a table or batch of Arrow. What does not fit the schema is a bad
                record, which goes to quarantine.

        Raises:
            RowsTooLarge: The rows of one call have more than 64 MiB.
            EpochSealed: The receiver was started elsewhere since; the rows are not kept.
        """
        self.submit(rows).result()

    def submit(self, rows: Rows) -> Future[None]:
        """Take rows as `store` does, and return a future that is done when they are durable.

        It waits for room as `store` does, but not for the disk: so one thread can fill a block.
        """
        return self._connected().put(rows)

    def report_error(self, message: str, error: BaseException | None = None) -> None:
        """Show an error in the status of the job, and tell its listeners; the receiver continues."""
        self._connected().report(_with(message, error))

    def report_address(self, address: str) -> None:
        """Show in the status of the job where senders reach the receiver, as `127.0.0.1:8080`, or what it reads from.

        On a cluster, receivers run on any machine, and only this says on which port.
        """
        self._connected().show(address)

    def restart(self, message: str, error: BaseException | None = None) -> None:
        """Have the receiver started again, after a pause, in another process. Rows that were taken are kept first."""
        self._connected().restart(_with(message, error))

    def connect(self, port: Port, *, index: int, receivers: int) -> None:
        """Connect the receiver; called by its process, before `on_start`."""
        self._port, self.index, self.receivers = port, index, receivers
        self.stopping = threading.Event()

    def _connected(self) -> Port:
        if self._port is None:
            raise JobError(f"{type(self).__name__} stores rows in on_start or later, when it runs in its process")
        return self._port


def _with(message: str, error: BaseException | None) -> str:
    return message if error is None else f"{message}: {type(error).__name__}: {error}"
