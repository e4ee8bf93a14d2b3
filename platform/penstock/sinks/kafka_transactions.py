"""Write records in transactions that also say which batch they are (FACTS 8)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.kafka.client import LIBRDKAFKA
from penstock.sinks.kafka_brokers import Marker, without_producing

if TYPE_CHECKING:
    from confluent_kafka import Producer, TopicPartition

__all__ = ["Transactions"]

_ABORTING = 5.0
"""Seconds for the end of a transaction that failed: where they are too few, it ends by its own timeout."""
_SENDING = 15.0
"""Seconds for the offset. librdkafka 2.16 ignores the limit of that call (its issues 5456 and 5511). Where a broker was
restarted it may wait for ever, also once the broker is there. A new producer does not."""


@dataclass(frozen=True, slots=True)
class Transactions:
    """A producer that has the transactional id of an app, and what the group of that name is to librdkafka.

    Each method raises KafkaException. `patience` is how many seconds one answer may take.
    After TimeoutError, which `transaction` alone raises, a call of the producer runs still. Nobody may use it again.
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
    def transaction(self, marker: Marker) -> Iterator[Producer]:
        """Make what the block produces visible together with the batch as the group's offset, or nothing of it."""
        from confluent_kafka import KafkaException

        self.producer.begin_transaction()
        try:
            yield self.producer
            self._send(marker.offset(self.topic))
            self.producer.commit_transaction(self.patience)
        except TimeoutError:  # who takes the transactional id next ends the transaction
            raise
        except BaseException:
            with suppress(KafkaException):  # so that readers need not wait for its timeout
                self.producer.abort_transaction(_ABORTING)
            raise

    def _send(self, offset: TopicPartition) -> None:
        """Send the group's offset; raises TimeoutError where librdkafka does not return."""
        sent: Future[None] = Future()

        def send() -> None:
            try:
                self.producer.send_offsets_to_transaction([offset], self.group, self.patience)
            except BaseException as why:  # noqa: BLE001 - raised where the result is asked for
                sent.set_exception(why)
            else:
                sent.set_result(None)

        # A daemon: it may never end, and the driver's process does not wait for it.
        threading.Thread(target=send, name="penstock-kafka-offset", daemon=True).start()
        sent.result(min(_SENDING, self.patience))
