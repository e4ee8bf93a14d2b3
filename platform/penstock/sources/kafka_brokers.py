"""Ask Kafka's brokers which topics and offsets there are, and say what their errors mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from penstock.errors import ConfigError, SourceUnavailable
from penstock.sources.kafka_tasks import LIBRDKAFKA, kafka_error

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

__all__ = ["Brokers", "Offsets", "Partition", "Topic"]

_log = structlog.get_logger(__name__)
_SECONDS = 15.0
"""How long one question to the brokers may take: an election of a leader takes less."""
_AGAIN = 0.1
_UNKNOWN_SECONDS = 3.0
"""How long a topic must be unknown to be believed gone."""
Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""
Offsets = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic by its id, which no other has, not even one of the same name; and the numbers of its partitions."""

    id: str
    partitions: tuple[int, ...]


class Brokers:
    """Hold the connection of a driver to the brokers; `config` are settings of librdkafka.

    Each call raises SourceUnavailable where they do not answer, and SourceRefused where they refuse the user.
    """

    def __init__(self, config: Mapping[str, Any], *, read_uncommitted: bool) -> None:
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ModuleNotFoundError as why:
            raise ConfigError("a Kafka source needs the package confluent-kafka: pip install penstock[kafka]") from why
        self.servers = str(config["bootstrap.servers"])
        self._read_uncommitted = read_uncommitted
        self._newest: KafkaError | None = None
        self._noting: tuple[str, Future[Any] | None] = ("", None)
        # A client of topics has no use for a consumer's setting, and says so on stderr.
        kept = {name: value for name, value in config.items() if name != "isolation.level"}
        try:
            self._admin: AdminClient = AdminClient({**kept, "error_cb": self._note_error}, logger=LIBRDKAFKA)
        except KafkaException as why:
            raise ConfigError(f"librdkafka refuses a setting: {why.args[0].str()}", where=self.servers) from why

    def names(self) -> list[str]:
        """Return the names of all topics."""
        from confluent_kafka import KafkaException

        self._forget()
        try:
            return list(self._admin.list_topics(timeout=_SECONDS).topics)
        except KafkaException as why:
            raise self._raised(why, self.servers) from why

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the topics of these names that are there."""
        from confluent_kafka import TopicCollection

        if not names:
            return {}

        def described() -> dict[str, Any]:
            self._forget()
            futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=_SECONDS)
            return {name: self._answer(future, name) for name, future in futures.items()}

        # A topic that is new or moves is unknown to some brokers for a moment.
        asking = Retrying(
            retry=retry_if_exception_type(SourceUnavailable) | retry_if_result(lambda found: None in found.values()),
            wait=wait_fixed(_AGAIN),
            stop=stop_after_delay(_UNKNOWN_SECONDS),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome is not None else {},
        )
        return {
            name: Topic(str(answer.topic_id), tuple(sorted(partition.id for partition in answer.partitions)))
            for name, answer in sorted(asking(described).items())
            if answer is not None
        }

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the first offset that each partition has."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.earliest())

    def latest(self, partitions: Collection[Partition], *, uncommitted: bool = False) -> dict[Partition, int]:
        """Return the offset after the last that may be read; with `uncommitted` after the last that there is."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.latest(), uncommitted=uncommitted)

    def at_time(self, partitions: Collection[Partition], millis: int) -> dict[Partition, int]:
        """Return the offset of the first record with this timestamp or a later one, -1 where there is none."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.for_timestamp(millis))

    def note(self, group: str, offsets: Offsets) -> None:
        """Set the offsets of a consumer group. Nobody waits for the answer; the next call warns of one that failed."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        warned, before = self._noting
        if before is not None and before.done() and (why := before.exception()) is not None:
            if str(why) != warned:
                _log.warning("source.group_not_written", group=group, why=str(why))
            warned = str(why)
        noted = [TopicPartition(*at, offset) for at, offset in offsets.items()]
        if noted:
            futures = self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, noted)])
            self._noting = (warned, futures[group])

    def _offsets(
        self, partitions: Collection[Partition], spec: Any, *, uncommitted: bool = False
    ) -> dict[Partition, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        if not partitions:
            return {}
        every = uncommitted or self._read_uncommitted
        level = IsolationLevel.READ_UNCOMMITTED if every else IsolationLevel.READ_COMMITTED
        # A partition that is new or moves has no leader for a moment.
        asking = Retrying(
            retry=retry_if_exception_type(SourceUnavailable),
            wait=wait_fixed(_AGAIN),
            stop=stop_after_delay(_SECONDS),
            reraise=True,
        )
        answers = asking(self._asked, {TopicPartition(*at): spec for at in partitions}, level)
        return {(at.topic, at.partition): answer.offset for at, answer in answers.items()}

    def _asked(self, wanted: dict[TopicPartition, Any], level: Any) -> dict[TopicPartition, Any]:
        self._forget()
        futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=_SECONDS)
        answers = {at: self._answer(future, f"{at.topic}-{at.partition}") for at, future in futures.items()}
        unknown = [f"{at.topic}-{at.partition}" for at, answer in answers.items() if answer is None]
        if unknown:  # its topic has just been described
            raise SourceUnavailable("the brokers do not know the partition", where=unknown[0])
        return answers

    def _answer(self, future: Future[Any], where: str) -> Any:
        """Return an answer, None for a topic that is not there."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            return future.result()  # the request has a time limit
        except KafkaException as why:
            if why.args[0].code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:  # noqa: SLF001
                return None
            raise self._raised(why, where) from why

    def _note_error(self, error: KafkaError) -> None:
        """Keep why there is no connection: to librdkafka it may come yet, also where the brokers refuse the user."""
        self._newest = error

    def _forget(self) -> None:
        """Drop errors that are older than the question."""
        self._admin.poll(0)
        self._newest = None

    def _raised(self, why: KafkaException, where: str) -> Exception:
        """Return what an exception of librdkafka means, by why there is no connection if that is known."""
        self._admin.poll(0)
        meant = kafka_error(why.args[0], where)
        silent = self._newest is not None and isinstance(meant, SourceUnavailable)
        return kafka_error(self._newest, self.servers) if silent else meant
