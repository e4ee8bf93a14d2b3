"""A schema registry on loopback that speaks the REST protocol as far as readers and writers of a topic use it."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["RegistryServer"]


class RegistryServer:
    """Schemas by id, and by subject and version. `login` is the user and password that it asks for.

    `fails` answers of it are an error 503 first; `asked` has each path that was asked for.
    """

    def __init__(self, *, login: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.login, self.fails, self.asked = login, 0, list[str]()
        self._tls = tls
        self._port = 0

    @property
    def url(self) -> str:
        """Return where it answers."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._port}"

    @contextmanager
    def up(self) -> Iterator[RegistryServer]:
        """Have it answer within the block; it keeps its port and its schemas from one block to the next."""
        registry = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its base has it
                """Keep silent."""

        server = ThreadingHTTPServer(("127.0.0.1", self._port), Answer)
        server.daemon_threads = True
        self._port = server.server_address[1]
        if self._tls is not None:
            server.socket = self._tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def register(
        self, subject: str, schema: Any, *, references: Sequence[dict[str, Any]] = (), kind: str = "AVRO"
    ) -> int:
        """Return the id of the subject's next schema."""
        number = len(self.schemas) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[number] = {"schema": text} | ({"references": list(references)} if references else {})
        if kind != "AVRO":  # a registry leaves it out for Avro
            self.schemas[number]["schemaType"] = kind
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request as a registry does."""
        self.asked.append(request.path)
        status, body = self._answer(request)
        content = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def _answer(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, Any]]:
        if self.fails:
            self.fails -= 1
            return 503, {"error_code": 50_003, "message": "no leader"}
        if self.login is not None:
            expected = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
            if request.headers.get("Authorization") != expected:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        if match := re.fullmatch(r"/schemas/ids/(\d+)", request.path):
            found = self.schemas.get(int(match[1]))
            return (200, found) if found else (404, {"error_code": 40_403, "message": f"Schema {match[1]} not found"})
        if match := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+|latest)", request.path):
            known = self.subjects.get(match[1])
            if not known:
                return 404, {"error_code": 40_401, "message": f"Subject '{match[1]}' not found."}
            number = known[-1] if match[2] == "latest" else known[int(match[2]) - 1]
            return 200, {"subject": match[1], "version": known.index(number) + 1, "id": number, **self.schemas[number]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
