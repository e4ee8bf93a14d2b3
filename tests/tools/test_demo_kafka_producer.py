"""The Kafka demo's producer on a real broker: each record once and in order, at the speeds that were asked for."""

from __future__ import annotations

import pytest

from tools.demo_kafka_producer import Replay
from tools.demo_kafka_records import Record
from tools.demo_stream import DemoFailed
from tools.kafka_server import KafkaServer
from tools.kafka_topic import read_topic
from tools.waiting import until

pytestmark = pytest.mark.integration
FAST = 100_000.0


def records(n):
    return [Record(i % 2, None if i % 10 == 0 else b"%d" % i) for i in range(n)]


def replay(server, topic, written, **more):
    more = {"speeds": {0: FAST}, "stops": len(written), **more}
    return Replay(written, topic=topic, servers=server.address, **more)


def is_whole(server, topic, written):
    """Return whether each partition has its records in order, and nothing else."""
    shown = read_topic(server.address, topic)
    return all(
        shown.loc[shown["partition"] == partition, "value"].tolist()
        == [r.value for r in written if r.partition == partition]
        for partition in (0, 1)
    )


def test_all_records_are_written_in_order(kafka, topic):
    """The speed changes on the way, and it waits where it was told to."""
    kafka.create(topic, 2)
    written = records(5_000)
    with replay(kafka, topic, written, speeds={0: 10_000.0, 2_000: FAST}, stops=4_000) as producer:
        until(lambda: producer.acknowledged == 4_000, "the records before the stop")
        assert producer.written == 4_000
        assert not producer.is_done
        producer.go_on()
        until(lambda: producer.is_done, "the last record")
    assert producer.seconds(0, 2_000) > 0
    assert is_whole(kafka, topic, written)


@pytest.mark.sample(seconds=30)
def test_a_broker_that_is_killed_and_comes_back_has_each_record_once(tmp_path):
    """What was on its way when it died is sent again."""
    server = KafkaServer(tmp_path / "kafka")
    try:
        server.start()
        server.create("t", 2)
        written = records(20_000)
        with replay(server, "t", written, speeds={0: 20_000.0}) as producer:
            until(lambda: producer.acknowledged > 5_000, "some records")
            server.kill()
            until(lambda: producer.written == len(written), "all to be written")
            assert not producer.is_done
            server.start_broker()
            server.wait()
            until(lambda: producer.is_done, "the last record")
        assert is_whole(server, "t", written)
    finally:
        server.end()


def test_a_block_that_is_left_leaves_the_rest_unwritten(kafka, topic):
    """Without waiting for a stop that nobody ends."""
    kafka.create(topic, 2)
    with replay(kafka, topic, records(1_000), stops=100) as producer:
        until(lambda: producer.acknowledged == 100, "the records before the stop")
    assert producer.written == 100


@pytest.mark.parametrize("known", [False, True])
def test_what_the_broker_refuses_fails_the_demo(kafka, topic, known, monkeypatch):
    """A record of a partition that is not there; a producer that knows the topic refuses it at once."""
    kafka.create(topic, 1)
    if known:
        make = Replay._producer

        def asked_before(self):
            producer = make(self)
            producer.list_topics(topic, timeout=10)
            return producer

        monkeypatch.setattr(Replay, "_producer", asked_before)
    with (
        replay(kafka, topic, records(10)) as producer,
        pytest.raises(DemoFailed, match="the producer failed: _UNKNOWN_PARTITION"),
    ):
        until(lambda: producer.is_done, "the refusal")


def test_a_server_that_was_never_started_ends_as_well(tmp_path):
    """What failed before its process was there leaves nothing to kill."""
    KafkaServer(tmp_path).end()


def test_a_topic_without_records_is_read_at_once(kafka, topic):
    """It has the columns, and no rows."""
    kafka.create(topic, 2)
    assert read_topic(kafka.address, topic).to_dict("list") == {"partition": [], "offset": [], "value": []}
