"""A request is answered with 200 when its rows are durable; all others are told what to do (F47, F62, F67)."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest
from pushing import until

from penstock.errors import CannotListen, EpochSealed
from penstock.receivers.http_push import ERRORS, BadBody, HttpPush

TOKEN = "sixteen letters."  # noqa: S105 - of this test


class Disk:
    """Keeps rows when it is let, or refuses them."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.free = threading.Event()
        self.free.set()
        self.error: Exception | None = None
        self.waiting = 0
        self.address = ""

    def put(self, rows: Any) -> Future[None]:
        """Keep rows, and answer when the disk is free."""
        self.waiting += 1
        self.free.wait()
        self.waiting -= 1
        done: Future[None] = Future()
        if self.error is not None:
            done.set_exception(self.error)
        else:
            self.rows += rows["value"].to_pylist()
            done.set_result(None)
        return done

    def report(self, error: str) -> None:
        """Nothing is reported."""
        raise AssertionError(error)

    def show(self, address: str) -> None:
        """Note where it listens."""
        self.address = address

    def restart(self, reason: str) -> None:
        """Nothing asks for it."""
        raise AssertionError(reason)


def decode(kind: str, body: bytes, request: str | None) -> pa.Table:
    """Return the words of a body; "bad" is a bad record, and "?" no body."""
    if kind != "text/plain":
        raise KeyError(kind)
    if body == b"?":
        raise BadBody("it is a question")
    words = [*body.decode().split(), *([request] if request else [])]
    return pa.table({"value": words, ERRORS: [word if word == "bad" else None for word in words]})


class Client:
    """Sends requests to a receiver."""

    def __init__(self, receiver: HttpPush) -> None:
        self.receiver = receiver

    def post(self, body: bytes = b"a b", headers: dict[str, str] | None = None) -> tuple[int, dict, dict]:
        """Return status, headers and content of an answer."""
        assert self.receiver.server is not None
        known = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/plain", **(headers or {})}
        connection = http.client.HTTPConnection(*self.receiver.server.server_address[:2], timeout=60)
        try:
            connection.request("POST", "/", body, {name: value for name, value in known.items() if value})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture
def disk() -> Disk:
    """Return a disk."""
    return Disk()


@pytest.fixture
def client(disk: Disk) -> Iterator[Client]:
    """Return a client of a receiver that runs in this process."""
    receiver = HttpPush(host="127.0.0.1", port=0, token=TOKEN, most=100, at_once=2, decode=decode)
    receiver.connect(disk, index=0, receivers=1)
    thread = threading.Thread(target=receiver.on_start, daemon=True)
    thread.start()
    until(lambda: receiver.server)
    yield Client(receiver)
    disk.free.set()
    receiver.on_stop()
    thread.join(30)
    assert not thread.is_alive()


def test_rows_are_counted_in_the_answer(client: Client, disk: Disk) -> None:
    """Bad ones as well; they are kept, for the quarantine."""
    assert client.post(b"a bad b", {"X-Request-Id": "r1"})[::2] == (200, {"rows": 4, "bad": 1})
    assert disk.rows == ["a", "bad", "b", "r1"]


def test_there_is_no_answer_before_the_rows_are_durable(client: Client, disk: Disk) -> None:
    """F47: a sender that has an answer may forget the rows."""
    disk.free.clear()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(client.post()[0]), daemon=True)
    thread.start()
    until(lambda: disk.waiting)
    assert answers == []
    disk.free.set()
    thread.join(30)
    assert answers == [200]


def test_more_requests_than_may_wait_are_to_come_again(client: Client, disk: Disk) -> None:
    """Their bodies are not read: memory does not grow with the number of senders."""
    disk.free.clear()
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(client.post()[0]), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: disk.waiting == 2)
    status, headers, _ = client.post()
    assert (status, headers["Retry-After"]) == (503, "1")
    disk.free.set()
    for thread in threads:
        thread.join(30)
    assert answers == [200, 200]
    assert client.post()[0] == 200


@pytest.mark.parametrize("token", ["", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", "Bearer \xe9"])
def test_a_sender_without_the_token_is_refused(client: Client, disk: Disk, token: str) -> None:
    """F67; the answer does not say the token (F62)."""
    status, headers, content = client.post(headers={"Authorization": token})
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert TOKEN not in json.dumps(content)
    assert TOKEN not in repr(client.receiver)
    assert disk.rows == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"x" * 101, {}, 413),
        (b"?", {}, 400),
        (b"a", {"Content-Type": "image/png"}, 415),
        (b"a", {"Content-Length": "-1"}, 411),
    ],
    ids=["too large", "no body", "another type", "no length"],
)
def test_a_wrong_request_is_named(client: Client, disk: Disk, body: bytes, headers: dict, status: int) -> None:
    """It is no good to send it again, and no row of it is kept."""
    assert client.post(body, headers)[0] == status
    assert disk.rows == []
    assert client.post()[0] == 200


def test_rows_that_were_not_kept_are_to_come_again(client: Client, disk: Disk) -> None:
    """The receiver is started elsewhere: the next one takes them."""
    disk.error = EpochSealed("it was started again since")
    status, headers, _ = client.post()
    assert (status, headers["Retry-After"]) == (503, "1")


def test_a_sender_that_goes_in_the_middle_leaves_nothing(client: Client, disk: Disk) -> None:
    """Half a body is no rows, and its place is free for another."""
    server = client.receiver.server
    assert server is not None
    for _ in range(3):
        connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
        connection.putrequest("POST", "/")
        for name, value in (("Authorization", f"Bearer {TOKEN}"), ("Content-Length", "50")):
            connection.putheader(name, value)
        connection.endheaders(b"a b")
        connection.close()
    assert until(lambda: client.post()[0] == 200)
    assert set(disk.rows) == {"a", "b"}


def test_a_receiver_that_ends_takes_no_more(client: Client) -> None:
    """While requests that wait are answered."""
    client.receiver.stopping.set()
    assert client.post()[0] == 503


@pytest.mark.remedy("PEN-SRC-040")
def test_an_address_that_cannot_be_had_is_named_until_it_can(disk: Disk) -> None:
    """It was a number of the system's; the supervisor shows the error in status, and starts the receiver again."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        receiver = HttpPush(host="127.0.0.1", port=port, token=TOKEN, most=100, at_once=2, decode=decode)
        receiver.connect(disk, index=0, receivers=1)
        taken = f"no receiver can listen on 127.0.0.1:{port}: Address already in use"
        with pytest.raises(CannotListen, match=taken):
            receiver.on_start()
        with pytest.raises(CannotListen, match=taken):
            receiver.on_check()
        elsewhere = HttpPush(host="192.0.2.1", port=0, token=TOKEN, most=100, at_once=2, decode=decode)
        with pytest.raises(CannotListen, match="192.0.2.1:0"):
            elsewhere.on_start()
    receiver.on_check()
    thread = threading.Thread(target=receiver.on_start, daemon=True)
    thread.start()
    until(lambda: receiver.server)
    assert Client(receiver).post()[0] == 200
    receiver.on_stop()
    thread.join(30)
