"""The pages of a project on disk, and how tests read them."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from pathlib import Path

import httpx
from checkpoint_samples import commit, offsets, own
from fastapi import FastAPI

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.project import find_project
from penstock.supervise.records import StreamRecords
from penstock.time.clock import ManualClock
from penstock.ui.app import pages

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
INLINE = ("a", "code", "span", "strong", "time")


def ask(app: FastAPI, path: str, method: str = "GET", root_path: str = "", **more) -> httpx.Response:
    """Return what pages answer."""

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app, root_path=root_path)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **more)

    return asyncio.run(asked())


class Site:
    """The pages of a project, and the records that they show."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(NOW)

    def app(self, **more):
        return pages(lambda: find_project(given=self.root), clock=self.clock, **more)

    def get(self, path: str, method: str = "GET", root_path: str = "", **more) -> httpx.Response:
        """Return the answer of new pages, which remember nothing."""
        return ask(self.app(**more), path, method, root_path)

    def text(self, path: str, **more) -> str:
        """Return what a page says to people, without what makes it."""
        answer = self.get(path, **more)
        assert answer.status_code == 200, answer.text
        return words_of(answer.text)

    def store(self) -> LocalStore:
        return LocalStore(self.root / "checkpoints")

    def stream(self, job: str = "orders", **changes) -> None:
        StreamRecords(self.store(), job).update(lambda stream: (stream.having(**changes), None))

    def newest(self, job: str = "orders"):
        """Return the record of a stream as it stands."""
        return StreamRecords(self.store(), job).newest()

    def batches(self, count: int, job: str = "orders", *, apart: int = 0, **more) -> None:
        self.store()
        log = Log(LocalStore(self.root / "checkpoints" / job))
        open_or_create(log.store, now=0)
        owned = own(log, holder="elsewhere:1:1")
        for batch in range(count):
            owned.append(offsets(batch, owned.epoch, owned.writer))
            facts = {
                "accounting": {"source:orders": {"read": 1_234}},
                "time": NOW - SECOND - apart * (count - 1 - batch),
                **more,
            }
            owned.append(commit(batch, owned.epoch, owned.writer, **facts))

    def says(self, job: str = "orders", **body) -> None:
        StatusRecords(self.store(), job).put({"writer": "w1", "at": NOW - SECOND, "state": "running", **body})


class Reader(HTMLParser):
    """Gathers what a page shows, its tags, and its headings."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.hidden = 0

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.words.append("" if tag in INLINE else " ")
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.words.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def words_of(text: str) -> str:
    return " ".join("".join(read(text).words).split())
