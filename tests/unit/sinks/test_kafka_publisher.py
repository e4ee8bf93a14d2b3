"""A batch is in the topic once for readers of committed records, whoever died or was replaced (SEMANTICS 9.4-9.6)."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_topics import numbers_in, records_in
from kafka_writing import APP, Writing

from penstock.errors import (
    RecordTooLarge,
    SinkBehind,
    SinkNotFound,
    SinkRefused,
    SinkUnavailable,
    SinkValueRefused,
)
from penstock.sinks import Delivery, Raw, kafka_publisher
from tools.kafka_server import KafkaServer
from tools.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def writing(kafka: Any, topic: str, tmp_path: Path) -> Writing:
    """Return a sink of a topic with two partitions."""
    kafka.create(topic, 2)
    return Writing(tmp_path, topic, kafka)


def shown(writing: Writing) -> list[int]:
    return numbers_in(writing.sink.servers, writing.sink.topic)


# --- what the brokers forget ---------------------------------------------------------------------
def forget(kafka: Any, topic: str, how: str) -> None:
    """Have the brokers forget which batch the topic has, as after a week without one, or a tool."""
    if how == "deleted":
        kafka.admin.delete_consumer_groups([APP])[APP].result()
    else:
        reset = ConsumerGroupTopicPartitions(APP, [TopicPartition(topic, 0, 0)])
        kafka.admin.alter_consumer_group_offsets([reset])[APP].result()


@pytest.mark.fault("F58")
@pytest.mark.sample(2)
@pytest.mark.parametrize("how", ["deleted", "reset"])
@pytest.mark.parametrize("alive", [True, False], ids=["while it runs", "between two runs"])
def test_a_group_that_is_lost_doubles_nothing(kafka: Any, writing: Writing, how: str, *, alive: bool) -> None:
    """The records at the end of the topic say in their headers which batch it shows."""
    publisher = writing.publisher()
    for batch in range(3):
        publisher.publish(writing.batch(batch, [batch]))
    kafka.produce(writing.sink.topic, [b'{"k": 50}'], 1)  # somebody else's record
    forget(kafka, writing.sink.topic, how)
    publisher = publisher if alive else writing.publisher()
    assert publisher.version(APP) == 2
    publisher.publish(writing.batch(2, [2]))
    publisher.publish(writing.batch(3, [3]))
    assert shown(writing) == [0, 1, 2, 3, 50]
    assert writing.publisher().version(APP) == 3


@pytest.mark.soak
@pytest.mark.fault("F58")
def test_a_marker_that_expired_doubles_nothing(tmp_path: Path) -> None:
    """As where it is deleted: brokers expire it after a week without a batch, and after a minute at the earliest."""
    settings = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 200}
    server = KafkaServer(tmp_path / "kafka", settings=settings)
    server.start()
    try:
        server.create("t")
        writing = Writing(tmp_path, "t", server)
        publisher = writing.publisher()
        publisher.publish(writing.batch(6, [6]))
        until(lambda: publisher.brokers.marker(APP, "t") is None, "the marker to expire", seconds=150)
        for each in (publisher, writing.publisher()):
            assert each.version(APP) == 6
            each.publish(writing.batch(6, [6]))
        assert shown(writing) == [6]
    finally:
        server.end()


@pytest.mark.fault("F70")
def test_a_topic_that_was_created_again_is_behind(kafka: Any, writing: Writing) -> None:
    """SEMANTICS 9.5: its rows are gone, and the new topic does not get the next batch as if nothing had been."""
    topic, publisher = writing.sink.topic, writing.publisher()
    publisher.publish(writing.batch(4, [4]))
    kafka.delete(topic)
    with pytest.raises(SinkBehind, match="deleted") as gone:
        publisher.publish(writing.batch(5, [5]))
    assert (gone.value.shown, gone.value.missing) == (-1, [4])
    kafka.create(topic)
    with pytest.raises(SinkBehind, match="deleted"):
        publisher.publish(writing.batch(5, [5]))
    next_run = writing.publisher()
    assert next_run.version(APP) is None
    next_run.publish(writing.batch(4, [4]))
    assert shown(writing) == [4]


def test_a_topic_that_is_gone_before_the_first_batch_is_named(kafka: Any, writing: Writing) -> None:
    """Between the start and a batch."""
    kafka.delete(writing.sink.topic)
    publisher = writing.publisher()
    assert publisher.version(APP) is None
    with pytest.raises(SinkNotFound, match=writing.sink.topic):
        publisher.publish(writing.batch(0, [0]))


# --- rows that do not fit ------------------------------------------------------------------------
@pytest.mark.fault("F41")
@pytest.mark.remedy("PEN-SNK-013")
def test_a_record_is_refused_before_the_commit_if_the_topic_would_refuse_it(
    kafka: Any, topic: str, tmp_path: Path
) -> None:
    """SEMANTICS 9.6: what is let through is taken, to the byte; once the topic takes more, the row is."""
    kafka.create(topic, **{"max.message.bytes": "3000"})
    writing = Writing(tmp_path, topic, kafka, value=Raw("v"), partition="p")

    def staged(size: int) -> Any:
        return writing.stage(pa.table({"v": [b"x" * size], "p": pa.array([0], pa.int64())}))

    publisher = writing.publisher()
    sizes = range(2_400, 3_001)
    fits = sizes[bisect_right(sizes, 0, key=lambda size: int(refuses(publisher, staged(size)))) - 1]
    assert fits > 2_450
    small = writing.stage(pa.table({"v": [b"y"] * 500, "p": pa.array([0] * 500, pa.int64())}))
    publisher.publish(writing.of(0, staged(fits), small, staged(fits)))
    with pytest.raises(RecordTooLarge, match="3,000"):
        publisher.refuse_values([staged(fits + 1)])
    kafka.configure(topic, **{"max.message.bytes": "9000"})
    publisher = writing.publisher()
    publisher.refuse_values([staged(8_000)])
    publisher.publish(writing.of(1, staged(8_000)))
    assert sorted(len(r.value or b"") for r in records_in(kafka.address, topic)) == [1] * 500 + [fits, fits, 8_000]


def refuses(publisher: Any, file: Any) -> bool:
    """Return whether a publisher refuses a file before its commit."""
    try:
        publisher.refuse_values([file])
    except RecordTooLarge:
        return True
    return False


@pytest.mark.parametrize("delivery", Delivery)
def test_what_a_topic_refuses_after_the_commit_is_named(
    kafka: Any, topic: str, tmp_path: Path, delivery: Delivery
) -> None:
    """SEMANTICS 9.6: where its limit was lowered since. Nothing of the batch is visible in a transaction."""
    kafka.create(topic, **{"max.message.bytes": "9000"})
    writing = Writing(tmp_path, topic, kafka, value=Raw("v"), delivery=delivery)
    publisher = writing.publisher()
    file = writing.stage(pa.table({"v": [b"x" * 5_000]}))
    publisher.refuse_values([file])
    kafka.configure(topic, **{"max.message.bytes": "3000"})
    with pytest.raises(SinkRefused, match="MSG_SIZE_TOO_LARGE"):
        publisher.publish(writing.of(0, file))
    assert records_in(kafka.address, topic) == []


def test_rows_that_json_cannot_hold_are_refused_before_the_commit(writing: Writing) -> None:
    """SEMANTICS 9.6; and those that were encoded for that are published without another encoding."""
    publisher = writing.publisher()
    with pytest.raises(SinkValueRefused, match="'v'"):
        publisher.refuse_values([writing.stage(pa.table({"v": [float("nan")]}))])
    file = writing.stage(pa.table({"k": [1, 2]}))
    publisher.refuse_values([file])
    publisher.publish(writing.of(0, file))
    assert shown(writing) == [1, 2]


def test_rows_that_were_encoded_and_never_committed_are_not_published(writing: Writing) -> None:
    """A batch may be computed again after the encoding, and stage other files."""
    publisher = writing.publisher()
    publisher.refuse_values([writing.stage(pa.table({"k": [99]}))])
    publisher.publish(writing.batch(0, [1]))
    assert shown(writing) == [1]


# --- brokers that are away -----------------------------------------------------------------------
@pytest.mark.fault("F57", "F58")
@pytest.mark.remedy("PEN-SNK-009")
@pytest.mark.sample(seconds=60)
@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("delivery", Delivery)
def test_a_broker_that_goes_pauses_the_stream_and_loses_nothing(tmp_path: Path, how: str, delivery: Delivery) -> None:
    """After the patience of one transaction; once it is back the next run publishes the batch."""
    server = KafkaServer(tmp_path / "kafka")
    server.start()
    try:
        server.create("t", 2)
        options = {"transaction.timeout.ms": 4_000, "message.timeout.ms": 4_000}
        writing = Writing(tmp_path, "t", server, options=options, delivery=delivery)
        publisher = writing.publisher()
        publisher.publish(writing.batch(0, [0]))
        (server.kill if how == "killed" else server.freeze)()
        with pytest.raises(SinkUnavailable) as away:
            publisher.publish(writing.batch(1, range(1, 50)))
        assert away.value.exit_code == 75
        if how == "killed":
            server.start_broker()
        else:
            server.thaw()
        server.wait()
        until(lambda: is_taken(writing, 1, range(1, 50)), "the next runs to publish the batch")
        until(lambda: is_taken(writing, 2, [50]), "the batch after it")
        read = shown(writing)
        assert sorted(set(read)) == [*range(51)]
        assert len(read) == 51 or delivery is Delivery.AT_LEAST_ONCE
    finally:
        server.end()


def is_taken(writing: Writing, batch: int, numbers: Sequence[int]) -> bool:
    """Return whether another run publishes a batch; a broker that has come back may need more than one."""
    try:
        writing.publisher().publish(writing.batch(batch, numbers))
    except SinkUnavailable:
        return False
    return True


# --- as a law --------------------------------------------------------------------------------------
@pytest.mark.slow
def test_apps_share_a_topic_whatever_becomes_of_their_groups(kafka: Any, tmp_path_factory: Any) -> None:
    """Two jobs, publishers that live or die, groups that are lost in between: each batch of each once, in its order."""
    steps = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.booleans(), st.booleans()), min_size=1, max_size=8)

    @settings(max_examples=examples(4))
    @given(steps)
    def law(plan: list[tuple[str, bool, bool]]) -> None:
        topic = kafka.new_name()
        kafka.create(topic, 2)
        writing = Writing(tmp_path_factory.mktemp("law"), topic, kafka)
        apps = {name: f"{topic}-{name}/out" for name in "ab"}
        publisher, expected = writing.publisher(), {name: list[int]() for name in apps}
        for number, (name, dies, loses) in enumerate(plan):
            publication = writing.batch(number, [number], app=apps[name])
            publisher.publish(publication)
            expected[name].append(number)
            if loses:
                kafka.admin.delete_consumer_groups([apps[name]])[apps[name]].result()
            publisher = writing.publisher() if dies else publisher
            publisher.publish(publication)
        records = records_in(kafka.address, topic)
        for name, app in apps.items():
            own = [json.loads(r.value or b"")["k"] for r in records if r.headers["penstock-app"] == app.encode()]
            assert sorted(own) == expected[name]

    law()


def test_a_publisher_keeps_few_producers(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each release of held rows has an app of its own, and a producer has threads and connections."""
    monkeypatch.setattr(kafka_publisher, "_APPS", 2)
    publisher = writing.publisher()
    for number in range(5):
        publisher.publish(writing.batch(number, [number], app=f"{APP}/held/{number}"))
    assert len(publisher._producers) == 2
    assert shown(writing) == [0, 1, 2, 3, 4]
