"""Write records in transactions that also say which batch they are (FACTS 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.kafka.client import LIBRDKAFKA
from penstock.sinks.kafka_brokers import without_producing

if TYPE_CHECKING:
    from confluent_kafka import Producer

__all__ = ["Transactions"]

_ABORTING = 5.0
"""Seconds for the end of a transaction that failed: where they are too few, it ends by its own timeout."""


@dataclass(frozen=True, slots=True)
class Transactions:
    """A producer that has the transactional id of an app, and what the group of that name is to librdkafka.

    Each method raises KafkaException. `patience` is how many seconds one answer may take.
    """

    producer: Producer
    group: Any
    topic: str
    patience: float

    @classmethod
    def begun(
        cls, producer: Producer, app: str, topic: str, config: Mapping[str, Any], patience: float
    ) -> Transactions:
        """Take the transactional id from whom had it; returns when no transaction of it is open."""
        from confluent_kafka import Consumer

        producer.init_transactions(patience)
        consumer = Consumer({**without_producing(config), "group.id": app}, logger=LIBRDKAFKA)
        try:
            return cls(producer, consumer.consumer_group_metadata(), topic, patience)
        finally:
            consumer.close()

    @contextmanager
    def transaction(self, batch: int, topic_id: str) -> Iterator[Producer]:
        """Make what the block produces visible together with the batch as the group's offset, or nothing of it."""
        from confluent_kafka import KafkaException, TopicPartition

        self.producer.begin_transaction()
        try:
            yield self.producer
            offset = TopicPartition(self.topic, 0, batch, topic_id)
            self.producer.send_offsets_to_transaction([offset], self.group, self.patience)
            self.producer.commit_transaction(self.patience)
        except BaseException:
            with suppress(KafkaException):  # so that readers need not wait for its timeout
                self.producer.abort_transaction(_ABORTING)
            raise
