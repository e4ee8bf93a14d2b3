"""Jobs read a topic that is written meanwhile: each record once, through crashes and a broker that goes."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from avro_writing import encoded
from avro_writing import record as record_of
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec
from deltalake import DeltaTable
from harness_jobs import plain
from kafka_reading import committed
from registry_server import RegistryServer
from test_requeued_rows import ask, requests_of

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import Offsets
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.requeue_requests import RequeueAnswer
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import (
    EXIT_RETRY,
    DecoderFailed,
    FixedRangeGone,
    SourceGap,
    SourceUnavailable,
    TopicNotFound,
    TopicReplaced,
)
from penstock.graph.policies import OnGap
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import Delta, MemorySink
from penstock.sources import ArrowFunction, Avro, Json, Kafka, Start
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling
from tools.kafka_server import KafkaServer
from tools.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.sample(2, of="jobs from Kafka")]

GROUP = "penstock.orders.orders"
HOOKS = [
    ("FixOffsets", "after"), ("Compute", "before"), ("Compute", "after"), ("CommitBatch", "after"),
    ("PublishSinks", "after"), ("AckSources", "before"),
]  # fmt: skip


def job_of(servers: str, topic: str, folder: Path, **more: Any) -> Job:
    """Return a job that copies orders into Delta, counts them by user in windows, and keeps what is undecodable."""
    job = Job("orders", partitions=2)
    source = Kafka(
        [topic], servers=servers, format=Json("user string, at timestamp, n int"), with_columns=["_partition", "_offset"],
        splits=2, **more,
    )  # fmt: skip
    orders = job.source("orders", source, event_time="at", max_out_of_order=seconds(5))
    orders.write("copy", Delta(folder / "copy"))
    windows = orders.key_by("user").window("by_user", Tumbling(seconds(10)).drop_late())
    windows.aggregate(n=agg.count(), total=agg.sum("n")).write("sums", MemorySink())
    job.quarantine("orders").select("_partition", "_position", "_reason", "_raw").write("bad", MemorySink())
    return job


def record(user: str, second: float, n: int = 1) -> bytes:
    return json.dumps({"user": user, "at": f"1970-01-01T00:{second // 60:02.0f}:{second % 60:06.3f}Z", "n": n}).encode()


def copied(folder: Path) -> list[tuple[int, int]]:
    """Return partition and offset of all rows in the table."""
    table = DeltaTable(str(folder / "copy")).to_pyarrow_table()
    return sorted(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))


def test_each_record_is_once_in_the_table_through_crashes(kafka: Any, topic: str, tmp_path: Path) -> None:
    """Written while the job runs, into partitions of their own pace, with some that cannot be decoded."""
    kafka.create(topic, 3)
    rng = random.Random(7)
    written = dict.fromkeys(range(3), 0)
    bad: dict[tuple[int, int], str | None] = {}
    limit = DriverSettings(limits=lambda: Limits(rows=40))
    with Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root", settings=limit) as h:
        for stage, when in [*HOOKS, *HOOKS]:
            for partition in range(3):
                records = [record(rng.choice("abc"), written[partition] + i) for i in range(rng.randrange(1, 15))]
                if rng.random() < 0.5:
                    records[-1] = value = rng.choice([b'{"user": 5}', None])
                    bad[partition, written[partition] + len(records) - 1] = value and value.decode()
                kafka.produce(topic, records, partition)
                written[partition] += len(records)
            h.crash_at(stage, when)
            with pytest.raises(Crashed):
                h.batch()
            h.restart()
        h.batch()
        position = h.commit().sources["orders"].position
        sums = h.output()["sums"]
        quarantined = h.output()["bad"]
    every = {(partition, offset) for partition, n in written.items() for offset in range(n)}
    assert copied(tmp_path) == sorted(every - {*bad})
    assert position["topics"][topic]["offsets"] == {str(partition): n for partition, n in written.items()}
    assert len({(user, start) for user, start, *_ in plain(sums)}) == len(sums), "no window twice"
    assert {(int(row["_partition"]), row["_position"]): row["_raw"] for row in quarantined} == bad
    assert {*bad.values()} == {'{"user": 5}', None}


def test_the_group_of_a_job_has_its_position(kafka: Any, topic: str, tmp_path: Path) -> None:
    """Read back from the broker after each batch, and after a crash before AckSources with the next batch."""
    kafka.create(topic, 2)

    def follows() -> bool:
        position = h.commit().sources["orders"].position
        h._running().driver.engine.source("orders").backlog(position)  # as a driver looks that waits
        offsets = position["topics"][topic]["offsets"]
        return committed(kafka, GROUP, topic, 2) == {int(number): offset for number, offset in offsets.items()}

    with Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root") as h:
        for batch, written in enumerate([(3, 1), (0, 2), (4, 5)]):
            for partition, n in enumerate(written):
                kafka.produce(topic, [record("a", second) for second in range(n)], partition)
            h.batch()
            until(follows, f"the offsets of batch {batch}")
        kafka.produce(topic, [record("a", 9)], 1)
        h.crash_at("AckSources", "before")
        with pytest.raises(Crashed):
            h.batch()
        h.restart()
        until(follows, "the offsets of the batch of the crash, though no other comes")
        kafka.produce(topic, [record("a", 10)], 0)
        h.batch()
        until(follows, "the offsets of the batch after the crash")
        assert committed(kafka, GROUP, topic, 2) == {0: 8, 1: 9}
        kafka.produce(topic, [record("b", 11)] * 3, 0)
        assert lags(kafka, GROUP, topic) == {0: 3, 1: 0}


def lags(kafka: KafkaServer, group: str, topic: str) -> dict[int, int]:
    """Return the lag of each partition as Kafka's tool for groups computes it: by two questions of an administrator."""
    asked = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    offsets = {(at.topic, at.partition): at.offset for at in asked.topic_partitions if at.topic == topic}
    wanted = {TopicPartition(*at): OffsetSpec.latest() for at in offsets}
    ends = {at: future.result(30).offset for at, future in kafka.admin.list_offsets(wanted).items()}
    return {at.partition: end - offsets[at.topic, at.partition] for at, end in ends.items()}


def test_a_limit_in_bytes_bounds_batches_and_is_said_in_the_log(kafka: Any, topic: str, tmp_path: Path) -> None:
    """SEMANTICS 8.5: by the sizes of the records that come next, which grow between two batches here."""
    kafka.create(topic)
    small, large = record("a", 1), record("a" * 900, 1)
    kafka.produce(topic, [small] * 50)
    limit = DriverSettings(limits=lambda: Limits(bytes=20 * len(small)))
    with Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root", settings=limit) as h:
        for batch, (rows, bound) in enumerate([(20, "bytes"), (40, "bytes"), (50, None)]):
            h.batch()
            log = Log(LocalFolder(tmp_path / "root" / "orders").store())
            newest = next(entry for _, entry in log.entries_back(log.find_tail()) if isinstance(entry, Offsets))
            assert (newest.batch, len(copied(tmp_path))) == (batch, rows)
            assert newest.limits.get("bound", {}).get("orders") == bound
        kafka.produce(topic, [large] * 3)
        h.batch()
        assert len(copied(tmp_path)) == 50 + max(1, 20 * len(small) // len(large))


def test_each_partition_has_a_watermark(kafka: Any, topic: str, tmp_path: Path) -> None:
    """SEMANTICS 2.1: the slowest holds windows open; one that was never read holds them from the beginning of time."""
    kafka.create(topic, 2)
    with Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root") as h:
        kafka.produce(topic, [record("a", 1), record("a", 40)], 0)
        assert h.batch()["sums"] == []
        kafka.produce(topic, [record("b", 2), record("b", 15.5)], 1)
        assert plain(h.batch()["sums"]) == [("a", 0.0, 10.0, 1, 1), ("b", 0.0, 10.0, 1, 1)]
        assert set(h.commit().sources["orders"].partitions) == {f"{topic}-0", f"{topic}-1"}


@pytest.mark.remedy("PEN-SRC-009")
def test_a_broker_that_goes_ends_the_driver_for_a_retry_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HDFS does: exit code 75, nothing committed, and the next driver goes on."""
    server = KafkaServer(tmp_path / "kafka")
    server.start()
    try:
        server.create("t")
        server.produce("t", [record("a", n) for n in range(5)])
        with Harness(job_of(server.address, "t", tmp_path), tmp_path / "root") as h:
            h.batch()
            server.kill()
            with monkeypatch.context() as impatient:
                impatient.setattr("penstock.kafka.admin.SECONDS", 2.0)
                with pytest.raises(SourceUnavailable) as away:
                    h.batch()
            assert away.value.exit_code == EXIT_RETRY
            server.start_broker()
            server.wait()
            server.produce("t", [record("a", n) for n in range(5, 9)])
            h.restart()
            h.batch()
        assert copied(tmp_path) == [(0, n) for n in range(9)]
    finally:
        server.end()


@pytest.mark.remedy("PEN-SRC-012")
def test_a_topic_that_is_not_there_is_named_at_the_start(kafka: Any, topic: str, tmp_path: Path) -> None:
    """Before the first batch; once it is there, the job runs."""
    with pytest.raises(TopicNotFound, match=topic), Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root"):
        pass
    kafka.create(topic)
    kafka.produce(topic, [record("a", 1)])
    with Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root") as h:
        h.batch()
    assert copied(tmp_path) == [(0, 0)]


@pytest.mark.fault("F34")
@pytest.mark.remedy("PEN-SRC-011")
def test_a_topic_that_was_created_again_is_read_from_its_beginning(kafka: Any, topic: str, tmp_path: Path) -> None:
    """A restore of nothing, as `--from empty` does it."""
    kafka.create(topic)
    kafka.produce(topic, [record("a", n) for n in range(3)])
    with Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root") as h:
        h.batch()
        kafka.delete(topic)
        kafka.create(topic)
        kafka.produce(topic, [record("a", n) for n in range(5)])
        with pytest.raises(TopicReplaced, match=topic):
            h.batch()
        h.restore(empty=True)
        h.batch()
        assert h.commit().sources["orders"].position["topics"][topic]["offsets"] == {"0": 5}


def cut(server: KafkaServer, size: int) -> None:
    """Leave so many bytes of the log of topic `t`, as a broker that has lost what it had not synced."""
    server.kill()
    os.truncate(server.folder / "data" / "t-0" / f"{0:020}.log", size)
    server.start_broker()
    server.wait()


@pytest.mark.fault("F33")
@pytest.mark.remedy("PEN-SRC-011")
def test_a_topic_that_has_become_shorter_is_read_from_its_beginning(tmp_path: Path) -> None:
    """SEMANTICS 9.2: it keeps its id. A batch that was fixed stops, and so does the next batch of a position."""
    server = KafkaServer(tmp_path / "kafka")
    server.start()
    try:
        server.create("t")
        log, sizes = server.folder / "data" / "t-0" / f"{0:020}.log", [0]
        for n in range(3):
            server.produce("t", [record("a", n)])
            sizes.append(log.stat().st_size)
        with Harness(job_of(server.address, "t", tmp_path, on_gap=OnGap.SKIP), tmp_path / "root") as h:

            def from_empty() -> int:
                h.restore(empty=True)
                h.batch()
                return int(h.commit().sources["orders"].position["topics"]["t"]["offsets"]["0"])

            h.batch()
            server.produce("t", [record("a", n) for n in (3, 4)])
            h.crash_at("Compute", "before")
            with pytest.raises(Crashed):
                h.batch()
            cut(server, sizes[3])
            with pytest.raises(TopicReplaced, match="offset 3 of t-0 is wanted, and the topic has 0 to 3: .* shorter"):
                h.restart()
            assert from_empty() == 3
            cut(server, sizes[1])
            with pytest.raises(TopicReplaced, match="offset 3 of t-0 is wanted, and the topic has 0 to 1: .* shorter"):
                h.batch()
            assert from_empty() == 1
    finally:
        server.end()


@pytest.mark.fault("F33")
@pytest.mark.remedy("PEN-SRC-010")
def test_records_that_are_gone_are_skipped_when_the_job_says_so(kafka: Any, topic: str, tmp_path: Path) -> None:
    """SEMANTICS 9.2: and the span in the log says which."""
    kafka.create(topic)
    kafka.produce(topic, [record("a", n) for n in range(3)])
    with Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root") as h:
        h.batch()
        kafka.produce(topic, [record("a", n) for n in range(3, 9)])
        kafka.delete_before(topic, 0, 6)
        with pytest.raises(SourceGap, match=f"offset 3 of {topic}-0 is wanted, and the topic has 6 to 9"):
            h.batch()
        h.restart(job_of(kafka.address, topic, tmp_path, on_gap=OnGap.SKIP))
        h.batch()
        log = Log(LocalFolder(tmp_path / "root" / "orders").store())
        newest = next(entry for _, entry in log.entries_back(log.find_tail()) if isinstance(entry, Offsets))
        assert newest.ranges["orders"]["span"]["skipped"] == [[f"{topic}-0", 3, 6]]
    assert copied(tmp_path) == [(0, n) for n in (0, 1, 2, 6, 7, 8)]


@pytest.mark.remedy("PEN-SRC-014")
def test_a_fixed_batch_whose_records_are_gone_is_planned_again(kafka: Any, topic: str, tmp_path: Path) -> None:
    """SEMANTICS 9.1, 9.2: what was fixed must replay, or the job says which offsets it wants."""
    kafka.create(topic)
    kafka.produce(topic, [record("a", 0)])
    with Harness(job_of(kafka.address, topic, tmp_path), tmp_path / "root") as h:
        h.batch()
        kafka.produce(topic, [record("a", n) for n in range(1, 5)])
        h.crash_at("Compute", "before")
        with pytest.raises(Crashed):
            h.batch()
        kafka.delete_before(topic, 0, 3)
        with pytest.raises(FixedRangeGone, match=f"offset 1 of {topic}-0 is wanted, and the topic has 3 to 5"):
            h.restart()
        h.restore(batch=0, job=job_of(kafka.address, topic, tmp_path, on_gap=OnGap.SKIP))
        h.batch()
    assert copied(tmp_path) == [(0, n) for n in (0, 3, 4)]


def test_rows_in_quarantine_name_topic_partition_and_offset(kafka: Any, topic: str, tmp_path: Path) -> None:
    """SEMANTICS 9.3: of several topics, also of one that came later; and those that lack an event time."""
    first, second = f"{topic}-a", f"{topic}-b"
    job = Job("orders", partitions=1)
    source = Kafka(pattern=f"{topic}-.", servers=kafka.address, format=Json("user string, at timestamp"))
    job.source("orders", source, event_time="at", max_out_of_order=seconds(5)).write("rows", MemorySink())
    job.quarantine("orders").write("bad", MemorySink())
    kafka.create(second, 2)
    kafka.produce(second, [record("a", 1), b"no JSON"], 1)
    with Harness(job, tmp_path / "root") as h:
        names = [(row["_topic_partition"], row["_position"]) for row in h.batch()["bad"]]
        kafka.create(first)
        kafka.produce(first, [record("a", 1), b'{"user": "b"}'])
        kafka.produce(second, [b"no JSON"], 0)
        rows = h.batch()["bad"]
    assert names == [(f"{second}-1", 1)]
    assert {(row["_topic_partition"], row["_position"], row["_reason"][:15]) for row in rows} == {
        (f"{first}-0", 1, "null event time"), (f"{second}-0", 0, "no JSON object "),
    }  # fmt: skip


def test_undecodable_records_are_sent_again_to_corrected_code(kafka: Any, topic: str, tmp_path: Path) -> None:
    """Decision 134: with what the value says; it needs no record that is there still, and bytes fail again."""

    def job(kind: str) -> Job:
        made = Job("orders", partitions=1)
        source = Kafka([topic], servers=kafka.address, format=Json(f"user {kind}, n int"), with_columns=["_offset"])
        made.source("orders", source).write("rows", MemorySink())
        made.quarantine("orders").write("bad", MemorySink())
        return made

    kafka.create(topic)
    kafka.produce(topic, [b'{"user": "a", "n": 1}', b'{"user": 7, "n": 2}', b"\xff", None])
    with Harness(job("string"), tmp_path / "root") as h:
        h.batch()
        kafka.delete_before(topic, 0, 4)
        h.restart(job("int"))
        request = ask(h, "orders")
        h.batch()
        assert [(row["user"], row["n"], row["_offset"]) for row in h.output()["rows"]] == [("a", 1, 0), (7, 2, None)]
        again = [(row["_topic_partition"], row["_position"], row["_raw"]) for row in h.output()["bad"][3:]]
        assert again == [(f"{topic}-0", 2, "\\xff"), (f"{topic}-0", 3, None)]
        assert requests_of(h).answer(request) == RequeueAnswer(rows=3, batch=1)
        assert h.commit().totals["requeue:orders"] == {"read": 3, "quarantined": 2, "passed": 1}


def test_records_before_a_later_beginning_are_sent_from_quarantine(kafka: Any, topic: str, tmp_path: Path) -> None:
    """10.1, 10.5: after a restore of nothing the topic begins at its latest offsets, and brings nothing of before."""

    def job(kind: str) -> Job:
        made = Job("orders", partitions=1)
        source = Kafka([topic], servers=kafka.address, format=Json(f"user {kind}, n int"), start=Start.LATEST)
        made.source("orders", source).write("rows", MemorySink())
        made.quarantine("orders").write("bad", MemorySink())
        return made

    kafka.create(topic, 2)
    with Harness(job("string"), tmp_path / "root") as h:
        h.batch()
        for n in (1, 2, 3):
            kafka.produce(topic, [b'{"user": %d, "n": %d}' % (n, n)], n % 2)
        h.batch()
        h.restore(empty=True, job=job("int"))
        h.batch()
        kafka.produce(topic, [b'{"user": 4, "n": 4}'], 0)
        h.batch()
        request = ask(h, "orders", from_batch=0)
        h.batch()
        assert sorted(row["n"] for row in h.output()["rows"]) == [1, 2, 3, 4]
        assert requests_of(h).answer(request) == RequeueAnswer(rows=3, batch=h.commit().batch)


def halved(records: pa.Table) -> pa.Table:
    """Return numbers halved; it raises for a record that is no number."""
    return pa.table({"n": [int(value) // 2 for value in records["value"].to_pylist()]})


def halved_if_numbers(records: pa.Table) -> pa.Table:
    """Return numbers halved, and mark records that are none."""
    numbers = [int(value) // 2 if value.isdigit() else None for value in records["value"].to_pylist()]
    return pa.table({"n": numbers, "_error": [None if n is not None else "no number" for n in numbers]})


@pytest.mark.fault("F48")
@pytest.mark.remedy("PEN-SRC-015")
def test_a_function_that_decodes_is_named_at_its_line(kafka: Any, topic: str, tmp_path: Path) -> None:
    """And commits nothing; corrected, it marks the record that it cannot take."""

    def job_by(fn: Any) -> Job:
        job = Job("orders", partitions=1)
        job.source("orders", Kafka([topic], servers=kafka.address, format=ArrowFunction(fn, output="n int"))).write(
            "rows", MemorySink()
        )
        job.quarantine("orders").select("_topic_partition", "_position", "_reason").write("bad", MemorySink())
        return job

    kafka.create(topic)
    kafka.produce(topic, [b"8", b"x"])
    line = halved.__code__.co_firstlineno + 2
    with Harness(job_by(halved), tmp_path / "root") as h:
        with pytest.raises(DecoderFailed, match=rf"ValueError: invalid literal.*{re.escape(__file__)}:{line}"):
            h.batch()
        h.restart(job_by(halved_if_numbers))
        h.batch()
        output = h.output()
    assert [row["n"] for row in output["rows"]] == [4]
    assert [tuple(row.values()) for row in output["bad"]] == [(f"{topic}-0", 1, "no number")]


def test_records_of_a_registry_are_read_while_their_writer_changes(kafka: Any, topic: str, tmp_path: Path) -> None:
    """The columns are those of the schema at the start; a registry that is away ends the driver for a retry."""
    first = record_of(("id", "int"), ("name", "string"))
    second = record_of(("id", "int"), ("name", "string"), ("more", "double"))
    registry = RegistryServer()
    number = registry.register(f"{topic}-value", first)
    kafka.create(topic)
    kafka.produce(topic, [encoded(first, {"id": 1, "name": "a"}, number)])

    def job() -> Job:
        made = Job("orders", partitions=1)
        source = Kafka([topic], servers=kafka.address, format=Avro(registry=registry.url))
        made.source("orders", source).write("rows", MemorySink())
        made.quarantine("orders").select("_position", "_reason").write("bad", MemorySink())
        return made

    with registry.up(), Harness(job(), tmp_path / "root") as h:
        h.batch()
        later = registry.register(f"{topic}-value", second)
        row = {"id": 2, "name": "b", "more": 0.5}
        kafka.produce(topic, [encoded(second, row, later), encoded(first, {"id": 3, "name": "c"}, 99)])
        h.batch()
        assert [(row["id"], row["name"]) for row in h.output()["rows"]] == [(1, "a"), (2, "b")]
        (bad,) = h.output()["bad"]
        assert (bad["_position"], "schema 99 of the registry" in bad["_reason"]) == (2, True)
    with pytest.raises(SourceUnavailable, match=re.escape(registry.url)):
        Harness(job(), tmp_path / "root").__enter__()
