"""Run a Kafka broker and a PostgreSQL server on loopback, to try a job of one's own with, until Ctrl-C.

Run as `python -m tools.try_servers [TOPIC[:PARTITIONS] …]`, or `make try-servers TOPICS="readings:3"`. The broker makes
other topics when somebody writes them. Both servers are empty at the start, and what they keep goes when they end.
"""

from __future__ import annotations

import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tools.kafka_server import KafkaServer
from tools.postgres_server import running

__all__ = ["main"]

_KAFKA = 9092


def _usual() -> int | None:
    """Return the port of Kafka that examples have, None where another process has it."""
    try:
        socket.create_server(("127.0.0.1", _KAFKA)).close()
    except OSError:
        return None
    return _KAFKA


def main(words: Sequence[str]) -> int:
    """Start both, say where they are, and wait; 2 for words that are no topics."""
    topics: dict[str, int] = {}
    for word in words:
        name, _, count = word.partition(":")
        if not name or not (count or "1").isdecimal() or int(count or "1") < 1:
            print(f"{word!r} is no topic: write NAME or NAME:PARTITIONS", file=sys.stderr)
            return 2
        topics[name] = int(count or "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as ends:
            folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="kafka-")))
            broker = KafkaServer(folder / "kafka", port=_usual(), settings={"auto.create.topics.enable": "true"})
            ends.callback(broker.end)
            broker.start()
            for name, partitions in topics.items():
                broker.create(name, partitions)
            database = ends.enter_context(running())
            print(f"Kafka       {broker.address}")
            for name, partitions in topics.items():
                print(f"  topic     {name}, {partitions} {'partition' if partitions == 1 else 'partitions'}")
            print(f"PostgreSQL  {database.dsn()}")
            print("Ctrl-C ends both, and removes what they keep.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
