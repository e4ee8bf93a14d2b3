"""A limit in bytes bounds a batch of a topic, by the sizes of the records that come next (decision 142)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_reading import reader_of
from source_reading import end_of_batch

from penstock.errors import SourceUnavailable
from penstock.graph.policies import OnGap
from penstock.sources.backlog import ReadLimit
from penstock.sources.formats import Raw
from penstock.sources.kafka import KafkaReader
from penstock.sources.kafka_sizes import RecordSizes, Sample
from penstock.testing.examples import examples
from penstock.testing.source_contract import read
from tools.waiting import free_port

pytestmark = pytest.mark.integration


def batches(reader: KafkaReader, most: int) -> list[list[int]]:
    """Return the sizes of the records of each batch, from the beginning, under a limit in bytes."""
    position, sizes = None, list[list[int]]()
    while (end := end_of_batch(reader, position, ReadLimit(bytes=most))) != position:
        values = read(reader, reader.span(position, end))["value"].to_pylist()
        sizes.append([len(value) for value in values])
        position = end
    return sizes


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40_000)), max_size=300))
def test_a_sample_is_the_records_from_its_first_offset_on(records: list[tuple[int, int]]) -> None:
    """Against the plain sums: offsets without a record count with the next one, and what is done takes no more."""
    sample, at, taken = Sample(5), 5, list[tuple[int, int]]()
    for step, size in records:
        at += step
        if sum(s for s, _ in taken) < 200 and sum(b for _, b in taken) < 64 << 10:
            taken.append((step, size))
        sample.take(at - 1, size)
        sample.take(at - 1, size)
    span, size = sum(s for s, _ in taken), sum(b for _, b in taken)
    assert (sample.offsets, sample.bytes, sample.next) == (span, size, 5 + span)
    assert sample.of(span) == size
    assert sample.of(10 * span) == 10 * size


def test_of_no_record_nothing_is_known() -> None:
    """Partitions that hold the markers of transactions only are not bounded: they have no bytes."""
    assert Sample(0).of(1_000) == 0


def test_a_batch_has_no_more_bytes_than_its_limit(kafka: Any, topic: str) -> None:
    """Where records of a partition are alike: the partition of large ones gives fewer, and none starves."""
    kafka.create(topic, 3)
    kafka.produce(topic, [b"s" * 100] * 300, 0)
    kafka.produce(topic, [b"l" * 5_000] * 20, 1)
    sizes = batches(reader_of(kafka, topic, form=Raw()), 20_000)
    assert sorted(size for batch in sizes for size in batch) == [100] * 300 + [5_000] * 20
    assert max(sum(batch) for batch in sizes) <= 20_000
    assert all(sum(batch) > 10_000 for batch in sizes[:-2]), "and not much less"
    assert {100, 5_000} == set(sizes[0])


def test_each_batch_is_measured_anew(kafka: Any, topic: str) -> None:
    """Records that become a hundred times as large are a hundredth in the next batch."""
    kafka.create(topic)
    kafka.produce(topic, [b"s" * 50] * 400)
    kafka.produce(topic, [b"l" * 5_000] * 40)
    sizes = batches(reader_of(kafka, topic, form=Raw()), 20_000)
    assert sizes[0] == [50] * 400
    assert {tuple(batch) for batch in sizes[1:]} == {(5_000,) * 4}


def test_a_record_above_the_limit_is_a_batch_of_its_own(kafka: Any, topic: str) -> None:
    """Else the job would never go on."""
    kafka.create(topic)
    kafka.produce(topic, [b"l" * 5_000] * 3)
    assert batches(reader_of(kafka, topic, form=Raw()), 1_000) == [[5_000]] * 3


def test_keys_count_and_offsets_without_a_record_do_not(kafka: Any, topic: str) -> None:
    """Of a transaction there is a marker, of an aborted one there is nothing else."""
    kafka.create(topic, 2)
    kafka.produce(topic, [b"v" * 10] * 5, 0, key=b"k" * 90)
    kafka.transaction(topic, [b"x" * 1_000] * 3, 1, commit=False)
    backlog = reader_of(kafka, topic, form=Raw())
    weighed = backlog.weighed(backlog.backlog(None))
    assert (weighed[f"{topic}-0"].bytes, weighed[f"{topic}-1"].bytes) == (500, 0)


def test_what_retention_deleted_is_not_measured(kafka: Any, topic: str) -> None:
    """A job that skips is measured from the first record that is there."""
    kafka.create(topic)
    kafka.produce(topic, [b"l" * 1_000] * 5)
    reader = reader_of(kafka, topic, form=Raw(), on_gap=OnGap.SKIP)
    after = end_of_batch(reader, None, ReadLimit(rows=1))
    kafka.produce(topic, [b"s" * 10] * 5)
    kafka.delete_before(topic, 0, 5)
    (waiting,) = reader.weighed(reader.backlog(after)).values()
    assert (waiting.rows, waiting.bytes) == (5, 50)


def test_nothing_that_waits_is_no_question() -> None:
    """Also where nobody answers."""
    assert RecordSizes({"bootstrap.servers": "127.0.0.1:1"}).samples({}) == {}


@pytest.mark.slow
def test_brokers_that_are_away_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """PEN-SRC-009, after the time that an election of a leader may take, here a second."""
    monkeypatch.setattr("penstock.sources.kafka_sizes.SECONDS", 1.0)
    with pytest.raises(SourceUnavailable, match="t-0"):
        RecordSizes({"bootstrap.servers": f"127.0.0.1:{free_port()}"}).samples({("t", 0): 0})
