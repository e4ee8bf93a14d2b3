"""Tools that show lag see what a job has read, whatever others do to its consumer group (SourceReader.ack)."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka_reading import committed, numbers, reader_of
from source_reading import end_of_batch
from structlog.testing import capture_logs

from penstock.sources.kafka_group import GroupOffsets
from tools.waiting import free_port, until

pytestmark = pytest.mark.integration


def test_tools_that_show_lag_see_the_job(kafka: Any, topic: str) -> None:
    """The offset that is read next, of each partition, after each batch."""
    kafka.create(topic, 2)
    kafka.produce(topic, numbers(1, 2, 3), 1)
    reader = reader_of(kafka, topic, group=topic)
    first = end_of_batch(reader, None)
    reader.ack(first)
    until(lambda: committed(kafka, topic, topic, 2) == {0: 0, 1: 3}, "the offsets of the first batch")
    kafka.produce(topic, numbers(4), 0)
    second = end_of_batch(reader, first)

    def follows() -> bool:
        reader.ack(second)
        return committed(kafka, topic, topic, 2) == {0: 1, 1: 3}

    until(follows, "the offsets of the second")


def test_the_last_batch_before_a_quiet_time_is_in_the_group(kafka: Any, topic: str) -> None:
    """Its offsets wait for the answer to those of the batch before, and no batch comes that would send them."""
    kafka.create(topic)
    kafka.produce(topic, numbers(1, 2, 3))
    reader = reader_of(kafka, topic, group=topic)
    first = end_of_batch(reader, None)
    kafka.produce(topic, numbers(4))
    last = end_of_batch(reader, first)
    reader.ack(first)
    reader.ack(last)

    def follows() -> bool:
        reader.backlog(last)
        return committed(kafka, topic, topic) == {0: 4}

    until(follows, "the offset of the last batch")


def test_a_group_has_the_names_of_job_and_source_by_itself(kafka: Any, topic: str) -> None:
    """So two sources of a topic, and two jobs, do not write each other's."""
    kafka.create(topic)
    kafka.produce(topic, numbers(1, 2, 3))
    named = {"by itself": reader_of(kafka, topic), "other": reader_of(kafka, topic, group=topic)}
    none = reader_of(kafka, topic, group=False)
    for reader in (*named.values(), none):
        reader.known_as(topic, "orders")
        reader.ack(end_of_batch(reader, None))
    del reader, none
    named.clear()
    assert committed(kafka, f"penstock.{topic}.orders", topic) == {0: 3}
    assert committed(kafka, topic, topic) == {0: 3}
    groups = kafka.admin.list_consumer_groups().result().valid
    assert {group.group_id for group in groups if topic in group.group_id} == {f"penstock.{topic}.orders", topic}


@pytest.mark.parametrize("how", ["back", "forth", "deleted"])
def test_a_group_that_was_reset_from_outside_follows_again(how: str, kafka: Any, topic: str) -> None:
    """With the next batch, also one without rows: nobody has read a position from the group."""
    kafka.create(topic)
    kafka.produce(topic, numbers(1, 2, 3))
    reader = reader_of(kafka, topic, group=topic)
    position = end_of_batch(reader, None)
    reader.ack(position)
    until(lambda: committed(kafka, topic, topic) == {0: 3}, "the group's offsets")
    if how == "deleted":
        kafka.admin.delete_consumer_groups([topic])[topic].result()
    else:
        tool = Consumer({"bootstrap.servers": kafka.address, "group.id": topic})
        tool.commit(offsets=[TopicPartition(topic, 0, {"back": 1, "forth": 99}[how])], asynchronous=False)
        tool.close()
    assert committed(kafka, topic, topic) != {0: 3}
    assert end_of_batch(reader, position) == position

    def follows() -> bool:
        reader.ack(position)
        return committed(kafka, topic, topic) == {0: 3}

    until(follows, "the group to follow again")


def test_the_last_batch_of_a_run_is_in_the_group(kafka: Any, topic: str) -> None:
    """No batch comes after it that would write its offsets again."""
    kafka.create(topic)
    kafka.produce(topic, numbers(1, 2, 3))
    reader = reader_of(kafka, topic, group=topic)
    reader.ack(end_of_batch(reader, None))
    del reader
    assert committed(kafka, topic, topic) == {0: 3}


def test_a_group_in_which_others_read_is_a_warning(kafka: Any, topic: str) -> None:
    """Once, however many batches come; when they have left, the group follows."""
    kafka.create(topic)
    kafka.produce(topic, numbers(1, 2, 3))
    reader = reader_of(kafka, topic, group=topic)
    position = end_of_batch(reader, None)
    settings = {"bootstrap.servers": kafka.address, "group.id": topic, "enable.auto.commit": False}
    other = Consumer(settings)
    other.subscribe([topic])
    until(lambda: other.poll(0.1) is None and other.assignment(), "the other to be a member")
    with capture_logs() as logs:

        def warned() -> bool:
            reader.ack(position)
            return bool(logs)

        until(warned, "the warning")
        for _ in range(20):
            reader.ack(position)
            other.poll(0.01)
    assert [(line["event"], line["group"]) for line in logs] == [("source.group_not_written", topic)]
    other.close()

    def follows() -> bool:
        reader.ack(position)
        return committed(kafka, topic, topic) == {0: 3}

    until(follows, "the group to follow")


def test_where_nobody_answers_no_batch_waits() -> None:
    """One request is under way, the newest offsets wait for it; a run that ends gives up."""
    offsets = GroupOffsets({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, "lag")
    with capture_logs() as logs:
        for n in range(1_000):
            offsets.note({("t", 0): n})
        offsets.end()
    assert logs == []


def test_a_source_that_has_read_nothing_writes_nothing() -> None:
    """Neither does its end: there is no connection."""
    offsets = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"}, "lag")
    offsets.note({})
    offsets.end()
    assert offsets._consumer is None


@pytest.mark.parametrize("option", [{"group.protocol": "consumer"}, {"max.poll.interval.ms": 1_000}], ids=str)
def test_settings_that_no_writer_of_offsets_can_have_stop_no_job(option: dict[str, Any]) -> None:
    """The batch is committed by then: a job that failed here would fail again at each start."""
    with capture_logs() as logs:
        group = GroupOffsets({"bootstrap.servers": f"127.0.0.1:{free_port()}", **option}, "lag")
        group.note({("t", 0): 1})
        group.note({("t", 0): 2})
        group.end()
    assert len(logs) <= 1
