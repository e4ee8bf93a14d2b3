"""Brokers that ask for a password, by whom a user is refused (SEMANTICS 9.2, 9.6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka_reading import all_rows, numbers
from kafka_topics import numbers_in
from kafka_writing import Writing
from source_reading import end_of_batch
from structlog.testing import capture_logs

from penstock.errors import SinkDenied, SourceRefused
from penstock.sources import Kafka
from penstock.sources.formats import Raw
from penstock.testing.source_contract import read
from tools.kafka_server import KafkaServer
from tools.waiting import until

pytestmark = pytest.mark.integration

LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
RIGHT, WRONG = ({**LOGIN, "sasl.password": password} for password in ("secret", "wrong"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Return a broker that knows ann by her password."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), users={"ann": "secret"})
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.fixture
def filled(guarded: KafkaServer) -> str:
    """Return a topic with two records."""
    topic = guarded.new_name()
    guarded.create(topic)
    guarded.produce(topic, numbers(1, 2))
    return topic


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a third of the time: to librdkafka a connection that is refused may come yet."""
    monkeypatch.setattr("penstock.kafka.admin.SECONDS", 5.0)


@pytest.mark.remedy("PEN-SRC-013")
def test_a_reader_that_the_brokers_refuse_is_named(guarded: KafkaServer, filled: str, brief: None) -> None:
    """When it is opened; with the right password the topic is read."""
    source = Kafka([filled], servers=guarded.guarded, format=Raw(), options=WRONG)
    with pytest.raises(SourceRefused, match="AUTHENTICATION"):
        source.open(None)
    let_in = replace(source, options=RIGHT).open(None)
    assert all_rows(let_in)["value"].to_pylist() == numbers(1, 2)


def test_a_password_is_proven_by_scram(guarded: KafkaServer, filled: str, brief: None, tmp_path: Path) -> None:
    """By SCRAM-SHA-512 the topic is read and written, and a wrong password is named."""
    right, wrong = ({**login, "sasl.mechanism": "SCRAM-SHA-512"} for login in (RIGHT, WRONG))
    source = Kafka([filled], servers=guarded.guarded, format=Raw(), options=right)
    assert all_rows(source.open(None))["value"].to_pylist() == numbers(1, 2)
    writing = Writing(tmp_path, filled, guarded, servers=guarded.guarded, options=right)
    writing.sink.check(pa.schema([("k", pa.int64())]))
    writing.publisher().publish(writing.batch(0, [3]))
    assert numbers_in(guarded.address, filled) == [1, 2, 3]
    with pytest.raises(SourceRefused, match="AUTHENTICATION"):
        replace(source, options=wrong).open(None)


@pytest.mark.remedy("PEN-SNK-012")
def test_a_writer_that_the_brokers_refuse_is_named(
    guarded: KafkaServer, filled: str, brief: None, tmp_path: Path
) -> None:
    """At the start; with the right password the topic is written."""
    schema = pa.schema([("k", pa.int64())])
    wrong, let_in = (Writing(tmp_path, filled, guarded, servers=guarded.guarded, options=o) for o in (WRONG, RIGHT))
    with pytest.raises(SinkDenied, match="AUTHENTICATION"):
        wrong.sink.check(schema)
    let_in.sink.check(schema)
    let_in.publisher().publish(let_in.batch(0, [3]))
    assert numbers_in(guarded.address, filled) == [1, 2, 3]


def allow_bob(guarded: KafkaServer, *groups: str) -> None:
    """Let nobody but bob use some consumer groups."""
    rules = [
        AclBinding(
            ResourceType.GROUP, group, ResourcePatternType.LITERAL, "User:bob", "*", AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for group in groups
    ]  # fmt: skip
    for made in guarded.admin.create_acls(rules).values():
        made.result()


def test_a_writer_needs_no_group_but_its_own(guarded: KafkaServer, filled: str, tmp_path: Path) -> None:
    """That of its app, in which the brokers keep the newest batch."""
    allow_bob(guarded, "penstock")
    writing = Writing(tmp_path, filled, guarded, servers=guarded.guarded, options=RIGHT)
    publisher = writing.publisher()
    for batch in range(2):
        publisher.publish(writing.batch(batch, [batch + 3]))
    assert numbers_in(guarded.address, filled) == [1, 2, 3, 4]


def test_a_group_that_the_user_may_not_use_stops_nothing(guarded: KafkaServer, filled: str) -> None:
    """A consumer has the name of one that it does not use; offsets for tools that are refused are a warning, once."""
    allow_bob(guarded, "penstock", "lag")
    reader = Kafka([filled], servers=guarded.guarded, format=Raw(), options=RIGHT, group="lag").open(None)
    position: Any = end_of_batch(reader, None)
    for _ in range(3):
        assert read(reader, reader.span(None, position))["value"].to_pylist() == numbers(1, 2)

    with capture_logs() as logs:

        def warned() -> bool:
            reader.ack(position)
            return bool(logs)

        until(warned, "the warning")
        for _ in range(3):
            reader.ack(position)
    assert {(line["event"], line["group"]) for line in logs} == {("source.group_not_written", "lag")}
    assert "GROUP_AUTHORIZATION_FAILED" in logs[0]["why"]
    assert len(logs) == 1
