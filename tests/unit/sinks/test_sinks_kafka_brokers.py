"""A sink asks the brokers for its topic and its marker, and names what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

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
from penstock.sinks import NewTopic
from penstock.sinks.kafka_brokers import SinkBrokers, sink_error, without_producing


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError._FENCED, SinkConflict),
        (KafkaError.INVALID_PRODUCER_EPOCH, SinkConflict),
        (KafkaError.MSG_SIZE_TOO_LARGE, SinkRefused),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SinkDenied),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, SinkNotFound),
        (KafkaError.NOT_ENOUGH_REPLICAS, SinkBusy),
        (KafkaError._TIMED_OUT, SinkUnavailable),
        (KafkaError._MSG_TIMED_OUT, SinkUnavailable),
    ],
)
def test_an_error_of_librdkafka_is_one_of_a_sink(code: int, error: type[PenstockError]) -> None:
    """With its name in the text, and how long to wait where the brokers only need time (F56)."""
    raised = sink_error(KafkaError(code), "orders")
    assert type(raised) is error
    assert (KafkaError(code).name() in raised.what, raised.where) == (True, "orders")
    assert getattr(raised, "retry_after", 1.0) == 1.0


@pytest.mark.fault("F31")
def test_a_fenced_producer_is_told_of_who_may_have_fenced_it() -> None:
    """F31: a copy of the checkpoint has the same transactional id; a topic is no table that has other writers."""
    raised = sink_error(KafkaError(KafkaError.PRODUCER_FENCED), "orders")
    assert "copy of this checkpoint" in raised.remedy
    assert "table" not in raised.remedy


def test_other_clients_get_no_settings_of_producers() -> None:
    """They would complain on stderr."""
    kept = {"bootstrap.servers": "a:1", "sasl.password": "x"}
    assert without_producing({**kept, "linger.ms": 5, "transaction.timeout.ms": 1_000}) == kept


@pytest.mark.integration
@pytest.mark.parametrize(
    "new",
    [
        NewTopic(partitions=1, replication=9),
        NewTopic(partitions=1, config={"no.such": "1"}),
    ],
    ids=["too many replicas", "no such setting"],
)
def test_a_topic_that_cannot_be_created_is_named(kafka: Any, topic: str, new: NewTopic) -> None:
    """With what the brokers say of it."""
    with pytest.raises(SinkDenied, match=topic):
        SinkBrokers({"bootstrap.servers": kafka.address}).create(topic, new)


@pytest.mark.integration
def test_a_topic_that_is_there_is_left_alone(kafka: Any, topic: str) -> None:
    """Two jobs may create it at the same time; the marker of an app that has published nothing is none."""
    brokers = SinkBrokers({"bootstrap.servers": kafka.address})
    brokers.create(topic, NewTopic(partitions=2))
    first = brokers.topic(topic)
    brokers.create(topic, NewTopic(partitions=7))
    assert brokers.topic(topic) == first
    assert first is not None
    assert first.partitions == (0, 1)
    assert brokers.largest(topic) == 1_048_588
    assert brokers.marker("uuid/nobody", topic) is None


@pytest.mark.parametrize("wrong", [{"partitions": 0}, {"partitions": 1, "replication": 0}])
def test_a_topic_has_a_partition_and_a_replica(wrong: dict[str, int]) -> None:
    """No broker is asked for one that has none."""
    with pytest.raises(ConfigError, match="is 0, and is at least 1"):
        NewTopic(**wrong)  # type: ignore[arg-type]
