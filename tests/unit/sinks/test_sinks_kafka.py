"""A topic as a sink: what it says of itself, what it refuses when it is written down, and what it makes (SEMANTICS 9.4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_topics import records_in, rows_in
from kafka_writing import Writing

from penstock import Job
from penstock.errors import ConfigError, SinkNotFound, SinkSchemaMismatch
from penstock.runtime.inspect.explain import guarantees
from penstock.sinks import Delivery, Json, Kafka, NewTopic, Raw, Text
from penstock.sinks.base import Origin
from penstock.sources import MemorySource

NOWHERE = "127.0.0.1:1"
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("gone", pa.bool_())])


def guarantee_of(sink: Kafka) -> str:
    job = Job("job")
    job.source("rows", MemorySource("k long")).write("out", sink)
    (guarantee,) = guarantees(job.graph())
    return guarantee[1]


def test_explain_says_for_whom_it_is_exactly_once() -> None:
    """SEMANTICS 9.4: nothing is opened to learn it."""
    assert guarantee_of(Kafka("t", servers=NOWHERE)).startswith(
        "exactly once for readers with isolation.level=read_committed: "
    )
    assert guarantee_of(Kafka("t", servers=NOWHERE, delivery=Delivery.AT_LEAST_ONCE)).startswith("at least once: ")


@pytest.mark.fault("F62")
def test_a_password_is_in_no_text() -> None:
    """Nor is it in the place that the log keeps."""
    sink = Kafka("t", servers=NOWHERE, options={"sasl.password": "canary"})
    texts = [repr(sink), sink.describe(), sink.place(), repr(sink.open(Path("staged"), None).target)]
    assert "canary" not in " ".join(texts)


@pytest.mark.parametrize(
    "wrong",
    [{"topic": ""}, {"key": []}, {"options": {"transactional.id": "x"}}, {"options": {"enable.idempotence": False}}],
    ids=["no name", "no key", "an id", "without idempotence"],
)
def test_what_the_sink_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """Where it is written."""
    with pytest.raises(ConfigError):
        Kafka(**{"topic": "t", "servers": NOWHERE, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "nobody"}, {"key": ["user", "nobody"]}, {"partition": "user"}, {"partition": "nobody"},
        {"tombstone": "n"}, {"value": Text()}, {"value": Raw("n")}, {"value": Json(["nobody"])},
        {"value": Json(["gone"]), "tombstone": "gone"},
    ],
    ids=str,
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused_without_a_broker(wrong: dict[str, Any]) -> None:
    """SchemaCheckingSink.check: before the first batch."""
    with pytest.raises(SinkSchemaMismatch):
        Kafka("t", servers=NOWHERE, **wrong).check(SCHEMA)


@pytest.mark.integration
@pytest.mark.remedy("PEN-SNK-011")
def test_a_topic_that_is_not_there_is_created_where_the_sink_says_how(kafka: Any, topic: str) -> None:
    """With its partitions and settings; one that is there stays as it is."""
    with pytest.raises(SinkNotFound, match=topic):
        Kafka(topic, servers=kafka.address).check(SCHEMA)
    for partitions in (3, 5):
        new = NewTopic(partitions=partitions, config={"max.message.bytes": "5000"})
        sink = Kafka(topic, servers=kafka.address, new_topic=new)
        sink.create(SCHEMA, None)
    publisher: Any = sink.open(Path("staged"), None)
    assert (publisher.topic.partitions, publisher.limit) == ((0, 1, 2), 5_000)
    Kafka(topic, servers=kafka.address).check(SCHEMA)


@pytest.mark.integration
def test_records_have_keys_values_headers_and_partitions(kafka: Any, topic: str, tmp_path: Path) -> None:
    """docs/kafka.md: as the arguments say, in the order of the rows."""
    kafka.create(topic, 3)
    rows = pa.table(
        {
            "user": ["ann", "bob", None],
            "n": pa.array([1, 2, 3], pa.int64()),
            "to": pa.array([2, 0, 2], pa.int64()),
            "gone": [False, None, True],
        }
    )
    writing = Writing(tmp_path, topic, kafka, key="user", partition="to", tombstone="gone")
    writing.sink.check(rows.schema)
    publication = replace(writing.of(7, writing.stage(rows)), origin=Origin(job="orders", time=0))
    writing.publisher().publish(publication)
    assert [(r.partition, r.key, r.value) for r in records_in(kafka.address, topic)] == [
        (0, b"bob", b'{"user":"bob","n":2}'),
        (2, b"ann", b'{"user":"ann","n":1}'),
        (2, None, None),
    ]
    assert {tuple(r.headers.items()) for r in records_in(kafka.address, topic)} == {
        (
            ("penstock-job", b"orders"),
            ("penstock-step", b"out"),
            ("penstock-app", publication.app.encode()),
            ("penstock-batch", b"7"),
        )
    }


@pytest.mark.integration
def test_a_key_decides_the_partition_as_in_java(kafka: Any, topic: str, tmp_path: Path) -> None:
    """murmur2 of the bytes, positive, modulo the partitions: these numbers are those of Kafka's own producer."""
    kafka.create(topic, 10)
    writing = Writing(tmp_path, topic, kafka, key="user")
    writing.publisher().publish(writing.of(0, writing.stage(pa.table({"user": ["21", "foobar", "abc"]}))))
    # Kafka's UtilsTest has the hashes: "21" -973932308, "foobar" -790332482, "abc" 479470107.
    expected = {
        key: (value & 0x7FFFFFFF) % 10
        for key, value in ((b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107))
    }
    assert {r.key: r.partition for r in records_in(kafka.address, topic)} == expected


@pytest.mark.integration
def test_several_columns_are_a_key_as_a_json_array(kafka: Any, topic: str, tmp_path: Path) -> None:
    """In the order of `key`."""
    kafka.create(topic)
    writing = Writing(tmp_path, topic, kafka, key=["n", "user"], value=Text("user"))
    writing.publisher().publish(writing.of(0, writing.stage(pa.table({"user": ["a", None], "n": [1, 2]}))))
    assert [(r.key, r.value) for r in records_in(kafka.address, topic)] == [(b'[1,"a"]', b"a"), (b"[2,null]", None)]


@pytest.mark.integration
def test_without_transactions_a_batch_is_there_as_often_as_it_is_published(
    kafka: Any, topic: str, tmp_path: Path
) -> None:
    """`Delivery.AT_LEAST_ONCE`: each has all of its rows."""
    kafka.create(topic, 2)
    writing = Writing(tmp_path, topic, kafka, delivery=Delivery.AT_LEAST_ONCE)
    publisher, publication = writing.publisher(), writing.batch(0, range(1_000))
    for _ in range(2):
        publisher.publish(publication)
    assert sorted(row["k"] for row in rows_in(kafka.address, topic)) == sorted([*range(1_000)] * 2)
    assert publisher.version(publication.app) is None
