"""Brokers answer, refuse, or do not answer (SEMANTICS 9.2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka_reading import all_rows, numbers, reader_of

from penstock.errors import SourceRefused, SourceUnavailable
from penstock.sources import Kafka
from penstock.sources.formats import Raw
from penstock.sources.kafka_brokers import Brokers
from tools.kafka_server import KafkaServer
from tools.waiting import free_port

pytestmark = pytest.mark.integration


@pytest.mark.remedy("PEN-SRC-013")
def test_a_user_that_the_brokers_refuse_is_named(tmp_path: Path) -> None:
    """Librdkafka takes it for a connection that may come yet; with the right password the topic is read."""
    server = KafkaServer(tmp_path / "kafka", users={"ann": "secret"})
    server.start()
    try:
        server.create("t")
        server.produce("t", numbers(1, 2))
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
        source = Kafka(["t"], servers=server.guarded, format=Raw(), options={**login, "sasl.password": "wrong"})
        with pytest.raises(SourceRefused, match="AUTHENTICATION"):
            source.open(None)
        let_in = replace(source, options={**login, "sasl.password": "secret"}).open(None)
        assert all_rows(let_in)["value"].to_pylist() == numbers(1, 2)
    finally:
        server.end()


def test_no_pattern_means_topics_of_kafka_itself(kafka: Any, topic: str) -> None:
    """The offsets of groups and the states of transactions are topics, too."""
    kafka.create(topic)
    kafka.transaction(topic, [b"x"])
    reader = reader_of(kafka, pattern=".*", form=Raw())
    assert topic in reader.topics_now()
    assert not [name for name in reader.topics_now() if name.startswith("__")]


@pytest.mark.slow
def test_where_nobody_answers_the_address_is_named() -> None:
    """After the time that an election of a leader may take."""
    nowhere = Brokers({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, read_uncommitted=False)
    with pytest.raises(SourceUnavailable, match="127.0.0.1"):
        nowhere.names()
