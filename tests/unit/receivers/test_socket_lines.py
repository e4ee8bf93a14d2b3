"""Lines come from a socket as its server sends them, however the stream is cut (SEMANTICS 9.3, F41, F47)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pushing import until

from penstock.receivers.socket_lines import RECORDS, Lines, SocketLines, records

MOST = 5
TEXT = st.binary(max_size=40).map(lambda data: data.translate(bytes.maketrans(b"\x00\x01\x02\x03", b"\n\n\r\n")))


def model(stream: bytes, most: int) -> list[tuple[bytes, str | None]]:
    """Return the lines of a whole stream."""
    *ended, rest = stream.split(b"\n")
    whole = [part.removesuffix(b"\r") for part in ended]
    lines: list[tuple[bytes, str | None]] = [
        (line, None) if len(line) <= most else (line[:most], f"the line has more than {most} bytes") for line in whole
    ]
    if len(rest) > most + 1:
        lines.append((rest[:most], f"the line has more than {most} bytes"))
    elif rest:
        lines.append((rest, "the connection ended inside the line"))
    return lines


@given(stream=TEXT, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_lines_are_the_same_however_the_stream_is_cut(stream: bytes, cuts: list[int]) -> None:
    """Long lines are cut, and half a line at the end is a bad record; nothing is passed over."""
    places = [0, *sorted(cuts), len(stream)]
    lines = Lines(MOST)
    came = [line for first, end in pairwise(places) for line in lines.feed(stream[first:end])]
    assert came + lines.end() == model(stream, MOST)
    assert lines.end() == []


def test_records_have_the_columns_of_a_block() -> None:
    """Also none."""
    assert records([]).schema == RECORDS
    assert records([(b"a", None), (b"b", "half")]).to_pylist() == [
        {"value": b"a", "error": None},
        {"value": b"b", "error": "half"},
    ]


class Kept:
    """What a receiver has stored and reported."""

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, str | None]] = []
        self.errors: list[str] = []

    def put(self, rows: Any) -> Future[None]:
        """Keep lines."""
        assert isinstance(rows, pa.Table)
        self.lines += [(row["value"], row["error"]) for row in rows.to_pylist()]
        return Future()

    def report(self, error: str) -> None:
        """Keep an error."""
        self.errors.append(error)

    def show(self, address: str) -> None:
        """Keep the address."""
        self.address = address

    def restart(self, reason: str) -> None:
        """Never happens."""
        raise AssertionError(reason)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Return a server on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def connected(server: socket.socket) -> Iterator[tuple[Kept, socket.socket]]:
    """Return what a receiver keeps that connects to the server."""
    kept, receiver = Kept(), SocketLines("127.0.0.1", server.getsockname()[1], most=100, skips_empty=True)
    receiver.connect(kept, index=0, receivers=1)
    thread = threading.Thread(target=receiver.on_start, daemon=True)
    thread.start()
    yield kept, server
    receiver.stopping.set()
    thread.join(30)
    assert not thread.is_alive()


def test_a_sender_that_dies_in_a_line_is_connected_to_again(connected: tuple[Kept, socket.socket]) -> None:
    """Half of a line is a bad record, and the lines of the next connection follow."""
    kept, server = connected
    first, _ = server.accept()
    first.sendall(b"one\n\ntwo\nthr")
    first.close()
    second, _ = server.accept()
    with second:
        second.sendall(b"four\n")
        until(lambda: len(kept.lines) == 4)
    half = "the connection ended inside the line"
    assert kept.lines == [(b"one", None), (b"two", None), (b"thr", half), (b"four", None)]
    assert "the server has closed the connection" in kept.errors[0]
    assert kept.address == f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
def test_a_server_that_is_away_is_tried_until_it_is_there(server: socket.socket) -> None:
    """It is reported once, and not with each try."""
    port = server.getsockname()[1]
    server.close()
    kept, receiver = Kept(), SocketLines("127.0.0.1", port, most=100, skips_empty=False)
    receiver.connect(kept, index=0, receivers=1)
    thread = threading.Thread(target=receiver.on_start, daemon=True)
    thread.start()
    until(lambda: receiver._failures >= 3)
    assert len(kept.errors) == 1
    assert "ConnectionRefusedError" in kept.errors[0]
    with socket.create_server(("127.0.0.1", port)) as again:
        connection, _ = again.accept()
        with connection:
            connection.sendall(b"\nhere\n")
            until(lambda: len(kept.lines) == 2)
        receiver.stopping.set()
        thread.join(30)
    assert kept.lines == [(b"", None), (b"here", None)]
