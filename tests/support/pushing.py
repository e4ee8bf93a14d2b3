"""Receivers for tests, and a sender that knows what was acknowledged to it."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.receivers import Receiver
from penstock.receivers.http_push import HttpPush
from penstock.receivers.receiver import Rows

__all__ = ["Acknowledging", "Counting", "Failing", "Holding", "Restarting", "Sender", "until"]

PATIENCE = 120.0
"""Seconds; a busy machine takes long to start a process."""


def until(what: Callable[[], Any]) -> Any:
    """Wait until something is true, and return it."""
    ends = time.monotonic() + PATIENCE
    while not (result := what()):
        assert time.monotonic() < ends, "it has not come"
        time.sleep(0.01)
    return result


class Counting(Receiver):
    """Store the numbers up to a count, and run on."""

    def __init__(self, count: int) -> None:
        self.count = count

    def on_start(self) -> None:
        """Store them, all at once."""
        self.store([{"k": k} for k in range(self.count)])
        self.stopping.wait()


class Failing(Receiver):
    """Raise at each start but the later ones, which a file tells."""

    def __init__(self, mended: str) -> None:
        self.mended = mended

    def on_start(self) -> None:
        """Raise until the file is there."""
        if not Path(self.mended).exists():
            raise ZeroDivisionError("not yet")
        self.store({"k": 1})
        self.stopping.wait()


class Restarting(Receiver):
    """Store one row at each start, and ask for another start."""

    def on_start(self) -> None:
        """Have the row taken, and do not wait for it."""
        self.submit({"k": os.getpid()})
        self.report_error("the other end hangs up", ConnectionError("gone"))
        self.restart("once more")
        self.stopping.wait()

    def on_stop(self) -> None:
        """Raise, which ends nothing."""
        raise ZeroDivisionError("late")


class Acknowledging(Receiver):
    """Take lines of JSON on a port, and answer each with its number when it is durable.

    The port is in the file of the folder that has the index of the receiver as its name.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def on_start(self) -> None:
        """Listen, and serve each connection on a thread of its own."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            place = Path(self.folder, str(self.index))
            part = place.with_suffix(f".{os.getpid()}")
            part.write_text(str(server.getsockname()[1]))
            part.replace(place)
            while True:
                connection, _ = server.accept()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw") as lines, suppress(OSError):
            for line in lines:
                row = json.loads(line)
                self.store(row)
                lines.write(f"{row['k']}\n")
                lines.flush()


@dataclass
class Holding(HttpPush):
    """Never answer a request whose rows are durable, as long as the file `hold` is there; `held` says that it is so."""

    folder: str = ""

    def store(self, rows: Rows) -> None:
        """Store, and hold up what follows."""
        super().store(rows)
        if Path(self.folder, "hold").exists():
            Path(self.folder, "held").touch()
            threading.Event().wait()


class Sender:
    """Send numbers to `Acknowledging`, each once: where no answer comes, the number is given up."""

    def __init__(self, folder: Path, index: int = 0, *, every: float = 0.005) -> None:
        self.sent: list[int] = []
        self.acknowledged: list[int] = []
        self._place = folder / str(index)
        self._index = index
        self._every = every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def until_more(self, count: int) -> None:
        """Wait until so many more numbers are acknowledged."""
        known = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= known + count)

    def stop(self) -> None:
        """Send no more."""
        self._end.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while not self._end.is_set():
            with suppress(OSError, ValueError):
                self._connected(int(self._place.read_text()))
            time.sleep(0.05)

    def _connected(self, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            lines = connection.makefile("rw")
            while not self._end.is_set():
                number = 1_000_000 * self._index + len(self.sent)
                self.sent.append(number)
                lines.write(json.dumps({"k": number}) + "\n")
                lines.flush()
                answer = lines.readline()
                if not answer:
                    return
                self.acknowledged.append(int(answer))
                time.sleep(self._every)
