"""Write to a topic of Kafka, each batch once for readers of committed records (SEMANTICS 9.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import ConfigError, SinkNotFound
from penstock.graph.argument_types import refuse_empty, refuse_other_types
from penstock.sinks.base import CreatingSink, Publisher
from penstock.sinks.encoders import Encoder, Json
from penstock.sinks.kafka_brokers import NewTopic, SinkBrokers
from penstock.sinks.kafka_publisher import PlainPublisher, Target, TransactionalPublisher
from penstock.sinks.kafka_records import RowLayout

__all__ = ["Delivery", "Kafka"]

_TIMEOUT = "transaction.timeout.ms"
_OURS = frozenset(
    {"bootstrap.servers", "metadata.broker.list", "transactional.id", "enable.idempotence", "acks"}
    | {"request.required.acks", "delivery.report.only.error", "message.max.bytes", "group.id", "isolation.level"}
)
"""Settings that the sink gives by itself, or that would change what it promises."""


class Delivery(Enum):
    """How often a topic has a row when a batch is published again."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True, kw_only=True)
class Kafka(CreatingSink):
    """Describe a topic to write to: a record a row, with the app id and the batch in its headers.

    Args:
        topic: The name of the topic.
        servers: The brokers to ask first, as "host:port,host:port".
        key: The column that is the key of a record: text and bytes as they are, other values as their JSON without
            quotes. Of several columns the key is a JSON array. With None there are no keys.
        value: What makes the value of a record of the other columns: `Json`, `Text`, `Raw`, or an `Encoder`.
        delivery: With `Delivery.EXACTLY_ONCE` each batch is a transaction. Readers with
            `isolation.level=read_committed` see it once. `Delivery.AT_LEAST_ONCE` writes without transactions.
        partition: A column of whole numbers, the partition of each record. It is no part of the value. Where it is
            null, and without it, the key decides, as with clients in Java (murmur2).
        tombstone: A boolean column: where it is true, the record has no value. It is no part of the value.
        new_topic: How to create the topic where there is none; with None it must be there.
        options: Further settings of librdkafka by its names, such as `security.protocol` and `compression.type`.

    Raises:
        ConfigError: The topic has no name, or an option is one that the sink sets.
    """

    in_order = True
    condition = "readers with isolation.level=read_committed"

    topic: str = field(kw_only=False)
    servers: str
    key: str | Sequence[str] | None = None
    value: Encoder = field(default_factory=Json)
    delivery: Delivery = Delivery.EXACTLY_ONCE
    partition: str | None = None
    tombstone: str | None = None
    new_topic: NewTopic | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold a password
    deduplicates: bool = field(init=False, repr=False, default=True)

    def __post_init__(self) -> None:
        refuse_other_types(self)
        refuse_empty(self, "servers")
        if not self.topic:
            raise ConfigError("a Kafka sink needs the name of a topic")
        if not isinstance(self.key, str | None) and not self.key:
            raise ConfigError("key=[] names no column; without keys it is None")
        for option in self.options:
            if option in _OURS:
                raise ConfigError(f"options={{{option!r}: …}} is set by the sink itself")
        object.__setattr__(self, "deduplicates", self.delivery is Delivery.EXACTLY_ONCE)

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkSchemaMismatch for columns that do not fit, and SinkNotFound for a topic that is not there."""
        self._layout.check(schema)
        if self.new_topic is None and SinkBrokers(self._config).topic(self.topic) is None:
            raise SinkNotFound(f"there is no topic {self.topic!r}", where=self.servers)

    def create(self, schema: pa.Schema, spark: Any) -> None:
        """Create the topic where it is missing and `new_topic` says how."""
        self.check(schema)
        if self.new_topic is not None:
            SinkBrokers(self._config).create(self.topic, self.new_topic)

    def open(self, staging: CheckpointFolder, spark: Any) -> Publisher:
        """Return the publisher."""
        patience = float(self.options.get(_TIMEOUT, 60_000)) / 1_000
        target = Target(topic=self.topic, layout=self._layout, config=self._config, patience=patience)
        publisher = TransactionalPublisher if self.deduplicates else PlainPublisher
        return publisher(target, staging)

    def place(self) -> str:
        """Return the brokers and the topic."""
        return f"kafka://{self.servers}/{self.topic}"

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"Kafka topic {self.topic}, {'a transaction' if self.deduplicates else 'no transactions'} for each batch"

    @property
    def _layout(self) -> RowLayout:
        return RowLayout(key=self.key, value=self.value, partition=self.partition, tombstone=self.tombstone)

    @property
    def _config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.servers, **self.options}
