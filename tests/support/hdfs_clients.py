"""A client of HDFS whose requests a test spoils on their way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import requests
from hdfs import InsecureClient

from penstock.checkpoint.storage.hdfs import HdfsStore
from tools.hdfs_server import USER

PATIENT = 60.0
"""Seconds that a store waits for what does come."""

Send = Callable[..., requests.Response]
"""Sends the request as it is, or with other `data`."""
Spoil = Callable[[str, Send, bytes], requests.Response]
"""Is given what is asked (`UPLOAD` is the request to the DataNode), what sends it, and its data; answers or raises."""


class Spoilt(InsecureClient):
    """A client that lets a test answer."""

    def __init__(self, url: str, spoil: Spoil, **named: Any) -> None:
        self._spoil = spoil
        super().__init__(url, **named)

    def _request(self, method: str, url: str, **named: Any) -> requests.Response:
        send = partial(super()._request, method, url)
        asked = named.get("params", {}).get("op", "UPLOAD")
        return self._spoil(asked, lambda **other: send(**named | other), named.get("data") or b"")


class Naps:
    """A clock that moves only when it is slept on: a store's patience costs no time, and ends on a slow machine too."""

    def __init__(self) -> None:
        self.now = 0.0
        self.taken: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
        self.now += seconds


def brief_store(root: str, **named: Any) -> HdfsStore:
    """Open a store that gives up after some thirty tries."""
    clock = Naps()
    return HdfsStore(root, monotonic=clock.monotonic, sleep=clock.sleep, **named)


def spoilt_store(root: str, spoil: Spoil, *, brief: bool = False, patience: float = PATIENT) -> HdfsStore:
    """Open a store whose requests all pass through `spoil`."""
    connect = partial(Spoilt, spoil=spoil, user=USER)
    return brief_store(root, connect=connect) if brief else HdfsStore(root, patience=patience, connect=connect)


def lost(asked: str, *, done: bool, times: int = 1) -> Spoil:
    """Lose the answers to so many requests of that kind, after they were done or before."""
    left = times

    def spoil(what: str, send: Send, _: bytes) -> requests.Response:
        nonlocal left
        if what != asked or not left:
            return send()
        left -= 1
        if done:
            send()
        raise requests.ReadTimeout("spoilt")

    return spoil


def said_done(asked: str, times: int = 1) -> Spoil:
    """Answer so many requests of that kind well, and do nothing."""
    left = times

    def spoil(what: str, send: Send, _: bytes) -> requests.Response:
        nonlocal left
        if what != asked or not left:
            return send()
        left -= 1
        answer = requests.Response()
        answer.status_code = 200
        return answer

    return spoil
