"""Ask a schema registry, by the REST protocol that Confluent's, Karapace's and Apicurio's speak."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.avro.schema import SchemaText
from penstock.errors import CertificateRefused, SchemaNotFound, SourceRefused, SourceUnavailable

if TYPE_CHECKING:
    import requests

__all__ = ["NotRegistered", "SchemaRegistry"]

_SECONDS = 15.0
"""How long a registry may fail to answer: one that starts again is back by then."""
_AGAIN = 0.5
_ANSWER = 10.0
_NOT_THERE = range(40_400, 40_500)
"""The registry's own numbers of what it has not; a 404 without one comes from another server."""
_REFUSED = {401, 403}
_MEDIA = "application/vnd.schemaregistry.v1+json, application/json"


class NotRegistered(LookupError):
    """The registry has no Avro schema of an id or a subject."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry and who asks it. A process keeps connections, and schemas by their ids, which never change.

    Each call raises SourceUnavailable where it does not answer, SourceRefused where it refuses the user or is no
    registry, and CertificateRefused.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def by_id(self, number: int) -> SchemaText:
        """Return the schema of an id; raises NotRegistered."""
        return _schema(self, f"/schemas/ids/{number}")

    def latest(self, subject: str) -> SchemaText:
        """Return the newest schema of a subject; raises SchemaNotFound."""
        return self.latest_with_id(subject)[1]

    def latest_with_id(self, subject: str) -> tuple[int, SchemaText]:
        """Return the newest schema of a subject after its id; raises SchemaNotFound."""
        try:
            answer = self.get(f"/subjects/{quote(subject, safe='')}/versions/latest")
            return int(answer["id"]), self.text(answer)
        except NotRegistered as why:
            raise SchemaNotFound(f"no schema of Avro for the subject {subject!r}: {why}", where=self.url) from why

    def text(self, answer: dict[str, Any]) -> SchemaText:
        """Return the schema in an answer, and those that it refers to."""
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise NotRegistered(f"it is {answer['schemaType']}")
        before: list[str] = []
        for reference in answer.get("references") or ():
            path = f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
            inner = _schema(self, path)
            before += [text for text in (*inner.references, inner.text) if text not in before]
        return SchemaText(str(answer["schema"]), tuple(before))

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer at an address below the registry's; raises NotRegistered."""
        from requests.exceptions import RequestException, SSLError
        from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

        asking = Retrying(
            retry=retry_if_exception_type(SourceUnavailable),
            wait=wait_fixed(_AGAIN),
            stop=stop_after_delay(_SECONDS),
            reraise=True,
        )
        try:
            return asking(self._ask, path)
        except SSLError as why:
            raise CertificateRefused(str(why), where=self.url) from why
        except RequestException as why:  # a URL that is none, a redirect without end
            raise SourceRefused(f"{type(why).__name__}: {why}", where=self.url) from why

    def _ask(self, path: str) -> dict[str, Any]:
        from requests.exceptions import ChunkedEncodingError, ConnectionError, SSLError, Timeout  # noqa: A004

        try:
            response = _session(self).get(self.url.rstrip("/") + path, timeout=_ANSWER)
        except SSLError:
            raise
        except (ConnectionError, Timeout, ChunkedEncodingError) as why:
            raise SourceUnavailable(f"{type(why).__name__}: {why}", where=self.url) from why
        status = response.status_code
        if status in _REFUSED:
            raise SourceRefused(f"status {status} for user {self.user!r}", where=self.url)
        if status >= 500 or status in {408, 429}:  # noqa: PLR2004 - RFC 9110
            raise SourceUnavailable(f"status {status}", where=self.url)
        answer = _object(response)
        if status == 404 and answer.get("error_code") in _NOT_THERE:  # noqa: PLR2004
            raise NotRegistered(str(answer.get("message", path)))
        if status != 200 or "schema" not in answer:  # noqa: PLR2004
            raise SourceRefused(f"status {status} at {path}, which no schema registry answers", where=self.url)
        return answer


def _object(response: requests.Response) -> dict[str, Any]:
    try:
        answer = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


@lru_cache(maxsize=1_024)
def _schema(registry: SchemaRegistry, path: str) -> SchemaText:
    """Return the schema at an address that always has the same one; an error is asked for again."""
    return registry.text(registry.get(path))


@lru_cache(maxsize=16)
def _session(registry: SchemaRegistry) -> requests.Session:
    """Return the connections of a process to a registry."""
    import requests

    session = requests.Session()
    session.headers["Accept"] = _MEDIA
    if registry.user is not None:
        session.auth = (registry.user, registry.password or "")
    return session
