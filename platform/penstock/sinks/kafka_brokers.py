"""Ask Kafka's brokers about the topic of a sink, and for the newest batch that a consumer group says it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    ConfigError,
    PenstockError,
    SinkBusy,
    SinkConflict,
    SinkDenied,
    SinkNotFound,
    SinkRefused,
    SinkUnavailable,
)
from penstock.graph.argument_types import refuse_other_types
from penstock.kafka.admin import SECONDS, Admin, Topic
from penstock.kafka.client import LIBRDKAFKA, Trouble, text_of, trouble_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

__all__ = ["Marker", "NewTopic", "SinkBrokers", "sink_error", "without_producing"]

_STABLE = 5.0
"""Seconds that a marker may be a part of a transaction that is about to end."""
_MEMBERS = 4
"""Consumers that are kept; each release of held rows has an app, and so a group, of its own."""
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

    def __post_init__(self) -> None:
        refuse_other_types(self)
        for name in ("partitions", "replication"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name} is {value}, and is at least 1")


@dataclass(frozen=True, slots=True)
class Marker:
    """The batch that an app has published into a topic, as the offset of a consumer group.

    Its metadata is the id of the topic, and its leader epoch the fingerprint of the batch: nobody reads records by this
    group. A tool that resets the offsets of a group writes neither, and earlier versions wrote no fingerprint.
    """

    batch: int
    topic_id: str
    fingerprint: int | None = None

    def offset(self, topic: str) -> TopicPartition:
        """Return it as what a group commits."""
        from confluent_kafka import TopicPartition

        epoch = {} if self.fingerprint is None else {"leader_epoch": self.fingerprint}
        return TopicPartition(topic, 0, self.batch, self.topic_id, **epoch)


class SinkBrokers(Admin):
    """The connection of a driver that writes to a topic; `config` are settings of librdkafka.

    Each call raises SinkUnavailable where the brokers do not answer, and SinkDenied where they reject the user.
    """

    unavailable = SinkUnavailable

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = without_producing(config)
        super().__init__(self._config, user="a Kafka sink")
        self._members: dict[str, Consumer] = {}

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
        from confluent_kafka import KafkaError, KafkaException

        try:
            return _marker(self._member(app), topic, _STABLE)
        except KafkaException as why:
            if why.args[0].code() not in {KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT}:  # noqa: SLF001
                raise self._raised(why, app) from why
        asking = self._consumer(app, "read_uncommitted")
        try:
            return _marker(asking, topic, SECONDS)
        except KafkaException as why:
            raise self._raised(why, app) from why
        finally:
            asking.close()

    def _member(self, app: str) -> Consumer:
        """Return the consumer that asks for an app, as the newest of those that are kept: it knows the coordinator."""
        asking = self._members.pop(app, None) or self._consumer(app, "read_committed")
        self._members[app] = asking
        while len(self._members) > _MEMBERS:
            self._members.pop(next(iter(self._members))).close()
        return asking

    def _consumer(self, app: str, isolation: str) -> Consumer:
        """Return a consumer of the group that reads nothing: an AdminClient crashes while the coordinator loads."""
        from confluent_kafka import Consumer

        return Consumer({**self._config, "group.id": app, "isolation.level": isolation}, logger=LIBRDKAFKA)


def _marker(asking: Consumer, topic: str, seconds: float) -> Marker | None:
    """Return what the group of a consumer has committed; raises KafkaException."""
    from confluent_kafka import KafkaException, TopicPartition

    at = asking.committed([TopicPartition(topic, 0)], timeout=seconds)[0]
    if at.error is not None:
        raise KafkaException(at.error)
    # A server that keeps no epoch of its own may answer with 0.
    return None if at.offset < 0 else Marker(at.offset, at.metadata or "", at.leader_epoch or None)


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
