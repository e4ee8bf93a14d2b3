"""Read a whole topic of Kafka back, apart from the engine: what tests and demos compare with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["read_topic"]

_AT_ONCE = 10_000
_PATIENCE = 60.0
"""Seconds without a record after which the topic is given up."""


def read_topic(servers: str, topic: str) -> pd.DataFrame:
    """Return the committed records: `partition`, `offset` (int64), and `value` (bytes, None where there is none).

    Raises TimeoutError where the broker gives no more records before the end, and KafkaException.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {"group.id": "read-back", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, "isolation.level": "read_committed", **settings})
    records: list[Message] = []
    try:
        partitions = consumer.list_topics(topic, timeout=_PATIENCE).topics[topic].partitions
        left = set(partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        last = time.monotonic()
        while left:
            for message in consumer.consume(_AT_ONCE, 0.2):
                last, error = time.monotonic(), message.error()
                if error is None:
                    records.append(message)
                elif error.code() == error._PARTITION_EOF:  # noqa: SLF001 - its public name is this
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
            if time.monotonic() - last > _PATIENCE:
                raise TimeoutError(f"{topic}: no record for {_PATIENCE:g} s, and partitions {sorted(left)} have more")
    finally:
        consumer.close()
    columns = {
        "partition": [record.partition() for record in records],
        "offset": [record.offset() for record in records],
        "value": [record.value() for record in records],
    }
    return pd.DataFrame(columns).sort_values(["partition", "offset"], ignore_index=True)
