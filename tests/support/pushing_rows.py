"""Senders for Socket and Http, which know what they have sent, and what was acknowledged to them."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from cli_runner import PATIENCE

from tools.waiting import until

__all__ = ["LineServer", "Poster", "row"]

_START = datetime(2024, 1, 1, tzinfo=UTC)


def row(number: int, text: str = "") -> dict[str, Any]:
    """Return the row of a number: a second of event time after the one before it."""
    at = _START + timedelta(seconds=number % 1_000_000)
    return {"k": number, "sender": f"s{number // 1_000_000}", "at": at.isoformat().replace("+00:00", "Z"), "text": text}


class LineServer:
    """Listen for a receiver, and send it numbers from `first` on, as long as it is connected.

    Attributes:
        connections: The numbers that were sent by each connection, in their order.
    """

    def __init__(self, first: int, *, every: float = 0.01) -> None:
        self.connections: list[list[int]] = []
        self._next = first
        self._every = every
        self._end = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def until_more(self, count: int) -> None:
        """Wait until so many more numbers are sent."""
        wanted = self.sent() + count
        until(lambda: self.sent() >= wanted, "lines to be asked for", seconds=PATIENCE)

    def sent(self) -> int:
        """Return how many numbers are sent."""
        return sum(map(len, self.connections))

    def stop(self) -> None:
        """Send no more."""
        self._end.set()
        self._server.close()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        self._server.settimeout(0.1)
        while not self._end.is_set():
            with suppress(OSError):
                connection, _ = self._server.accept()
                self._connected(connection)

    def _connected(self, connection: socket.socket) -> None:
        sent: list[int] = []
        self.connections.append(sent)
        with connection:
            while not self._end.wait(self._every):
                sent.append(self._next)
                self._next += 1
                connection.sendall(json.dumps(row(sent[-1])).encode() + b"\n")


class Poster:
    """Post rows from number `first` on, each once: where no answer comes, they are given up.

    Attributes:
        sent: The numbers of all requests.
        acknowledged: Those of requests that were answered with 200.
    """

    def __init__(self, first: int, port: int, token: str, *, rows: Callable[[int], int], text: str) -> None:
        self.sent: list[int] = []
        self.acknowledged: list[int] = []
        self._first, self._port, self._token = first, port, token
        self._rows, self._text = rows, text
        self._requests = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def until_more(self, count: int) -> None:
        """Wait until so many more rows are acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted, "rows to be acknowledged", seconds=PATIENCE)

    def stop(self) -> None:
        """Send no more."""
        self._end.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while not self._end.is_set():
            numbers = [self._first + len(self.sent) + index for index in range(self._rows(self._requests))]
            with suppress(OSError, http.client.HTTPException):
                if self._posted(numbers):
                    self.acknowledged += numbers
            time.sleep(0.05)

    def _posted(self, numbers: list[int]) -> bool:
        """Post rows; raises OSError, and the rows are not sent, where nobody listens."""
        body = "\n".join(json.dumps(row(number, self._text)) for number in numbers).encode()
        headers = {"Content-Type": "application/x-ndjson", "Authorization": f"Bearer {self._token}"}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.connect()
            self._requests += 1
            self.sent += numbers
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status == http.HTTPStatus.OK
        finally:
            connection.close()
