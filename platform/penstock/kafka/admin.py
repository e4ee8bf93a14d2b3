"""Ask Kafka's brokers which topics there are, with the patience that a cluster needs while topics move."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from penstock.errors import ConfigError, PenstockError
from penstock.kafka.client import LIBRDKAFKA, Trouble, trouble_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

__all__ = ["SECONDS", "Admin", "Offsets", "Partition", "Topic"]

SECONDS = 15.0
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


class Admin:
    """The connection of a driver to the brokers; subclasses say which errors they raise.

    Args:
        config: Settings of librdkafka; `bootstrap.servers` is one of them.
        user: What needs the package confluent-kafka, for the error where it is missing.

    Raises:
        ConfigError: confluent-kafka is missing, or librdkafka refuses a setting.
    """

    unavailable: ClassVar[type[PenstockError]]
    """What `meant` returns for brokers that are away: such a question is asked again for a while."""

    def __init__(self, config: Mapping[str, Any], *, user: str) -> None:
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ModuleNotFoundError as why:
            raise ConfigError(f"{user} needs the package confluent-kafka: pip install penstock[kafka]") from why
        self.servers = str(config["bootstrap.servers"])
        # Why there is no connection, the newest: to librdkafka it may come yet, also where the brokers refuse the user.
        # A callback of this object would keep both alive, with threads and open files, until Python collects cycles.
        self._errors: deque[KafkaError] = deque(maxlen=1)
        try:
            self._admin: AdminClient = AdminClient({**config, "error_cb": self._errors.append}, logger=LIBRDKAFKA)
        except KafkaException as why:
            raise ConfigError(f"librdkafka refuses a setting: {why.args[0].str()}", where=self.servers) from why

    @abstractmethod
    def meant(self, error: KafkaError, where: str) -> PenstockError:
        """Return what an error means to whom the connection belongs."""

    def names(self) -> list[str]:
        """Return the names of all topics."""
        from confluent_kafka import KafkaException

        self._forget()
        try:
            return list(self._admin.list_topics(timeout=SECONDS).topics)
        except KafkaException as why:
            raise self._raised(why, self.servers) from why

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the topics of these names that are there."""
        from confluent_kafka import TopicCollection

        if not names:
            return {}

        def described() -> dict[str, Any]:
            self._forget()
            futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=SECONDS)
            return {name: self._answer(future, name) for name, future in futures.items()}

        # A topic that is new or moves is unknown to some brokers for a moment.
        asking = Retrying(
            retry=retry_if_exception_type(self.unavailable) | retry_if_result(lambda found: None in found.values()),
            wait=wait_fixed(_AGAIN),
            stop=stop_after_delay(_UNKNOWN_SECONDS),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome is not None else {},
        )
        return {
            name: Topic(str(answer.topic_id), tuple(sorted(partition.id for partition in answer.partitions)))
            for name, answer in sorted(asking(described).items())
            if answer is not None
        }

    def offsets(
        self, partitions: Collection[Partition], spec: Any, *, uncommitted: bool = False
    ) -> dict[Partition, int]:
        """Return an offset of each partition.

        Args:
            partitions: Those of topics that have just been described.
            spec: Which offset, an `OffsetSpec` of confluent-kafka.
            uncommitted: Whether records of transactions that are open count as well.
        """
        from confluent_kafka import IsolationLevel, TopicPartition

        if not partitions:
            return {}
        level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        # A partition that is new or moves has no leader for a moment.
        asking = Retrying(
            retry=retry_if_exception_type(self.unavailable),
            wait=wait_fixed(_AGAIN),
            stop=stop_after_delay(SECONDS),
            reraise=True,
        )
        answers = asking(self._asked, {TopicPartition(*at): spec for at in partitions}, level)
        return {(at.topic, at.partition): answer.offset for at, answer in answers.items()}

    def _asked(self, wanted: dict[TopicPartition, Any], level: Any) -> dict[TopicPartition, Any]:
        self._forget()
        futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=SECONDS)
        answers = {at: self._answer(future, f"{at.topic}-{at.partition}") for at, future in futures.items()}
        unknown = [f"{at.topic}-{at.partition}" for at, answer in answers.items() if answer is None]
        if unknown:  # its topic has just been described
            raise self.unavailable("the brokers do not know the partition", where=unknown[0])
        return answers

    def _answer(self, future: Future[Any], where: str) -> Any:
        """Return an answer, None for a topic that is not there."""
        from confluent_kafka import KafkaException

        try:
            return future.result()  # the request has a time limit
        except KafkaException as why:
            if trouble_of(why.args[0]) is Trouble.UNKNOWN:
                return None
            raise self._raised(why, where) from why

    def _forget(self) -> None:
        """Drop errors that are older than the question."""
        self._admin.poll(0)
        self._errors.clear()

    def _raised(self, why: KafkaException, where: str) -> PenstockError:
        """Return what an exception of librdkafka means, by why there is no connection if that is known."""
        self._admin.poll(0)
        meant = self.meant(why.args[0], where)
        silent = self._errors and isinstance(meant, self.unavailable)
        return self.meant(self._errors[0], self.servers) if silent else meant
