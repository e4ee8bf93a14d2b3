"""Ask Kafka's brokers about the topic of a sink, and for the newest batch that a consumer group says it has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    PenstockError,
    SinkBusy,
    SinkConflict,
    SinkDenied,
    SinkNotFound,
    SinkRefused,
    SinkUnavailable,
)
from penstock.kafka.admin import SECONDS, Admin, Topic
from penstock.kafka.client import Trouble, text_of, trouble_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["Marker", "NewTopic", "SinkBrokers", "sink_error", "without_producing"]

_STABLE = 5.0
"""Seconds that a marker may be a part of a transaction that is about to end."""
_NAP = 0.005
_LIMIT = "max.message.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """How a sink creates its topic where there is none.

    Args:
        partitions: The number of partitions.
        replication: The number of replicas; None is what the brokers do by default.
        config: Settings of the topic by Kafka's names, such as `retention.ms`.
    """

    partitions: int
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Marker:
    """The batch that an app has published into a topic, as the offset of a consumer group.

    Its metadata is the id of the topic. A tool that resets the offsets of a group writes none.
    """

    batch: int
    topic_id: str


class SinkBrokers(Admin):
    """The connection of a driver that writes to a topic; `config` are settings of librdkafka.

    Each call raises SinkUnavailable where the brokers do not answer, and SinkDenied where they reject the user.
    """

    unavailable = SinkUnavailable

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(without_producing(config), user="a Kafka sink")

    def meant(self, error: KafkaError, where: str) -> PenstockError:
        """Return the error of a sink."""
        return sink_error(error, where)

    def topic(self, name: str) -> Topic | None:
        """Return a topic, None where it is not there."""
        return self.topics([name]).get(name)

    def largest(self, topic: str) -> int | None:
        """Return the most bytes that a batch of records of a topic may have; None where the user may not ask."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        self._forget()
        try:
            config = self._answer(self._admin.describe_configs([resource], request_timeout=SECONDS)[resource], topic)
        except SinkDenied:
            return None
        return None if config is None else int(config[_LIMIT].value)

    def create(self, name: str, new: NewTopic) -> None:
        """Create a topic unless it is there; returns when it is known. Raises SinkDenied."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic as Wanted

        replicas = -1 if new.replication is None else new.replication
        wanted = Wanted(name, new.partitions, replicas, config=dict(new.config))
        self._forget()
        try:
            self._admin.create_topics([wanted], request_timeout=SECONDS)[name].result()
        except KafkaException as why:
            error = why.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            answered = error.code() > 0 and error.code() not in {
                KafkaError.REQUEST_TIMED_OUT,
                KafkaError.NOT_CONTROLLER,
            }
            if not answered or trouble_of(error) is Trouble.BUSY:
                raise self._raised(why, name) from why
            if self.topic(name) is None:  # else it is there, and the user may not create any
                raise SinkDenied(f"topic {name!r} cannot be created: {text_of(error)}", where=self.servers) from why
        if self.topic(name) is None:
            raise SinkUnavailable(f"topic {name!r} was created, and no broker knows it yet", where=self.servers)

    def marker(self, app: str, topic: str) -> Marker | None:
        """Return the newest batch that the group of an app says it has published, None for none.

        A transaction may be open that changes it. If it ends soon, this waits for it. Of one that stays open, as a dead
        driver leaves it, nothing counts.
        """
        until = time.monotonic() + _STABLE
        while (found := self._offset(app, topic, stable=True)) is None and time.monotonic() < until:
            time.sleep(_NAP)
        offset, metadata = found or self._offset(app, topic, stable=False) or (-1, "")
        return None if offset < 0 else Marker(offset, metadata)

    def _offset(self, app: str, topic: str, *, stable: bool) -> tuple[int, str] | None:
        """Return offset and metadata, -1 for none; None where a transaction is open that changes them."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

        asked = ConsumerGroupTopicPartitions(app, [TopicPartition(topic, 0)])
        self._forget()
        futures = self._admin.list_consumer_group_offsets([asked], require_stable=stable, request_timeout=SECONDS)
        try:
            at = futures[app].result().topic_partitions[0]
        except KafkaException as why:
            if why.args[0].code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                return None
            raise self._raised(why, app) from why
        if at.error is not None:
            if at.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                return None
            raise self.meant(at.error, app)
        return at.offset, at.metadata or ""


def without_producing(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those of producers, of which other clients would complain."""
    return {name: value for name, value in config.items() if name not in _OF_PRODUCERS}


def sink_error(error: KafkaError, where: str) -> PenstockError:
    """Return what an error of librdkafka means to a sink."""
    from confluent_kafka import KafkaError as Codes

    text = text_of(error)
    if error.code() in {Codes._FENCED, Codes.PRODUCER_FENCED, Codes.INVALID_PRODUCER_EPOCH}:  # noqa: SLF001 - its name
        return SinkConflict(f"another producer has the transactional id by now ({text})", where=where)
    if error.code() in {Codes.MSG_SIZE_TOO_LARGE, Codes.RECORD_LIST_TOO_LARGE, Codes.INVALID_RECORD}:
        return SinkRefused(f"the topic does not take a record ({text})", where=where)
    match trouble_of(error):
        case Trouble.REFUSED:
            return SinkDenied(f"the brokers refuse the user or a setting ({text})", where=where)
        case Trouble.UNKNOWN:
            return SinkNotFound(f"there is no such topic or partition ({text})", where=where)
        case Trouble.BUSY:
            return SinkBusy(f"the brokers cannot take the batch yet ({text})", where=where, retry_after=1.0)
        case _:
            return SinkUnavailable(f"the brokers do not answer ({text})", where=where)


_OF_PRODUCERS = frozenset(
    {"acks", "compression.type", "compression.codec", "compression.level", "linger.ms", "queue.buffering.max.ms"}
    | {"batch.size", "batch.num.messages", "message.timeout.ms", "delivery.timeout.ms", "message.max.bytes"}
    | {"partitioner", "sticky.partitioning.linger.ms", "queue.buffering.max.messages", "queue.buffering.max.kbytes"}
    | {"transaction.timeout.ms", "request.timeout.ms", "message.send.max.retries", "retries", "request.required.acks"}
    | {"enable.gapless.guarantee", "max.in.flight", "max.in.flight.requests.per.connection"}
)
