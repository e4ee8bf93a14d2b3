"""Ask Kafka's brokers which topics and offsets there are, and say what their errors mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import SourceError, SourceUnavailable
from penstock.kafka.admin import Admin, Offsets, Partition, Topic
from penstock.sources.kafka_tasks import kafka_error

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["Brokers", "Offsets", "Partition", "Topic"]


class Brokers(Admin):
    """The connection of a driver that reads topics; `config` are settings of librdkafka.

    Each call raises SourceUnavailable where the brokers do not answer, and SourceRefused where they refuse the user.
    """

    unavailable = SourceUnavailable

    def __init__(self, config: Mapping[str, Any], *, read_uncommitted: bool) -> None:
        # A client of topics has no use for a consumer's setting, and says so on stderr.
        kept = {name: value for name, value in config.items() if name != "isolation.level"}
        super().__init__(kept, user="a Kafka source")
        self._read_uncommitted = read_uncommitted

    def meant(self, error: KafkaError, where: str) -> SourceError:
        """Return the error of a source."""
        return kafka_error(error, where)

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the first offset that each partition has."""
        from confluent_kafka.admin import OffsetSpec

        return self.offsets(partitions, OffsetSpec.earliest(), uncommitted=self._read_uncommitted)

    def latest(self, partitions: Collection[Partition], *, uncommitted: bool = False) -> dict[Partition, int]:
        """Return the offset after the last that may be read; with `uncommitted` after the last that there is."""
        from confluent_kafka.admin import OffsetSpec

        return self.offsets(partitions, OffsetSpec.latest(), uncommitted=uncommitted or self._read_uncommitted)

    def at_time(self, partitions: Collection[Partition], millis: int) -> dict[Partition, int]:
        """Return the offset of the first record with this timestamp or a later one, -1 where there is none."""
        from confluent_kafka.admin import OffsetSpec

        return self.offsets(partitions, OffsetSpec.for_timestamp(millis), uncommitted=self._read_uncommitted)
