"""Find the newest batch of an app in the records of a topic itself, where the brokers have forgotten its marker.

They forget the offsets of a consumer group that nobody has used for `offsets.retention.minutes`, a week by default, and
a tool may delete or reset them. Each record says in its headers which batch of which app it is of.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkUnavailable
from penstock.kafka.admin import SECONDS, Topic
from penstock.kafka.client import LIBRDKAFKA
from penstock.sinks.kafka_brokers import SinkBrokers, sink_error, without_producing

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["APP", "BATCH", "JOB", "OFFSETS", "STEP", "newest_in_tail"]

APP, BATCH, JOB, STEP = "penstock-app", "penstock-batch", "penstock-job", "penstock-step"
"""Headers of each record: the app id, the number of the batch in decimal digits, and the names of the job and of the
step that writes."""
OFFSETS = 10_000
"""How many of the last offsets of each partition are read."""
_CONSUMING = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 50,
}
_PIECE = 2_000


def newest_in_tail(brokers: SinkBrokers, config: Mapping[str, Any], name: str, topic: Topic, app: str) -> int | None:
    """Return the highest batch of an app among the last committed records of a topic, None where there is none.

    All rows of a batch are visible as soon as one is, so one record of it is enough.

    Args:
        brokers: The connection to ask.
        config: Settings of librdkafka, for a consumer.
        name: The name of the topic.
        topic: Its partitions.
        app: The app id.

    Raises:
        SinkUnavailable: The brokers do not answer.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    partitions = [(name, number) for number in topic.partitions]
    earliest, latest = (brokers.offsets(partitions, spec()) for spec in (OffsetSpec.earliest, OffsetSpec.latest))
    starts = {at: max(earliest[at], latest[at] - OFFSETS) for at in partitions if earliest[at] < latest[at]}
    if not starts:
        return None
    # Nothing is committed; librdkafka asks for a group all the same, and this one the user may use in any case.
    consumer = Consumer({**without_producing(config), **_CONSUMING, "group.id": app}, logger=LIBRDKAFKA)
    try:
        consumer.assign([TopicPartition(*at, start) for at, start in starts.items()])
        return max((batch for batch in _batches(consumer, {at[1] for at in starts}, app)), default=None)
    except KafkaException as why:
        raise sink_error(why.args[0], name) from why
    finally:
        consumer.close()


def _batches(consumer: Consumer, left: set[int], app: str) -> Iterator[int]:
    """Yield the batch of each record of an app, to the ends of these partitions."""
    from confluent_kafka import KafkaError, KafkaException

    last_sign = time.monotonic()
    while left:
        messages = consumer.consume(_PIECE, 0.1)
        for message in messages:
            error = message.error()
            if error is None:
                batch = _batch(message, app)
                yield from () if batch is None else (batch,)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka names its own so
                left.discard(message.partition())
            else:
                raise KafkaException(error)
        last_sign = time.monotonic() if messages else last_sign
        if time.monotonic() - last_sign > SECONDS:
            raise SinkUnavailable("the end of the topic cannot be read: no record has come", where=app)


def _batch(message: Message, app: str) -> int | None:
    """Return the batch of a record, None for one of another app or of another program."""
    try:
        headers = dict(message.headers() or ())
    except UnicodeDecodeError:  # a name that is no text; it is none of ours
        return None
    batch = headers.get(BATCH)
    if headers.get(APP) != app.encode() or not isinstance(batch, bytes) or not batch.isdigit():
        return None
    return int(batch)
