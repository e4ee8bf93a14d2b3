"""Run one receiver in a process of its own, by the order of its supervisor: `python -m penstock.receivers.process`.

Standard input brings the order, and then commands, a JSON object a line: `{"rate": 100.0}` and `{"stop": true}`. Its
end says that the driver is gone. Standard output has the events, a JSON object a line as well; what the receiver's own
code prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from penstock.checkpoint.storage.locate import store_at
from penstock.errors import CommitUnknown, PenstockError, StorageFull, StorageUnavailable
from penstock.receivers.block_buffer import BlockBuffer
from penstock.receivers.block_log import BlockLog, BlockWriter
from penstock.receivers.blocks import Place, encoded
from penstock.receivers.receiver import Receiver, Rows

__all__ = ["ReceiverOrder", "Running", "read_order", "write_order"]

_LENGTH = 8
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between two tries of a store that does not answer; the last one for all that follow."""
_FLUSH = 10.0
"""Seconds that a receiver may take to stop, and to write what it has taken."""
_MENDS = (StorageUnavailable, CommitUnknown, StorageFull)

Send = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverOrder:
    """What a process is to receive, and where it keeps that.

    Attributes:
        receiver: The object, or the class that makes it.
        index: Its number, of `receivers`.
        encode: Makes a table of what `store` is given.
        checkpoint: The address of the job's checkpoint folder.
        log: The name of its block log.
        place: Where its blocks begin.
        interval: Seconds after which a block is cut.
        most: Bytes at which a block is cut.
        rate: Rows a second at first; None for no bound.
        replication: The copies that HDFS keeps of a block; None for as many as of other files.
    """

    receiver: Receiver | type[Receiver]
    index: int
    receivers: int
    encode: Callable[[Rows], pa.Table]
    checkpoint: str
    log: str
    place: Place
    interval: float
    most: int
    rate: float | None
    replication: int | None = None


def write_order(order: ReceiverOrder, pipe: IO[bytes]) -> None:
    """Send an order to a process."""
    from pyspark import cloudpickle

    data = cloudpickle.dumps(order)  # type: ignore[no-untyped-call]
    pipe.write(len(data).to_bytes(_LENGTH, "big") + data)
    pipe.flush()


def read_order(pipe: IO[bytes]) -> ReceiverOrder:
    """Read the order; raises EOFError where the driver is gone, and what the user's module raises.

    It loads pyspark only where the order needs it: code that has no module goes by value.
    """
    length = int.from_bytes(_exactly(pipe, _LENGTH), "big")
    order: ReceiverOrder = pickle.loads(_exactly(pipe, length))  # noqa: S301 - of the driver that started us
    return order


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError("the driver is gone")
    return data


class Running:
    """A receiver that runs: the threads of its code, one that writes blocks, and `serve` on the main one.

    `send` shows an event to the supervisor.
    """

    def __init__(self, order: ReceiverOrder, send: Send) -> None:
        self._send = send
        self._order = order
        self._asked: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        store = store_at(order.checkpoint, replication=order.replication)
        self._writer = BlockWriter(BlockLog(store, order.log), order.place)
        self._buffer = BlockBuffer(self._write, interval=order.interval, most=order.most)
        self._buffer.limit(order.rate)
        self._receiver = order.receiver() if isinstance(order.receiver, type) else order.receiver
        self._rows = 0

    # --- what the receiver is connected to -----------------------------------------------------

    def put(self, rows: Rows) -> Future[None]:
        """Take rows of the receiver's code."""
        table = self._order.encode(rows)
        if not table.num_rows:
            nothing: Future[None] = Future()
            nothing.set_result(None)
            return nothing
        return self._buffer.put(table)

    def report(self, error: str) -> None:
        """Show an error."""
        self._send({"event": "error", "error": error})

    def show(self, address: str) -> None:
        """Show where senders reach the receiver."""
        self._send({"event": "address", "address": address})

    def restart(self, reason: str) -> None:
        """End, so that another process is started."""
        self._asked.put(("restart", reason))

    # --- the life of the process ----------------------------------------------------------------

    def serve(self) -> None:
        """Receive until a stop is requested, or an error ends it."""
        self._receiver.connect(self, index=self._order.index, receivers=self._order.receivers)
        writing = threading.Thread(target=self._write_blocks, name="penstock-blocks", daemon=True)
        writing.start()
        threading.Thread(target=self._start, name="penstock-receiver", daemon=True).start()
        self._send({"event": "started"})
        reason, error = self._asked.get()
        self._receiver.stopping.set()
        stopping = threading.Thread(target=self._stop, name="penstock-stop", daemon=True)
        stopping.start()
        stopping.join(_FLUSH)
        self._buffer.close()
        writing.join(_FLUSH)
        if reason == "stopped" and not writing.is_alive():
            with suppress(PenstockError, OSError):  # nobody waits for it, and the next start would do it
                self._writer.seal()
        self._send({"event": "ended", "reason": reason, "error": error or None})

    def command(self, command: Mapping[str, Any]) -> None:
        """Do what the supervisor says."""
        if "rate" in command:
            self._buffer.limit(command["rate"])
        if command.get("stop"):
            self._asked.put(("stopped", ""))

    def _start(self) -> None:
        try:
            self._receiver.on_start()
        except BaseException as why:  # noqa: BLE001 - of the user's code; the supervisor starts it again
            if not self._receiver.stopping.is_set():
                self._asked.put(("failed", _shown(why)))

    def _stop(self) -> None:
        try:
            self._receiver.on_stop()
        except Exception as why:  # noqa: BLE001 - as above
            self.report(f"on_stop raised {_shown(why)}")

    def _write_blocks(self) -> None:
        try:
            self._buffer.run()
        except BaseException as why:  # noqa: BLE001 - of the store; the supervisor starts it again
            self._asked.put(("failed", _shown(why)))

    def _write(self, rows: pa.Table) -> None:
        """Make a block durable, however long the store is away: its senders wait, and so does all that follows."""
        stream, tries = encoded(rows), 0
        while True:
            try:
                self._writer.write(stream, rows.num_rows)
                break
            except _MENDS as why:
                if tries in {0, len(_PAUSES)}:
                    self.report(f"no block can be written: {why}")
                threading.Event().wait(_PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1
        self._rows += rows.num_rows
        self._send({"event": "stored", "rows": self._rows})


def _shown(why: BaseException) -> str:
    if isinstance(why, PenstockError):
        return str(why)
    frame = traceback.extract_tb(why.__traceback__)[-1:]
    where = f" ({frame[0].filename}:{frame[0].lineno})" if frame else ""
    return f"{type(why).__name__}: {why}{where}"


def main() -> None:
    """Run a receiver until the driver stops it or is gone."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which stops it
    lock = threading.Lock()

    def send(event: Mapping[str, Any]) -> None:
        with lock:
            events.write(json.dumps(event) + "\n")
            events.flush()

    try:
        running = Running(read_order(sys.stdin.buffer), send)
    except EOFError:
        os._exit(1)
    except BaseException as why:  # noqa: BLE001 - of the user's module or constructor
        send({"event": "ended", "reason": "failed", "error": _shown(why)})
        os._exit(1)
    threading.Thread(target=_listen, args=[running], name="penstock-commands", daemon=True).start()
    running.serve()
    os._exit(0)  # threads of the receiver may still wait for their senders


def _listen(running: Running) -> None:
    for line in sys.stdin.buffer:
        running.command(json.loads(line))
    os._exit(1)  # the driver is gone: what is not acknowledged now is the next one's


if __name__ == "__main__":
    main()
