"""The records at the end of a topic say which batch it shows, when nobody else remembers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_writing import APP, Writing

from penstock.sinks import kafka_tail
from penstock.sinks.kafka_brokers import SinkBrokers
from penstock.sinks.kafka_tail import newest_in_tail

pytestmark = pytest.mark.integration


def newest(kafka: Any, topic: str, app: str = APP) -> int | None:
    config = {"bootstrap.servers": kafka.address}
    brokers = SinkBrokers(config)
    described = brokers.topic(topic)
    assert described is not None
    return newest_in_tail(brokers, config, topic, described, app)


def test_the_newest_batch_of_an_app_is_found_among_others(kafka: Any, topic: str, tmp_path: Path) -> None:
    """In whichever partition it is, also before the records of others, and none of an app that has written nothing."""
    kafka.create(topic, 3)
    assert newest(kafka, topic) is None
    writing = Writing(tmp_path, topic, kafka)
    publisher = writing.publisher()
    for batch in (3, 12):
        publisher.publish(writing.batch(batch, [batch]))
    publisher.publish(writing.batch(99, [99], app="uuid/other"))
    kafka.produce(topic, [b"x"] * 50, 1)
    kafka.produce(topic, [b"x"], 1, headers=[("penstock-app", APP.encode()), ("penstock-batch", b"no number")])
    assert newest(kafka, topic) == 12
    assert newest(kafka, topic, "uuid/other") == 99
    assert newest(kafka, topic, "uuid/nobody") is None


def test_what_an_aborted_transaction_has_left_is_no_batch(kafka: Any, topic: str) -> None:
    """Its records are in the topic, and no reader of committed records sees them."""
    kafka.create(topic)
    headers = [("penstock-app", APP.encode()), ("penstock-batch", b"5")]
    producer = kafka.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", headers=headers)
    producer.flush(30)
    producer.abort_transaction(30)
    assert newest(kafka, topic) is None
    kafka.produce(topic, [b"x"], headers=[headers[0], ("penstock-batch", b"4")])
    assert newest(kafka, topic) == 4


def test_only_the_end_is_read(kafka: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new job may write into a topic with years of records."""
    monkeypatch.setattr(kafka_tail, "OFFSETS", 10)
    kafka.create(topic)
    kafka.produce(topic, [b"x"], headers=[("penstock-app", APP.encode()), ("penstock-batch", b"4")])
    kafka.produce(topic, [b"x"] * 9)
    assert newest(kafka, topic) == 4
    kafka.produce(topic, [b"x"])
    assert newest(kafka, topic) is None
