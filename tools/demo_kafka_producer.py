"""Write the records of the Kafka demo to their topic, at speeds of the demo's choice and through a broker's death."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tools.demo_kafka_records import Record
from tools.demo_stream import DemoFailed

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

__all__ = ["Replay"]

_SILENT = logging.getLogger("tools.demo_kafka_producer")
"""Takes what librdkafka would write to stderr: that the broker is away."""
_SILENT.setLevel(logging.CRITICAL + 1)
_TICK = 0.02
"""Seconds between two portions of records."""
_ENDS_WITHIN = 240.0
"""Seconds that the last records have to be acknowledged; the broker may be away for a minute of them."""


class Replay:
    """Write records in a thread of its own until all are acknowledged, or the block ends.

    The producer is idempotent: what it sends again after a broker's death is there once, and in order.

    Args:
        records: What to write, in order.
        topic: Where to.
        servers: The broker.
        speeds: Records a second, by the index from which each holds; the first index is 0.
        stops: An index up to which it writes before `go_on` is called.
    """

    def __init__(
        self, records: Sequence[Record], *, topic: str, servers: str, speeds: Mapping[int, float], stops: int
    ) -> None:
        self._records, self._topic, self._speeds = records, topic, dict(speeds)
        self._servers, self._stops = servers, stops
        self._go_on, self._ended = threading.Event(), threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)
        self.written = 0
        self.acknowledged = 0
        self.reached: dict[int, float] = {}

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, with what it has not sent."""
        self._ended.set()
        self._go_on.set()
        self._thread.join()

    @property
    def is_done(self) -> bool:
        """Return whether every record is acknowledged; raises DemoFailed where that cannot be any more."""
        if self._trouble:
            raise DemoFailed(f"the producer failed: {self._trouble}")
        return self.acknowledged == len(self._records)

    def go_on(self) -> None:
        """Let it write past the index at which it stops."""
        self._go_on.set()

    def seconds(self, first: int, last: int) -> float:
        """Return how long the records between two indexes of `speeds` took."""
        return self.reached[last] - self.reached[first]

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._write(self._producer())
        except KafkaException as why:  # what the producer knows already, it refuses at once
            self._note_trouble(why.args[0])

    def _producer(self) -> Producer:
        from confluent_kafka import Producer

        settings: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "reconnect.backoff.max.ms": 500,
        }
        return Producer(settings, logger=_SILENT)

    def _write(self, producer: Producer) -> None:
        """Write in portions, each as large as what is due by then; after a pause nothing is made up for."""
        due, last = 0.0, time.monotonic()
        speed = self._speeds[0]
        while self.written < len(self._records) and not self._ended.is_set():
            now = time.monotonic()
            due, last = min(due + (now - last) * speed, speed), now
            for _ in range(min(int(due), len(self._records) - self.written)):
                if self.written in self._speeds and self.written not in self.reached:
                    self.reached[self.written] = now
                    speed, due = self._speeds[self.written], 0.0
                    break
                if self.written == self._stops and not self._go_on.is_set():
                    due = 0.0
                    break
                record = self._records[self.written]
                producer.produce(self._topic, record.value, partition=record.partition, on_delivery=self._delivered)
                self.written += 1
                due -= 1
            producer.poll(_TICK)
            self._ended.wait(_TICK)
        self.reached[len(self._records)] = time.monotonic()
        ends = time.monotonic() + _ENDS_WITHIN
        while len(producer) and not self._ended.is_set() and time.monotonic() < ends:
            producer.flush(_TICK)
        if self._ended.is_set():
            producer.purge()
        elif len(producer):
            self._trouble = f"{len(producer):,} records are not acknowledged after {_ENDS_WITHIN:g} s"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif not self._ended.is_set():
            self._note_trouble(error)

    def _note_trouble(self, error: KafkaError) -> None:
        self._trouble = f"{error.name()}: {error.str()}"
