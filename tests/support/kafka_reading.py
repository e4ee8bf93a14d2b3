"""Read topics of a real broker as the driver and the tasks do, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from source_reading import end_of_batch

from penstock.sources import Json, Kafka
from penstock.sources.kafka import KafkaReader
from penstock.testing.source_contract import read

__all__ = ["FOR_EVER", "all_rows", "committed", "numbers", "reader_of"]

FOR_EVER = {"retention.ms": "-1"}
"""A topic that keeps records also where their timestamps are years old."""
SCHEMA = pa.schema([("k", pa.int64())])


def reader_of(kafka: Any, *topics: str, form: Any = None, **more: Any) -> KafkaReader:
    """Return the reader of topics of JSON with a number k; without Spark, whose part is the DDL."""
    source = Kafka(topics or None, servers=kafka.address, format=form or Json("k long"), **more)
    reader = KafkaReader(source)
    reader.topics_now()
    reader.decode_by(source.format, SCHEMA if form is None else form.columns())
    return reader


def numbers(*values: int) -> list[bytes]:
    """Return records of JSON with these numbers as k."""
    return [b'{"k": %d}' % value for value in values]


def all_rows(reader: KafkaReader, splits: int = 1) -> pa.Table:
    """Return the rows of one batch from the beginning."""
    return read(reader, reader.span(None, end_of_batch(reader, None)), splits)


def committed(kafka: Any, group: str, topic: str, partitions: int = 1) -> dict[int, int]:
    """Return what tools see of a consumer group: by partition the offset that it reads next, none where it has none."""
    asking = Consumer({"bootstrap.servers": kafka.address, "group.id": group})
    try:
        answers = asking.committed([TopicPartition(topic, i) for i in range(partitions)], timeout=15)
        return {at.partition: at.offset for at in answers if at.offset >= 0}
    finally:
        asking.close()
