"""A driver asks brokers for topics, and says in the words of its owner what goes wrong."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest
from confluent_kafka import KafkaError

from penstock.errors import ConfigError, PenstockError, StorageUnavailable
from penstock.kafka.admin import Admin
from penstock.kafka.client import text_of

pytestmark = pytest.mark.integration


class Asking(Admin):
    """A connection of nobody's."""

    unavailable = StorageUnavailable

    def meant(self, error: KafkaError, where: str) -> PenstockError:
        return StorageUnavailable(text_of(error), where=where)


def test_a_topic_has_an_id_that_no_other_has(kafka: Any, topic: str) -> None:
    """Not even one of the same name that is created later; one that is not there is left out."""
    kafka.create(topic, 3)
    asking = Asking({"bootstrap.servers": kafka.address}, user="a test")
    before = asking.topics([topic])
    assert before[topic].partitions == (0, 1, 2)
    assert topic in asking.names()
    kafka.delete(topic)
    assert asking.topics([topic]) == {}
    kafka.create(topic)
    after = asking.topics([topic])[topic]
    assert (after.partitions, after.id != before[topic].id) == ((0,), True)


def test_no_names_are_no_question() -> None:
    """Also where nobody answers."""
    assert Asking({"bootstrap.servers": "127.0.0.1:1"}, user="a test").topics([]) == {}


def test_a_setting_that_librdkafka_does_not_have_is_named() -> None:
    """When the client is made, and not at its first question."""
    with pytest.raises(ConfigError, match=r"no\.such"):
        Asking({"bootstrap.servers": "127.0.0.1:1", "no.such": 1}, user="a test")


def test_a_connection_that_nobody_has_is_closed_at_once() -> None:
    """It has threads and open files, which a driver would keep until Python next collects cycles."""
    asking = Asking({"bootstrap.servers": "127.0.0.1:1"}, user="a test")
    client = ref(asking)
    del asking
    assert client() is None
