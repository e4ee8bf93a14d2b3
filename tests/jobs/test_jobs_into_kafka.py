"""Jobs write into a topic: each row once for readers of committed records, through crashes, restores and fences."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kafka_topics import records_in, rows_in

from penstock import Job, agg, seconds
from penstock.errors import SinkBehind, SinkNotFound, SinkValueRefused
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import Delivery, MemorySink
from penstock.sinks import Kafka as KafkaSink
from penstock.sources import Json, Kafka, MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.sample(2, of="jobs into Kafka")]

HOOKS = [
    ("FixOffsets", "after"), ("Compute", "after"), ("CommitBatch", "after"), ("PublishSinks", "before"),
    ("PublishSinks", "published copy"), ("PublishSinks", "published sums"), ("PublishSinks", "after"),
    ("AckSources", "before"), ("Purge", "after"),
]  # fmt: skip
DDL = "user string, at timestamp, n int"


def from_topic_to_topic(kafka: Any, topic: str) -> Job:
    """Return a job that copies a topic, and writes the sums of windows into another."""
    job = Job("orders", partitions=2)
    source = Kafka([topic], servers=kafka.address, format=Json(DDL), splits=2)
    orders = job.source("orders", source, event_time="at", max_out_of_order=seconds(1))
    orders.write("copy", KafkaSink(f"{topic}-copy", servers=kafka.address, key="user"))
    windows = orders.key_by("user").window("by_user", Tumbling(seconds(10)).drop_late())
    sums = windows.aggregate(n=agg.count(), total=agg.sum("n"))
    sums.write("sums", KafkaSink(f"{topic}-sums", servers=kafka.address, key=["user", "window_start"]))
    return job


def record(user: str, second: int, n: int) -> bytes:
    return json.dumps({"user": user, "at": f"1970-01-01T00:{second // 60:02}:{second % 60:02}Z", "n": n}).encode()


@pytest.mark.fault("F01", "F55")
def test_from_kafka_into_kafka_each_row_is_there_once_through_crashes(kafka: Any, topic: str, tmp_path: Path) -> None:
    """A driver dies at each hook; two topics; the records of a user stay in the order in which they arrived."""
    for name, partitions in ((topic, 2), (f"{topic}-copy", 3), (f"{topic}-sums", 1)):
        kafka.create(name, partitions)
    written = 0
    settings = DriverSettings(limits=lambda: Limits(rows=30))
    with Harness(from_topic_to_topic(kafka, topic), tmp_path / "root", settings=settings) as h:
        for stage, when in HOOKS:
            for partition, users in ((0, (0, 2)), (1, (1,))):  # a user is in one partition
                new = [n for n in range(written, written + 12) if n % 3 in users]
                kafka.produce(topic, [record("abc"[n % 3], n, n) for n in new], partition)
            written += 12
            h.crash_at(stage, when)
            with pytest.raises(Crashed):
                h.batch()
            h.restart()
        h.batch()
    records = records_in(kafka.address, f"{topic}-copy")
    assert Counter(json.loads(r.value or b"")["n"] for r in records) == Counter(range(written))
    by_key: dict[Any, list[int]] = {}
    for r in records:
        by_key.setdefault(r.key, []).append(json.loads(r.value or b"")["n"])
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert {r.headers["penstock-app"].decode().split("/")[1] for r in records} == {"copy"}
    assert {(r.headers["penstock-job"], r.headers["penstock-step"]) for r in records} == {
        (h.job.name.encode(), b"copy")
    }
    sums = rows_in(kafka.address, f"{topic}-sums")
    closed = {(row["user"], row["window_start"]): row["total"] for row in sums}
    assert len(closed) == len(sums) > 20
    for (user, start), total in closed.items():
        first = int(start[14:16]) * 60 + int(start[17:19])
        assert total == sum(n for n in range(first, first + 10) if "abc"[n % 3] == user)


def copy_job(kafka: Any, topic: str, **more: Any) -> Job:
    """Return a job that copies memory into a topic, and into memory."""
    job = Job("copy", partitions=2)
    rows = job.source("rows", MemorySource("k long, v double"))
    rows.write("out", KafkaSink(topic, servers=kafka.address, **more))
    rows.write("kept", MemorySink())
    return job


def fed(*numbers: int) -> dict[str, Any]:
    return {"rows": [{"k": number, "v": 1.0} for number in numbers]}


def numbers(kafka: Any, topic: str) -> list[int]:
    return sorted(row["k"] for row in rows_in(kafka.address, topic))


def test_a_restore_publishes_again_under_new_batch_ids(kafka: Any, topic: str, tmp_path: Path) -> None:
    """SEMANTICS 10.1: the headers tell the two apart, and no batch of before is mistaken for one of them."""
    kafka.create(topic)
    with Harness(copy_job(kafka, topic), tmp_path / "root") as h:
        for number in range(3):
            h.batch(fed(number))
        h.restore(batch=0)
        h.batch()
        batches = {int(r.headers["penstock-batch"]) for r in records_in(kafka.address, topic)}
        assert numbers(kafka, topic) == [0, 1, 1, 2, 2]
        assert max(batches) > 2


@pytest.mark.fault("F58")
def test_a_group_that_is_deleted_between_two_starts_doubles_nothing(kafka: Any, topic: str, tmp_path: Path) -> None:
    """As after a week without a batch: the headers in the topic say what it shows."""
    kafka.create(topic)
    with Harness(copy_job(kafka, topic), tmp_path / "root") as h:
        h.batch(fed(0))
        h.crash_at("PublishSinks", "published out")
        with pytest.raises(Crashed):
            h.batch(fed(1))
        app = records_in(kafka.address, topic)[0].headers["penstock-app"].decode()
        kafka.admin.delete_consumer_groups([app])[app].result()
        h.restart()
        h.batch(fed(2))
    assert numbers(kafka, topic) == [0, 1, 2]


@pytest.mark.fault("F70")
def test_a_topic_that_was_deleted_stops_the_job_with_what_is_missing(kafka: Any, topic: str, tmp_path: Path) -> None:
    """SEMANTICS 9.5: while it runs and at a start; a topic of the same name is not taken for the old one."""
    kafka.create(topic)
    with Harness(copy_job(kafka, topic), tmp_path / "root") as h:
        for number in range(2):
            h.batch(fed(number))
        kafka.delete(topic)
        kafka.create(topic)
        with pytest.raises(SinkBehind, match="was deleted, and had batch 1 .*missing are 0 .*1 "):
            h.batch(fed(2))
        with pytest.raises(SinkBehind, match="missing are 0"):
            h.restart()


def test_a_topic_that_is_not_there_is_named_before_the_first_batch(kafka: Any, topic: str, tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(SinkNotFound, match=topic), Harness(copy_job(kafka, topic), tmp_path / "root"):
        pass


@pytest.mark.fault("F74")
def test_a_value_that_json_cannot_hold_fails_the_batch_before_its_commit(
    kafka: Any, topic: str, tmp_path: Path
) -> None:
    """SEMANTICS 9.6: no sink shows the batch."""
    kafka.create(topic)
    with Harness(copy_job(kafka, topic), tmp_path / "root") as h:
        h.batch(fed(0))
        before = h.commit().batch
        with pytest.raises(SinkValueRefused, match="'v'"):
            h.batch({"rows": [{"k": 1, "v": float("nan")}]})
        assert h.commit().batch == before
    assert numbers(kafka, topic) == [0]


def test_without_transactions_a_crash_repeats_a_batch(kafka: Any, topic: str, tmp_path: Path) -> None:
    """SEMANTICS 9.4: at least once, and never less."""
    kafka.create(topic)
    with Harness(copy_job(kafka, topic, delivery=Delivery.AT_LEAST_ONCE), tmp_path / "root") as h:
        h.batch(fed(0))
        h.crash_at("PublishSinks", "published out")
        with pytest.raises(Crashed):
            h.batch(fed(1))
        h.restart()
        h.batch(fed(2))
    assert numbers(kafka, topic) == [0, 1, 1, 2]
