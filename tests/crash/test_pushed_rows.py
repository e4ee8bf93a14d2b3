"""Real senders push through real processes, which are killed: what was answered is read once (F47)."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pushing import Holding, until
from source_reading import end_of_batch

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.policies import BadRecord
from penstock.receivers import Receiver
from penstock.receivers.http_push import HttpPush
from penstock.receivers.socket_lines import SocketLines
from penstock.receivers.supervisor import ReceiverSupervisor
from penstock.sources import Json
from penstock.sources.http_source import METADATA, Bodies
from penstock.sources.received import Receiving, ReceivingReader
from penstock.sources.received_tasks import RowsOfBlock, StoredRows
from penstock.sources.socket_source import RecordRows, as_they_are
from penstock.testing.source_contract import read

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("k", pa.int64())])
TOKEN = "sixteen letters."  # noqa: S105 - of this test


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def running(
    folder: Path, receiver: Receiver, form: RowsOfBlock, *, schema: pa.Schema = SCHEMA, rate: float | None = None
) -> Iterator[tuple[ReceivingReader, ReceiverSupervisor]]:
    """Run a receiver as a driver does, and yield the reader of its source, and its supervisor."""
    receiving = Receiving(receiver, receivers=1, encode=as_they_are, interval=0.01, most=1 << 20)
    reader = ReceivingReader(schema, receiving, form, on_bad_record=BadRecord.QUARANTINE, splits=1)
    there = LocalFolder(folder)
    there.store()
    reader.keep_in(there, "s")
    blocks = reader.log("0")
    assert blocks is not None
    supervisor = ReceiverSupervisor(
        blocks,
        known=lambda: reader.known(0, None),
        order=lambda place, rate: reader.order(0, place, rate),
        tell=lambda event, state: None,
        rate=rate,
    )
    supervisor.start()
    yield reader, supervisor
    supervisor.ask_to_stop()
    supervisor.wait()


def rows_of(reader: ReceivingReader) -> pa.Table:
    """Return what a batch would read."""
    return read(reader, reader.span(None, end_of_batch(reader, None)))


def numbers(reader: ReceivingReader) -> list[int]:
    """Return the numbers that a batch would read."""
    return [k for k in rows_of(reader)["k"].to_pylist() if k is not None]


def posted(port: int, number: int, **more: str) -> bool:
    """Post a number, and return whether it was answered with 200; `more` are headers."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection, suppress(OSError):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-ndjson", **more}
        connection.request("POST", "/", json.dumps({"k": number}), headers)
        return connection.getresponse().status == 200
    return False


@pytest.mark.fault("F47")
def test_a_request_that_was_answered_is_kept_once_though_its_receiver_dies(tmp_path: Path) -> None:
    """SIGKILL while ten senders post; each number is posted once."""
    port = free_port()
    receiver = HttpPush(
        host="127.0.0.1", port=port, token=TOKEN, most=1_000, at_once=32, decode=Bodies(Json("k long"), SCHEMA, ())
    )
    answered: list[int] = []
    end = threading.Event()

    def send(sender: int) -> None:
        for number in range(sender * 1_000_000, (sender + 1) * 1_000_000):
            if posted(port, number):
                answered.append(number)
            if end.wait(0.02):
                return

    with running(tmp_path / "job", receiver, StoredRows(SCHEMA)) as (reader, supervisor):
        senders = [threading.Thread(target=send, args=[sender], daemon=True) for sender in range(10)]
        for sender in senders:
            sender.start()
        for kills in (1, 2):
            count = len(answered)
            until(lambda count=count: len(answered) > count + 50)
            os.kill(until(lambda: supervisor.pid), signal.SIGKILL)
            until(lambda kills=kills: supervisor.state.restarts == kills)
        count = len(answered)
        until(lambda: len(answered) > count + 50)
        end.set()
        for sender in senders:
            sender.join(60)
    kept = numbers(reader)
    assert len(kept) == len(set(kept))
    assert set(answered) <= set(kept)


@pytest.mark.fault("F47")
def test_rows_of_a_receiver_that_dies_before_its_answer_are_kept(tmp_path: Path) -> None:
    """SIGKILL when they are durable: the sender has no answer and repeats them, and both have the sender's id."""
    columns = pa.schema([*SCHEMA, *METADATA.items()])
    port, hold = free_port(), tmp_path / "hold"
    receiver = Holding(
        host="127.0.0.1", port=port, token=TOKEN, most=1_000, at_once=32, folder=str(tmp_path),
        decode=Bodies(Json("k long"), SCHEMA, (*METADATA,)),
    )  # fmt: skip
    answers: list[bool] = []
    request = {"X-Request-Id": "r7"}
    with running(tmp_path / "job", receiver, StoredRows(columns), schema=columns) as (reader, supervisor):
        until(lambda: supervisor.state.address)
        assert posted(port, 6, **{"X-Request-Id": "r6"})
        hold.touch()
        sending = threading.Thread(target=lambda: answers.append(posted(port, 7, **request)), daemon=True)
        sending.start()
        until((tmp_path / "held").exists)
        assert (numbers(reader), answers) == ([6, 7], [])
        hold.unlink()
        os.kill(until(lambda: supervisor.pid), signal.SIGKILL)
        sending.join(60)
        assert (numbers(reader), answers) == ([6, 7], [False])
        until(lambda: posted(port, 7, **request))
    twice = {"k": 7, "_request": "r7", "_row": 0}
    assert rows_of(reader).select(columns.names).to_pylist() == [{"k": 6, "_request": "r6", "_row": 0}, twice, twice]


def resident(pid: int) -> int:
    """Return the most bytes of memory that a process has had."""
    (peak,) = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line]
    return int(peak) << 10


@pytest.mark.fault("F47")
def test_a_sender_that_floods_is_held_up_rather_than_memory_grown(tmp_path: Path) -> None:
    """SEMANTICS 8.6: by a low rate. Once there is none, memory stays flat, and each of its lines is read once."""
    lines = [b'{"k": %d, "text": "%s"}\n' % (k, b"x" * 1_000) for k in range(80_000)]
    sent = [0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        receiver = SocketLines("127.0.0.1", server.getsockname()[1], most=2_000, skips_empty=True)
        form = RecordRows(Json("k long"), SCHEMA)
        with running(tmp_path / "job", receiver, form, rate=10.0) as (reader, supervisor):
            connection, _ = server.accept()

            def flood() -> None:
                for first in range(0, len(lines), 50):
                    connection.sendall(b"".join(lines[first : first + 50]))
                    sent[0] += 50

            flooding = threading.Thread(target=flood, daemon=True)
            flooding.start()
            until(lambda: not flooding.is_alive() or not select.select([], [connection], [], 1.0)[1])
            assert flooding.is_alive(), "it is held up"
            assert sent[0] < len(lines) / 4
            pid = until(lambda: supervisor.pid)
            held = resident(pid)
            supervisor.limit(None)
            flooding.join(120)
            connection.close()
            until(lambda: supervisor.state.rows == len(lines))
            assert resident(pid) - held < sum(map(len, lines)) / 2
    assert numbers(reader) == [*range(len(lines))]


@pytest.mark.fault("F47")
def test_lines_in_blocks_outlive_their_receiver(tmp_path: Path) -> None:
    """A server that goes on sending, to one connection after the other, loses the newest lines at most."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        receiver = SocketLines("127.0.0.1", server.getsockname()[1], most=1_000, skips_empty=True)
        with running(tmp_path / "job", receiver, RecordRows(Json("k long"), SCHEMA)) as (reader, supervisor):
            first, _ = server.accept()
            first.sendall(b"".join(b'{"k": %d}\n' % k for k in range(1_000)))
            until(lambda: supervisor.state.rows == 1_000)
            os.kill(until(lambda: supervisor.pid), signal.SIGKILL)
            second, _ = server.accept()
            second.sendall(b'{"k": 1000}\n{"k": 10')
            second.close()
            until(lambda: supervisor.state.rows == 1_002)
            first.close()
    assert numbers(reader) == [*range(1_001)]
