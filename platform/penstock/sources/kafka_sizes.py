"""Estimate the bytes that wait in partitions of topics, by a sample of the records that the next batch begins with.

Brokers say how many offsets wait, and nothing of their sizes. Only a limit in bytes needs the estimate (decision 142).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import SourceGap, SourceRefused, SourceUnavailable
from penstock.kafka.admin import SECONDS, Offsets, Partition
from penstock.kafka.client import LIBRDKAFKA, text_of
from penstock.sources.kafka_tasks import kafka_error, partition_name

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["RecordSizes", "Sample"]

_OFFSETS = 200
"""How many offsets of a partition make a sample, unless it has bytes enough before."""
_BYTES = 64 << 10
_AT_ONCE = 1_000
_CONSUMING = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 5,  # else a partition of few records waits a second for its end
    "fetch.message.max.bytes": _BYTES,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1 << 10,
    "receive.message.max.bytes": (1 << 31) - 1,
}


@dataclass(slots=True)
class Sample:
    """The sizes of a partition's records from one offset on, in the order in which they come.

    Attributes:
        next: The first offset that is not in the sample.
        offsets: How many offsets the sample spans; compaction and transactions leave some without a record.
        bytes: The bytes of their keys and values.
        is_done: Whether the sample is large enough, or nothing follows.
    """

    next: int
    offsets: int = 0
    bytes: int = 0
    is_done: bool = False

    def take(self, offset: int, size: int) -> None:
        """Add a record of so many bytes; one that comes a second time is in the sample already."""
        if offset < self.next or self.is_done:
            return
        self.offsets += offset + 1 - self.next
        self.bytes += size
        self.next = offset + 1
        self.is_done = self.offsets >= _OFFSETS or self.bytes >= _BYTES

    def of(self, offsets: int) -> int:
        """Return the bytes that so many offsets have, if they are as those of the sample; 0 without a record."""
        return -(-self.bytes * offsets // self.offsets) if self.offsets else 0


class RecordSizes:
    """The connection of a driver that samples records; `config` are settings of librdkafka for a consumer."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {"group.id": "penstock", **config, **_CONSUMING}
        self._consumer: Consumer | None = None

    def samples(self, starts: Offsets) -> dict[Partition, Sample]:
        """Return a sample of each partition from its offset on.

        Args:
            starts: By partition the first offset; a record or the end of what may be read, follows it.

        Raises:
            SourceUnavailable: The brokers do not answer.
            SourceRefused: They refuse the user.
        """
        from confluent_kafka import TopicPartition

        if not starts:
            return {}
        made = {at: Sample(offset) for at, offset in starts.items()}
        consumer = self._opened()
        last, trouble = time.monotonic() + SECONDS, "no record has come"
        consumer.assign([TopicPartition(*at, offset) for at, offset in starts.items()])
        try:
            while left := [at for at, sample in made.items() if not sample.is_done]:
                for message in consumer.consume(_AT_ONCE, 0.02):
                    trouble = _taken(message, made) or trouble
                if time.monotonic() > last:
                    raise SourceUnavailable(f"{trouble} for {SECONDS:.0f} s", where=partition_name(*left[0]))
        finally:
            consumer.unassign()
        return made

    def _opened(self) -> Consumer:
        from confluent_kafka import Consumer

        if self._consumer is None:
            self._consumer = Consumer(self._config, logger=LIBRDKAFKA)
        return self._consumer


def _taken(message: Message, samples: Mapping[Partition, Sample]) -> str | None:
    """Add a record to its sample; return what librdkafka mends by itself, and raise SourceRefused."""
    error, at = message.error(), (message.topic() or "", message.partition() or 0)
    if error is None:
        samples[at].take(message.offset() or 0, len(message) + len(message.key() or b""))
        return None
    if error.code() == error._PARTITION_EOF:  # noqa: SLF001 - librdkafka names its own so
        samples[at].is_done = True
        return None
    if error.code() == error.GROUP_AUTHORIZATION_FAILED:
        return None  # the group has a name, and is not used
    raised = kafka_error(error, partition_name(*at))
    if isinstance(raised, SourceRefused):
        raise raised
    if isinstance(raised, SourceGap):  # they went just now, or a new leader has just come: the next backlog knows
        raise SourceUnavailable(text_of(error), where=partition_name(*at)) from raised
    return text_of(error)
