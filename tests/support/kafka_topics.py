"""Read what a topic shows, as a consumer with `isolation.level=read_committed` sees it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

__all__ = ["Record", "numbers_in", "records_in", "rows_in"]

_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes] = field(hash=False)


def records_in(servers: str, topic: str, *, isolation: str = "read_committed", **options: Any) -> list[Record]:
    """Return the records of a topic, partition by partition; none of a topic that is not there."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "tests", "enable.auto.commit": False, "enable.partition.eof": True}
        | {"auto.offset.reset": "earliest", "isolation.level": isolation, "fetch.wait.max.ms": 20} | options
    )  # fmt: skip
    try:
        there = consumer.list_topics(timeout=_PATIENCE).topics
        if topic not in there:
            return []
        left = set(there[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        records, until = [], time.monotonic() + _PATIENCE
        while left:
            assert time.monotonic() < until, f"{topic} is not read to its end"
            for message in consumer.consume(1_000, 0.02):
                error = message.error()
                if error is None:
                    headers = dict(message.headers() or ())
                    records.append(Record(message.partition(), message.key(), message.value(), headers))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
        return sorted(records, key=lambda record: record.partition)
    finally:
        consumer.close()


def rows_in(servers: str, topic: str) -> list[Any]:
    """Return the JSON of the committed records of a topic."""
    return [json.loads(record.value) for record in records_in(servers, topic) if record.value is not None]


def numbers_in(servers: str, topic: str, name: str = "k") -> list[int]:
    """Return one member of the committed records of a topic, sorted."""
    return sorted(row[name] for row in rows_in(servers, topic))
