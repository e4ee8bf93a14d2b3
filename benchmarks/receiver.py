"""Run a receiver under a server of TCP that sends as fast as it can: lines a second, and memory over millions of them.

The receiver has a process of its own, as in a job, and its blocks are durable. No job reads them; they are deleted at
each point, as a job does with blocks that it has read.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch
from benchmarks.report import Claim, Report, report
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.receivers.block_log import BEGINNING, BlockLog
from penstock.receivers.blocks import Place
from penstock.receivers.process import ReceiverOrder
from penstock.receivers.socket_lines import SocketLines
from penstock.receivers.supervisor import ReceiverSupervisor
from penstock.sources.socket_source import as_they_are

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_receiver"]

MIB = 2**20
_LINES, _QUICK = 10_000_000, 1_000_000
_POINTS = 10
_RATE = 200_000
"""Lines a second that are wanted."""
_FLAT = 1.1
"""What memory may be at the last point, of that at the second one."""
_PIECE = b"".join(b"%07d,sensor-%03d\n" % (number, number % 1_000) for number in range(10_000))
_LOOK = 0.02


def run_receiver(_spark: SparkSession | None, *, quick: bool) -> list[Claim]:
    """Ten million short lines through one socket, with the rate and the memory at ten points."""
    with report("receiver") as results, scratch() as root, sending() as port:
        measure(results, root.resolve() / "job", port, lines=_QUICK if quick else _LINES)
    return results.claims


@contextmanager
def sending() -> Iterator[int]:
    """Send lines to each connection for as long as it takes them, and yield the port."""
    end = threading.Event()

    def serve(server: socket.socket) -> None:
        with suppress(OSError):  # the receiver has gone, or the server was closed
            connection, _ = server.accept()
            with connection:
                while not end.is_set():
                    connection.sendall(_PIECE)

    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=serve, args=[server], daemon=True)
        sender.start()
        yield int(server.getsockname()[1])
        end.set()
    sender.join(10)


def measure(results: Report, folder: Path, port: int, *, lines: int) -> None:
    """Note rate and memory at each point, and claim both."""
    log = BlockLog(LocalFolder(folder).store(), "lines-0")
    receiver = SocketLines("127.0.0.1", port, most=1_000, skips_empty=True)
    start = BEGINNING

    def order(place: Place, rate: float | None) -> ReceiverOrder:
        return ReceiverOrder(
            receiver=receiver, index=0, receivers=1, encode=as_they_are, checkpoint=str(folder), log=log.receiver,
            place=place, interval=0.2, most=4 * MIB, rate=rate,
        )  # fmt: skip

    supervisor = ReceiverSupervisor(log, known=lambda: start, order=order, tell=lambda *_: None)
    supervisor.start()
    try:
        _until(supervisor, 1)
        points: list[tuple[str, float, float]] = []
        first, start_time = before, began = supervisor.state.rows, time.monotonic()
        for point in range(1, _POINTS + 1):
            _until(supervisor, lines * point // _POINTS)
            rows, now = supervisor.state.rows, time.monotonic()
            points.append((f"{rows:,}", (rows - before) / (now - began), _resident(supervisor)))
            before, began = rows, now
            newest = log.listed()[-1]
            log.sweep(newest)
            start = newest
        rate = (before - first) / (began - start_time)
    finally:
        supervisor.ask_to_stop()
        supervisor.wait()
    results.table("a receiver of one socket", ("lines", "lines a second", "memory, MiB"), points)
    sizes = [size for *_, size in points]
    results.claim(
        Claim("lines a second through one socket", rate, _RATE),
        Claim("memory of the receiver, times that at its second point", sizes[-1] / sizes[1], _FLAT, "x", at_most=True),
    )


def _until(supervisor: ReceiverSupervisor, rows: int) -> None:
    while supervisor.state.rows < rows:
        if supervisor.state.error is not None:
            raise RuntimeError(supervisor.state.error)
        time.sleep(_LOOK)


def _resident(supervisor: ReceiverSupervisor) -> float:
    """Return the memory of the process in MiB."""
    status = Path(f"/proc/{supervisor.pid}/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024
