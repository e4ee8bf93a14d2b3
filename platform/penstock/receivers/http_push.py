"""Receive rows that senders post by HTTP; a request is answered when its rows are durable, and not before."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

from penstock.errors import CannotListen, PenstockError, RowsTooLarge
from penstock.receivers.receiver import Receiver

__all__ = ["ERRORS", "BadBody", "Decode", "HttpPush"]

ERRORS = "_penstock_error"
"""The column of decoded rows with what is wrong with each, null for a good one."""
_RETRY_AFTER = {"Retry-After": "1"}
_SILENCE = 30.0
"""Seconds that a connection may be silent."""


class BadBody(ValueError):
    """A body is not what its Content-Type says."""


Decode = Callable[[str, bytes, str | None], pa.Table]
"""Makes rows of a Content-Type, a body, and the X-Request-Id; raises BadBody, and LookupError for another type."""


@dataclass
class HttpPush(Receiver):
    """Serve POST requests on one port.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for a free one.
        token: What senders must know.
        most: The bytes that a body may have.
        at_once: How many requests may wait for their rows to be durable; others are to try again.
        decode: Makes rows of a body.
    """

    host: str
    port: int
    token: str = field(repr=False)
    most: int
    at_once: int
    decode: Decode
    server: ThreadingHTTPServer | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.listens = f"{self.host}:{self.port}" if self.port else None

    def on_check(self) -> None:
        """Raise CannotListen where the address cannot be had."""
        self._listening().server_close()

    def on_start(self) -> None:
        """Serve until the receiver has to end; raises CannotListen."""
        self.server = self._listening()
        self.report_address(f"{self.host}:{self.server.server_port}")
        self.server.serve_forever(poll_interval=0.2)

    def _listening(self) -> ThreadingHTTPServer:
        try:
            return _Server((self.host, self.port), _Handler, self)
        except OSError as why:
            problem = f"no receiver can listen on {self.host}:{self.port}: {why.strerror}"
            raise CannotListen(problem) from why

    def on_stop(self) -> None:
        """Take no more requests; those that wait are answered."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], receiver: HttpPush) -> None:
        self.receiver = receiver
        self.room = threading.BoundedSemaphore(receiver.at_once)
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a connection that has broken: its sender has no answer, and knows that."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "penstock"
    sys_version = ""
    timeout = _SILENCE

    def do_POST(self) -> None:
        """Answer a request."""
        receiver = self.server.receiver
        if not self._is_known():
            self._refuse(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a request needs a Content-Length")
            return
        if int(length) > receiver.most:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has {receiver.most:,} bytes at most")
            return
        # Before the body is read: what waits here waits in memory.
        if receiver.stopping.is_set() or not self.server.room.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "rows cannot be kept as fast as they come", _RETRY_AFTER)
            return
        try:
            body = self.rfile.read(int(length))
            if len(body) == int(length):  # else the sender has gone, and has no answer
                self._keep(receiver, body)
        finally:
            self.server.room.release()

    def _keep(self, receiver: HttpPush, body: bytes) -> None:
        kind = self.headers.get_content_type()
        try:
            rows = receiver.decode(kind, body, self.headers.get("X-Request-Id"))
        except LookupError:
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"no rows are read of {kind}")
            return
        except BadBody as why:
            self._refuse(HTTPStatus.BAD_REQUEST, str(why))
            return
        try:
            receiver.store(rows)
        except RowsTooLarge as why:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why.what)
        except (PenstockError, RuntimeError, OSError):  # the receiver ends; another one is started
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the rows were not kept", _RETRY_AFTER)
        else:
            bad = rows.num_rows - rows[ERRORS].null_count
            self._answer(HTTPStatus.OK, {"rows": rows.num_rows, "bad": bad})

    def _is_known(self) -> bool:
        words = self.headers.get("Authorization", "").encode("utf-8", "replace")
        return hmac.compare_digest(words, b"Bearer " + self.server.receiver.token.encode())

    def _refuse(self, status: HTTPStatus, why: str, headers: Mapping[str, str] | None = None) -> None:
        self.close_connection = True  # the body may not have been read
        self._answer(status, {"error": why}, {"Connection": "close", **(headers or {})})

    def _answer(self, status: HTTPStatus, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        named = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
        for name, value in named.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as http.server calls it
        """Write nothing: requests are counted by their rows."""
