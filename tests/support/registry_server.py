"""A schema registry on loopback that speaks the REST protocol as far as readers and writers of a topic use it.

It answers as Apicurio Registry did when it was asked the same (decision 143).
"""

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
from urllib.parse import unquote

__all__ = ["RegistryServer"]

_MEDIA = {
    "application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json", "*/*",
}  # fmt: skip
"""What a request may accept."""


class RegistryServer:
    """Schemas by id, and by subject and version. `login` is the user and password that it asks for.

    `fails` answers of it are an error 503 first; `asked` has each path that was asked for.
    """

    def __init__(self, *, login: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.deleted: set[tuple[str, int]] = set()
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
        """Return the id of a schema, which is the subject's next version; one that is there keeps both."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        made: dict[str, Any] = {"schema": text} | ({"references": list(references)} if references else {})
        if kind != "AVRO":  # a registry leaves it out for Avro
            made["schemaType"] = kind
        number = next((number for number, known in self.schemas.items() if known == made), len(self.schemas) + 1)
        self.schemas[number] = made
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def delete(self, subject: str, version: int) -> None:
        """Delete a version of a subject; its schema is still there by its id."""
        self.deleted.add((subject, version))

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
        accepted = {kind.split(";")[0].strip() for kind in request.headers.get("Accept", "*/*").split(",")}
        if not accepted & _MEDIA:
            return 406, {"error_code": 406, "message": "HTTP 406 Not Acceptable"}
        if match := re.fullmatch(r"/schemas/ids/(\d+)", request.path):
            found = self.schemas.get(int(match[1]))
            return (200, found) if found else (404, {"error_code": 40_403, "message": f"Schema {match[1]} not found"})
        if match := re.fullmatch(r"/subjects/([^/]+)/versions/([^/]+)", request.path):
            return self._version(unquote(match[1]), match[2])
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, name: str) -> tuple[int, dict[str, Any]]:
        """Return the answer for a version of a subject; one that is deleted is not there."""
        known = enumerate(self.subjects.get(subject, []), start=1)
        there = {version: number for version, number in known if (subject, version) not in self.deleted}
        if name != "latest" and not (name.isdecimal() and int(name) >= 1):
            return 422, {"error_code": 42_202, "message": f"The specified version '{name}' is not a valid version id."}
        if not there:
            return 404, {"error_code": 40_401, "message": f"Subject '{subject}' not found."}
        version = max(there) if name == "latest" else int(name)
        if version not in there:
            return 404, {"error_code": 40_402, "message": f"Version {version} not found."}
        return 200, {"subject": subject, "version": version, "id": there[version], **self.schemas[there[version]]}
