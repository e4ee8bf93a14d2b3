"""Run a receiver's process inside a task of Spark, and connect it to the driver.

The task connects to the driver and sends a line with the secret of its start, then one with its host. The standard
output of the process is that connection, so its events need nobody between. The task copies commands to its standard
input. So the process ends at once when the driver is gone, when its executor is, and when the task is cancelled.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from penstock.receivers.local_process import opened

__all__ = ["ReceiverTask", "keep_alive"]

_WITHIN = 30.0
"""Seconds in which the driver accepts a connection."""
_IDLE, _EVERY, _PROBES = 15, 5, 3
"""Seconds without a word, and between probes, after which a machine that does not answer counts as gone."""
_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class ReceiverTask:
    """What one task runs.

    Attributes:
        order: The order of the process, as `penstock.receivers.process.write_order` writes it.
        host: Where the driver listens.
        port: Its port.
        secret: What the driver knows the task by.
    """

    order: bytes
    host: str
    port: int
    secret: str

    def run(self) -> None:
        """Run the process to its end; raises OSError where the driver does not accept the task."""
        with socket.create_connection((self.host, self.port), timeout=_WITHIN) as connection:
            connection.settimeout(None)  # the process writes to it as to a file
            keep_alive(connection)
            placed = json.dumps({"event": "placed", "host": socket.gethostname()})
            connection.sendall(f"{self.secret}\n{placed}\n".encode())
            process = opened(stdout=connection.fileno(), own_group=False)
            assert process.stdin is not None
            copying = threading.Thread(target=self._copy, args=[connection, process.stdin], daemon=True)
            copying.start()
            process.wait()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            copying.join(_WITHIN)

    def _copy(self, connection: socket.socket, commands: IO[bytes]) -> None:
        """Copy what the driver sends, after the order, until one of both has gone; then the process ends."""
        with suppress(OSError), commands:
            commands.write(self.order)
            commands.flush()
            while data := connection.recv(_AT_ONCE):
                commands.write(data)
                commands.flush()


def keep_alive(connection: socket.socket) -> None:
    """Let a connection end by itself when the machine at its other end is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _IDLE), ("TCP_KEEPINTVL", _EVERY), ("TCP_KEEPCNT", _PROBES)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
