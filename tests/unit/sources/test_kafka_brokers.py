"""Brokers answer, refuse, or do not answer (SEMANTICS 9.2)."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kafka_reading import all_rows, numbers, reader_of
from source_reading import end_of_batch

from penstock.errors import CertificateRefused, ConfigError, SourceRefused, SourceUnavailable
from penstock.sources import Kafka
from penstock.sources.formats import Raw
from penstock.sources.kafka import KafkaReader
from penstock.sources.kafka_brokers import Brokers
from penstock.testing.source_contract import read
from tools.certificates import Certificates
from tools.kafka_server import KafkaServer
from tools.waiting import free_port

pytestmark = pytest.mark.integration


@pytest.mark.remedy("PEN-SRC-016")
@pytest.mark.sample(seconds=40)
def test_certificates_that_are_not_trusted_are_named(tmp_path: Path) -> None:
    """Before the first batch: the brokers' by the source, and the source's by the brokers; with both, topics are read."""
    own, other = Certificates.made(tmp_path / "own"), Certificates.made(tmp_path / "other")
    server = KafkaServer(tmp_path / "kafka", tls=own)
    server.start()
    try:
        server.create("t")
        server.produce("t", numbers(1, 2))

        def opened(**options: str) -> KafkaReader:
            named = {name.replace("_", "."): value for name, value in options.items()}
            options = {"security.protocol": "ssl", **named}
            return Kafka(["t"], servers=server.guarded, format=Raw(), options=options).open(None)

        ours, theirs = str(own.authority), str(other.authority)
        for wrong in (
            {"ssl_ca_location": theirs, **own.client_options},
            {"ssl_ca_location": ours},
        ):
            with pytest.raises(CertificateRefused, match="certificate"):
                opened(**wrong)
        with pytest.raises(ConfigError, match="ssl.ca.location"):
            opened(ssl_ca_location=str(tmp_path / "nowhere"))
        reader = opened(ssl_ca_location=ours, **own.client_options)
        assert all_rows(reader)["value"].to_pylist() == numbers(1, 2)
    finally:
        server.end()


@pytest.mark.sample(seconds=35)
def test_passwords_go_encrypted(tmp_path: Path) -> None:
    """SASL over TLS: authority and user are looked at, each with an error of its own."""
    own, other = Certificates.made(tmp_path / "own"), Certificates.made(tmp_path / "other")
    server = KafkaServer(tmp_path / "kafka", users={"ann": "secret"}, tls=own)
    server.start()
    try:
        server.create("t")
        server.produce("t", numbers(1))

        def opened(authority: Certificates, password: str, mechanism: str = "PLAIN") -> KafkaReader:
            login = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.username": "ann"}
            options = {**login, "sasl.password": password, "ssl.ca.location": str(authority.authority)}
            return Kafka(["t"], servers=server.guarded, format=Raw(), options=options).open(None)

        with pytest.raises(CertificateRefused):
            opened(other, "secret")
        with pytest.raises(SourceRefused, match="AUTHENTICATION"):
            opened(own, "wrong")
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            assert all_rows(opened(own, "secret", mechanism))["value"].to_pylist() == numbers(1)
    finally:
        server.end()


@pytest.mark.fault("F36")
@pytest.mark.sample(seconds=45)
def test_a_topic_that_seems_gone_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """Its metadata is asked for again, by the driver and by tasks; partitions are not believed gone for a moment."""
    server = KafkaServer(tmp_path / "kafka")
    server.start()
    try:
        server.create("t", 2)
        server.produce("t", numbers(1, 2))
        reader = Kafka(["t"], servers=server.address, format=Raw()).open(None)
        span = reader.span(None, end_of_batch(reader, None))
        # Asked for while it is made, a topic is unknown at first.
        making = Thread(target=lambda: (time.sleep(0.5), server.create("late")))
        making.start()
        assert set(reader.brokers.topics(["t", "late"])) == {"t", "late"}
        making.join()
        # A broker that has just come up knows topics before it leads their partitions.
        for _ in range(3):
            server.kill()
            server.start_broker()
            server.wait()
            assert reader.brokers.latest([("t", 0), ("t", 1)]) == {("t", 0): 2, ("t", 1): 0}
            assert set(reader.topics_now()) == {"t"}
            assert read(reader, span)["value"].to_pylist() == numbers(1, 2)
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
def test_where_nobody_answers_the_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time that an election of a leader may take, here a second."""
    monkeypatch.setattr("penstock.kafka.admin.SECONDS", 1.0)
    nowhere = Brokers({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, read_uncommitted=False)
    with pytest.raises(SourceUnavailable, match="127.0.0.1"):
        nowhere.names()
