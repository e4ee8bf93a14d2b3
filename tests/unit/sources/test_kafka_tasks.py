"""Tasks read ranges of offsets, on a real broker: what a range holds, and what of it is gone (SEMANTICS 9.1 to 9.3)."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from kafka_reading import FOR_EVER, all_rows, numbers, reader_of
from source_reading import end_of_batch

from penstock.errors import (
    EXIT_RETRY,
    BadRecordFound,
    SourceUnavailable,
)
from penstock.graph.policies import BadRecord
from penstock.sources import kafka_tasks
from penstock.sources.backlog import ReadLimit
from penstock.sources.base import ERROR, PARTIAL, PARTITION, POSITION, RAW
from penstock.sources.formats import Raw, Text
from penstock.sources.kafka_tasks import KafkaTaskReader, Range, ranges_of
from penstock.testing.source_contract import read
from tools.kafka_server import KafkaServer
from tools.waiting import until

pytestmark = pytest.mark.integration


@dataclass
class Message:
    """A record, an error of a partition, or the end of its log."""

    partition_: int
    offset_: int
    code: int | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def value(self) -> bytes:
        return b"%d" % self.offset_

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def __len__(self) -> int:
        return 100


class Fetching:
    """A consumer whose calls return what the test says, and then what a broker has, from where it is assigned."""

    def __init__(self, script: list[list[Message]], ends: dict[int, int]) -> None:
        self.script, self.ends, self.at = script, ends, dict[int, int]()

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.at = {p.partition: p.offset for p in partitions}

    def consume(self, most: int, seconds: float) -> list[Message]:
        if self.script:
            return self.script.pop(0)
        found = [Message(p, o) for p, first in self.at.items() for o in range(first, self.ends[p])][:most]
        self.at = {p: max([m.offset_ + 1 for m in found if m.partition_ == p], default=o) for p, o in self.at.items()}
        return found

    def get_watermark_offsets(self, at: TopicPartition, **_: Any) -> tuple[int, int]:
        return 0, self.ends[at.partition]


GAP, END = KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF
SCRIPTS: dict[str, list[list[Message]]] = {
    "a new leader denies offsets": [[Message(1, -1, GAP), Message(0, 0), Message(0, 1)]],
    "between records": [[Message(0, 0)], [Message(0, 1), Message(1, 0), Message(1, -1, GAP), Message(1, 1)], []],
    "records come twice": [[Message(0, 0), Message(0, 0), Message(1, 0), Message(0, 1), Message(1, 0)]],
    "from before the range, and after it": [[Message(0, o) for o in (7, 8, 0)]],
    "the brokers are away for a moment": [[Message(0, -1, KafkaError._ALL_BROKERS_DOWN)], []],
    "of a partition that nobody asked for": [[Message(5, 0)], [Message(5, 0, END)]],
}


@pytest.mark.parametrize("bytes_at_once", [64 << 20, 150])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_each_record_of_a_range_comes_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, script: list[list[Message]], bytes_at_once: int
) -> None:
    """Whatever a call of the client returns beside them, and whether the ranges are read together or in turn."""
    monkeypatch.setattr(kafka_tasks, "_BYTES_AT_ONCE", bytes_at_once)
    task = KafkaTaskReader({}, Text(), Text().columns(), ("_partition",), BadRecord.FAIL, patience=0.5)
    start = 3 if any(m.offset_ == 7 for m in script[0]) else 0
    ranges = [Range(0, "t", 0, start, 6), Range(1, "t", 1, 0, 4)]
    consumer: Any = Fetching(list(map(list, script)), {0: 9, 1: 9, 5: 9})
    rows = pa.concat_tables(task._read(consumer, ranges))
    expected = [] if start else [(0, str(o)) for o in range(6)]
    shown = list(zip(rows["_partition"].to_pylist(), rows["value"].to_pylist(), strict=True))
    assert [at for at in shown if at[0] == 1] == [(1, str(o)) for o in range(4)]
    if not start:
        assert [at for at in shown if at[0] == 0] == expected


def test_a_slow_reader_of_the_rows_is_no_broker_that_is_away() -> None:
    """Patience counts from when the task could ask again."""
    task = KafkaTaskReader({}, Raw(), Raw().columns(), (), BadRecord.FAIL, patience=0.1)
    consumer: Any = Fetching([[], []], {0: 70_000})
    rows = 0
    for piece in task._read(consumer, [Range(0, "t", 0, 0, 70_000)]):
        time.sleep(0.2)
        rows += piece.num_rows
    assert rows == 70_000


def test_a_range_that_waits_ends_however_another_one_is_written() -> None:
    """Records after a range that is read say nothing of the others."""
    task = KafkaTaskReader({}, Raw(), Raw().columns(), (), BadRecord.FAIL, patience=0.3)

    class OneSided(Fetching):
        def consume(self, most: int, seconds: float) -> list[Message]:
            time.sleep(0.01)
            return [Message(0, o) for o in range(5)]

    consumer: Any = OneSided([], {0: 9, 1: 9})
    with pytest.raises(SourceUnavailable, match="t-1 at 0"):
        list(task._read(consumer, [Range(0, "t", 0, 0, 3), Range(1, "t", 1, 0, 3)]))


@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    splits=st.integers(1, 9),
)
def test_splits_share_offsets_evenly(sizes: list[int], splits: int) -> None:
    """Each offset is in one split, and no split has two more than another."""
    span = {"ranges": [["t", i, 10, 10 + size] for i, size in enumerate(sizes)]}
    shares = [
        [(r.partition, o) for r in ranges_of(span, split, splits) for o in range(r.start, r.end)]
        for split in range(splits)
    ]
    assert [at for share in shares for at in share] == [
        (i, 10 + n) for i, size in enumerate(sizes) for n in range(size)
    ]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_records_have_their_metadata(kafka: Any, topic: str) -> None:
    """Columns of the record stand behind those of the format, in the order in which they are named."""
    kafka.create(topic, 2, **FOR_EVER)
    kafka.produce(topic, [b"a"], 1, key=b"\xff", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    kafka.produce(topic, [None], 1)
    names = ("_offset", "_key", "_headers", "_timestamp", "_timestamp_type", "_topic", "_partition")
    first, second = all_rows(reader_of(kafka, topic, form=Raw(), with_columns=names)).to_pylist()
    assert first == {
        "value": b"a", "_offset": 0, "_key": b"\xff", "_topic": topic, "_partition": 1, "_timestamp_type": "create",
        "_headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        "_timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), PARTITION: 1, POSITION: 0, ERROR: None, RAW: None,
    }  # fmt: skip
    assert (second["value"], second["_key"], second["_headers"], second["_offset"]) == (None, None, [], 1)


def test_a_topic_whose_broker_sets_the_time_says_append(kafka: Any, topic: str) -> None:
    """The time of its records is that of the broker, whatever their producer has set."""
    kafka.create(topic, **{"message.timestamp.type": "LogAppendTime"})
    before = datetime.now(UTC)
    kafka.produce(topic, [b"a"], timestamp=1_700_000_000_123)
    (row,) = all_rows(reader_of(kafka, topic, form=Raw(), with_columns=("_timestamp", "_timestamp_type"))).to_pylist()
    assert row["_timestamp_type"] == "append"
    assert before - timedelta(milliseconds=1) <= row["_timestamp"] <= datetime.now(UTC)


def test_a_record_that_cannot_be_decoded_is_a_row_with_its_bytes(kafka: Any, topic: str) -> None:
    """SEMANTICS 9.3: with error, position and what came; or it fails the batch."""
    kafka.create(topic)
    kafka.produce(topic, [b'{"k": 1}', b'{"k": "\xff"}', None, b'{"k": 4}'])
    rows = all_rows(reader_of(kafka, topic)).to_pylist()
    assert [row["k"] for row in rows] == [1, None, None, 4]
    assert [(row[POSITION], row[RAW]) for row in rows if row[ERROR]] == [(1, '{"k": "\\xff"}'), (2, None)]
    with pytest.raises(BadRecordFound, match=f"{topic}-0 at 1"):
        all_rows(reader_of(kafka, topic, on_bad_record=BadRecord.FAIL))


@pytest.mark.fault("F41")
def test_a_record_that_is_too_large_is_a_bad_one(kafka: Any, topic: str) -> None:
    """Twenty mebibytes of blanks pass a broker that takes one: compressed they are few. Those beside it are read."""
    kafka.create(topic)
    kafka.produce(topic, numbers(0))
    large = b'{"k": 1' + b" " * (20 << 20) + b"}"
    kafka.produce(topic, [large], settings={"compression.type": "zstd", "message.max.bytes": 1 << 26})
    kafka.produce(topic, numbers(2))
    rows = all_rows(reader_of(kafka, topic)).to_pylist()
    assert [row["k"] for row in rows] == [0, None, 2]
    assert [(row[POSITION], row[ERROR]) for row in rows if row[ERROR]] == [
        (1, f"20,971,528 bytes, and max_record is 16,777,216{PARTIAL}")
    ]
    assert rows[1][RAW] == large[: 1 << 20].decode()
    with pytest.raises(BadRecordFound, match=f"20,971,528 bytes.*{topic}-0 at 1"):
        all_rows(reader_of(kafka, topic, on_bad_record=BadRecord.FAIL))
    assert all_rows(reader_of(kafka, topic, max_record=1 << 25))["k"].to_pylist() == [0, 1, 2]
    for form in (Raw(), Text()):  # to which a record without a value is none that is bad
        rows = all_rows(reader_of(kafka, topic, form=form, max_record=8)).to_pylist()
        assert [(row["value"] is None, row[ERROR] is not None) for row in rows] == [
            (False, False),
            (True, True),
            (False, False),
        ]


@pytest.mark.fault("F41")
@pytest.mark.sample(seconds=20)
def test_a_record_is_larger_than_librdkafka_takes_by_itself(tmp_path: Path) -> None:
    """A broker may take more than an answer may have by default, 100 MB: that would be asked for over and over."""
    more = {"message.max.bytes": 1 << 27, "socket.request.max.bytes": 1 << 28}
    server = KafkaServer(tmp_path / "kafka", settings=more, java=("-Xmx1g", "-XX:+UseSerialGC"))
    server.start()
    try:
        server.create("t")
        large = random.Random(1).randbytes(105_000_000)
        server.produce("t", [b"a", large, b"b"], settings={"message.max.bytes": 1 << 27})
        rows = all_rows(reader_of(server, "t", form=Raw(), max_record=5))
        assert rows["value"].to_pylist() == [b"a", None, b"b"]
        assert rows[ERROR].to_pylist() == [None, f"105,000,000 bytes, and max_record is 5{PARTIAL}", None]
    finally:
        server.end()


def test_two_readers_in_one_process_do_not_disturb_each_other(kafka: Any, topic: str) -> None:
    """Of one configuration, and so of one consumer, that one of them has to open anew."""
    kafka.create(topic)
    n = 70_000  # more than a piece
    kafka.produce(topic, numbers(*range(n)))
    reader = reader_of(kafka, topic)
    span, task = reader.span(None, end_of_batch(reader, None)), reader.task_reader()
    assert read(reader, span).num_rows == n
    first, second = task.read(span, 0, 1), task.read(span, 0, 1)
    pieces: list[list[int]] = [[], []]
    for both in zip_longest(first, second):
        for piece, rows in zip(both, pieces, strict=True):
            rows.extend([] if piece is None else piece["k"].to_pylist())
    assert pieces == [list(range(n))] * 2


@pytest.mark.fault("F37")
def test_transactions_are_read_when_they_are_committed(kafka: Any, topic: str) -> None:
    """Aborted records and markers have offsets, and are no rows; an open transaction holds back what follows it."""
    kafka.create(topic)
    kafka.produce(topic, numbers(0))
    kafka.transaction(topic, numbers(1, 2))
    kafka.transaction(topic, numbers(3, 4), commit=False)
    kafka.produce(topic, numbers(5))
    reader = reader_of(kafka, topic)
    assert all_rows(reader)["k"].to_pylist() == [0, 1, 2, 5]
    assert all_rows(reader, 3)["k"].to_pylist() == [0, 1, 2, 5]
    assert all_rows(reader_of(kafka, topic, read_uncommitted=True))["k"].to_pylist() == [0, 1, 2, 3, 4, 5]
    ends = [end_of_batch(reader, None, ReadLimit(rows=n)) for n in range(1, 9)]
    for end in ends:  # ranges may end in a marker, and in what was aborted
        following = read(reader, reader.span(end, end_of_batch(reader, end)))["k"].to_pylist()
        assert read(reader, reader.span(None, end))["k"].to_pylist() + following == [0, 1, 2, 5]


@pytest.mark.fault("F37")
@pytest.mark.sample(seconds=20)
def test_a_transaction_whose_producer_is_gone_is_waited_out(kafka: Any, topic: str) -> None:
    """SEMANTICS 9.2: nothing beyond it is read until the broker has aborted it, then what others wrote is."""
    kafka.create(topic)
    kafka.produce(topic, numbers(0))
    gone = kafka.producer(**{"transactional.id": f"gone-{topic}", "transaction.timeout.ms": 1_000})
    gone.init_transactions(60)
    gone.begin_transaction()
    for value in numbers(1, 2):
        gone.produce(topic, value=value, partition=0)
    gone.flush(60)
    del gone  # it aborts nothing
    kafka.produce(topic, numbers(3))
    reader = reader_of(kafka, topic)
    end = end_of_batch(reader, None)
    assert read(reader, reader.span(None, end))["k"].to_pylist() == [0]
    until(lambda: end_of_batch(reader, end) != end, "the broker to abort the transaction")
    following = reader.span(end, end_of_batch(reader, end))
    assert read(reader, following)["k"].to_pylist() == [3]


@pytest.mark.fault("F37")
def test_compacted_records_are_no_rows(kafka: Any, topic: str) -> None:
    """Their offsets stay; a range over them reads what is left, and ends."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "1048576",
    }
    kafka.create(topic, **config, **{"max.compaction.lag.ms": "200"})
    for k in range(4):
        kafka.produce(topic, numbers(k), key=b"same" if k < 3 else b"other")
        time.sleep(0.15)
    reader = reader_of(kafka, topic)

    def left() -> list[int] | None:
        kafka.produce(topic, numbers(9), key=b"last")  # so that the segment before is closed
        rows = all_rows(reader)["k"].to_pylist()
        return rows if rows[:2] == [2, 3] else None

    assert until(left, "the topic to be compacted")


@pytest.mark.sample(seconds=25)
def test_a_broker_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """Killed and started again it gives the same rows; frozen it is no failure but a pause, for driver and task."""
    server = KafkaServer(tmp_path / "kafka")
    server.start()
    try:
        server.create("t")
        server.produce("t", numbers(*range(5)))
        reader = reader_of(server, "t")
        span = reader.span(None, end_of_batch(reader, None))
        assert read(reader, span).num_rows == 5
        server.kill()
        impatient = replace(reader.task_reader(), patience=1.0)
        with pytest.raises(SourceUnavailable) as away:
            list(impatient.read(span, 0, 1))
        assert away.value.exit_code == EXIT_RETRY
        server.start_broker()
        server.wait()
        reader.verify(span)
        assert read(reader, span)["k"].to_pylist() == list(range(5))
        server.freeze()
        with pytest.raises(SourceUnavailable):
            list(impatient.read(span, 0, 1))
        server.thaw()
        assert read(reader, span)["k"].to_pylist() == list(range(5))
    finally:
        server.end()
