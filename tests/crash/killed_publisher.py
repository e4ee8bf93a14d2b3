"""Publish a staged batch into a topic and die at a step of the protocol: a program for test_kafka_publisher.

    python killed_publisher.py SERVERS TOPIC STAGING FILE SIZE CHECKSUM METHOD WHEN
    python killed_publisher.py SERVERS TOPIC STAGING FILE SIZE CHECKSUM produce NUMBER

METHOD is one of confluent-kafka's Producer; WHEN is before it, during it, or after it. The batch is number 1.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import confluent_kafka
import pyarrow as pa
from kafka_writing import APP

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.sinks import Kafka
from penstock.sinks.base import Publication, Staged


def die() -> None:
    """Die at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying(method: str, when: str) -> type[confluent_kafka.Producer]:
    """Return a producer that dies at a step."""
    passed = [0]

    def step(self: Any, *args: Any, **named: Any) -> Any:
        passed[0] += 1
        if when == "before" or when == str(passed[0]):
            self.flush(30)  # what was produced is in the topic
            die()
        if when == "during":
            threading.Timer(0.002, die).start()
        result = getattr(confluent_kafka.cimpl.Producer, method)(self, *args, **named)
        if when in {"after", "during"}:
            die()
        return result

    return type("Dying", (confluent_kafka.cimpl.Producer,), {method: step})


def main(servers: str, topic: str, staging: str, file: str, size: str, checksum: str, method: str, when: str) -> None:
    """Publish as far as that goes."""
    staged = Staged(path=file, size=int(size), rows=1, checksum=checksum)
    publication = Publication(app=APP, batch=1, files=[staged], schema=pa.schema([("k", pa.int64())]))
    confluent_kafka.Producer = dying(method, when)
    Kafka(topic, servers=servers).open(LocalFolder(staging), None).publish(publication)


if __name__ == "__main__":
    main(*sys.argv[1:])
