"""Topics are read by explicit ranges, on a real broker (SEMANTICS 2.1, 9.1 to 9.3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions
from kafka_reading import FOR_EVER, all_rows, committed, numbers, reader_of
from source_reading import end_of_batch
from structlog.testing import capture_logs

from penstock.errors import (
    EXIT_PERSON,
    ConfigError,
    FixedRangeGone,
    SourceGap,
    TopicNotFound,
    TopicReplaced,
)
from penstock.graph.policies import OnGap
from penstock.rates.limits import Limits
from penstock.runtime.driver.admission import Pace, admit
from penstock.sources import Kafka, Start
from penstock.sources.backlog import ReadLimit
from penstock.sources.formats import Text
from penstock.sources.kafka import KafkaReader
from penstock.testing.source_contract import Feed, Grow, SourceContract, read
from tools.waiting import until

pytestmark = pytest.mark.integration


@pytest.mark.sample(8, of="the contract of a source of Kafka")
class TestKafka(SourceContract):
    """A topic of three partitions, by key."""

    @pytest.fixture
    def feed(self, kafka: Any) -> Feed:
        def make(rows: int) -> KafkaReader:
            name = kafka.new_name()
            kafka.create(name, 3)
            for partition in range(3):
                kafka.produce(name, numbers(*range(partition, rows, 3)), partition)
            reader = reader_of(kafka, name)
            self.written = rows
            return reader

        return make

    @pytest.fixture
    def grow(self, kafka: Any) -> Grow:
        def more(reader: Any, rows: int) -> None:
            fed = range(self.written, self.written + rows)
            for partition in {k % 3 for k in fed}:
                kafka.produce(reader.spec.topics[0], numbers(*(k for k in fed if k % 3 == partition)), partition)
            self.written += rows

        return more


# --- batch after batch -----------------------------------------------------------------------


def sizes_of(kafka: Any, topic: str, after: Any, limits: Limits, pace: Pace) -> tuple[dict[int, int], Any]:
    """Plan a batch as a driver does that has just started, read it, and return its rows by partition, and its end."""
    reader = reader_of(kafka, topic)
    ends = admit({"orders": reader.backlog(after)}, limits, pace).ends["orders"]
    end = reader.position(after, ends)
    span = reader.span(after, end)
    known = {} if after is None else after["topics"][topic]["offsets"]
    ranges = {partition: (first, last) for _, partition, first, last in span["ranges"]}
    assert {p: first for p, (first, _) in ranges.items()} == {p: known.get(str(p), 0) for p in ranges}
    wanted = [1_000 * p + k for p, (first, last) in ranges.items() for k in range(first, last)]
    assert read(reader, span)["k"].to_pylist() == wanted
    return {p: last - first for p, (first, last) in ranges.items()}, end


def test_ranges_follow_each_other_and_rates_hold_for_each_partition(kafka: Any, topic: str) -> None:
    """SEMANTICS 8.2, 8.3, 9.2: through a restart before each batch, which knows the position alone.

    A rate gives a partition its rows of the interval, no more and no less; the first batch has a cap of its own; a batch
    without rows moves nothing; a partition that is added begins at 0.
    """
    kafka.create(topic, 3)
    for partition, rows in enumerate((250, 90, 0)):
        kafka.produce(topic, numbers(*range(1_000 * partition, 1_000 * partition + rows)), partition)
    first = Pace(seconds=2, elapsed=2, first_batch=10, sources=frozenset({"orders"}))
    sizes, after = sizes_of(kafka, topic, None, Limits(), first)
    assert sizes == {0: 20, 1: 20, 2: 0}
    limits, pace = Limits(max_rate_per_partition=50), Pace(seconds=2, elapsed=2)
    for wanted in ({0: 100, 1: 70, 2: 0}, {0: 100, 1: 0, 2: 0}, {0: 30, 1: 0, 2: 0}):
        sizes, after = sizes_of(kafka, topic, after, limits, pace)
        assert sizes == wanted
    sizes, unmoved = sizes_of(kafka, topic, after, limits, pace)
    assert (sizes, unmoved) == ({0: 0, 1: 0, 2: 0}, after)
    kafka.admin.create_partitions([NewPartitions(topic, 4)])[topic].result()
    until(lambda: f"{topic}-3" in reader_of(kafka, topic).backlog(after), "the new partition")
    for partition, rows in ((2, 5), (3, 120)):
        kafka.produce(topic, numbers(*range(1_000 * partition, 1_000 * partition + rows)), partition)
    for wanted in ({0: 0, 1: 0, 2: 5, 3: 100}, {0: 0, 1: 0, 2: 0, 3: 20}):
        sizes, after = sizes_of(kafka, topic, after, limits, pace)
        assert sizes == wanted


# --- what goes wrong -------------------------------------------------------------------------


@pytest.mark.fault("F33")
def test_records_that_are_gone_stop_the_job_or_are_skipped_by_name(kafka: Any, topic: str) -> None:
    """SEMANTICS 9.2: with what is wanted and what there is; the span says what was skipped."""
    kafka.create(topic, 2)
    kafka.produce(topic, numbers(0, 1, 2, 3, 4, 5), 1)
    reader = reader_of(kafka, topic)
    after = end_of_batch(reader, None, ReadLimit(rows=2))
    fixed = reader.span(after, end_of_batch(reader, after))
    kafka.delete_before(topic, 1, 4)
    for ask in (lambda: reader.backlog(after), lambda: reader.verify(fixed), lambda: read(reader, fixed)):
        with pytest.raises(SourceGap) as gap:
            ask()
        assert "2" in str(gap.value)
    with pytest.raises(SourceGap, match=f"offset 2 of {topic}-1 is wanted, and the topic has 4 to 6: 2 are lost"):
        reader.backlog(after)
    skipping = reader_of(kafka, topic, on_gap=OnGap.SKIP)
    span = skipping.span(after, end_of_batch(skipping, after))
    assert span["skipped"] == [[f"{topic}-1", 2, 4]]
    assert read(skipping, span)["k"].to_pylist() == [4, 5]
    assert skipping.passed_over(after, end_of_batch(skipping, after), span) == {f"{topic}-1": [[2, 4]]}


@pytest.mark.fault("F33")
def test_a_log_that_has_become_shorter_is_named_and_never_skipped(kafka: Any, topic: str) -> None:
    """SEMANTICS 9.2: other records come to have the offsets that were read. The end of the log itself is no gap."""
    kafka.create(topic)
    kafka.produce(topic, numbers(0, 1, 2, 3, 4))
    reader = reader_of(kafka, topic, on_gap=OnGap.SKIP)
    end = end_of_batch(reader, None)
    span = reader.span(None, end)
    (known,) = end["topics"].values()
    beyond = {"topics": {topic: {**known, "offsets": {"0": 6}}}}
    fixed = {**span, "ranges": [[topic, 0, 3, 6]]}
    for wanted, ask in ((6, lambda: reader.backlog(beyond)), (3, lambda: reader.verify(fixed))):
        shorter = f"offset {wanted} of {topic}-0 is wanted, and the topic has 0 to 5: it has become shorter"
        with pytest.raises(TopicReplaced, match=shorter) as named:
            ask()
        assert named.value.exit_code == EXIT_PERSON
    with pytest.raises(FixedRangeGone, match="offsets are gone"):
        read(reader, {**span, "ranges": [[topic, 0, 6, 7]]})
    reader.verify(span)
    assert end_of_batch(reader, end) == end


@pytest.mark.fault("F33")
def test_what_retention_deletes_is_a_gap(kafka: Any, topic: str) -> None:
    """SEMANTICS 9.2: the broker deletes segments by itself. A job that skips reads all that it has left."""
    kafka.create(topic, **{"segment.bytes": "100"})
    for k in range(8):
        kafka.produce(topic, numbers(k))
    reader, partition = reader_of(kafka, topic), (topic, 0)
    after = end_of_batch(reader, None, ReadLimit(rows=2))
    kafka.configure(topic, **{"retention.bytes": "200"})
    first = until(lambda: max(reader.brokers.earliest([partition])[partition] - 2, 0), "retention") + 2
    assert first < 8
    gap = f"offset 2 of {topic}-0 is wanted, and the topic has {first} to 8: {first - 2} are lost"
    with pytest.raises(SourceGap, match=gap):
        reader.backlog(after)
    skipping = reader_of(kafka, topic, on_gap=OnGap.SKIP)
    span = skipping.span(after, end_of_batch(skipping, after))
    assert span["skipped"] == [[f"{topic}-0", 2, first]]
    assert read(skipping, span)["k"].to_pylist() == [*range(first, 8)]


@pytest.mark.fault("F33")
def test_one_batch_passes_over_all_that_is_skipped(kafka: Any, topic: str) -> None:
    """Whatever limit it has: offsets that are gone are no rows, and take no share of other partitions."""
    kafka.create(topic, 2)
    kafka.produce(topic, numbers(*range(500)), 0)
    kafka.produce(topic, numbers(*range(500, 520)), 1)
    reader = reader_of(kafka, topic, on_gap=OnGap.SKIP)
    after = end_of_batch(reader, None, ReadLimit(rows=10))
    kafka.delete_before(topic, 0, 495)
    assert {name: waiting.rows for name, waiting in reader.backlog(after).items()} == {
        f"{topic}-0": 5,
        f"{topic}-1": 19,
    }
    batches, position = [], after
    while (end := end_of_batch(reader, position, ReadLimit(rows=10))) != position:
        batches.append(read(reader, reader.span(position, end))["k"].to_pylist())
        position = end
    assert sorted(k for rows in batches for k in rows) == [*range(495, 500), *range(501, 520)]
    assert len(batches) <= 5


@pytest.mark.fault("F34")
def test_a_topic_that_was_made_again_is_another_one(kafka: Any, topic: str) -> None:
    """Its offsets would be read as if they followed."""
    kafka.create(topic)
    kafka.produce(topic, numbers(*range(5)))
    reader = reader_of(kafka, topic, on_gap=OnGap.SKIP)
    after = end_of_batch(reader, None)
    span = reader.span(None, after)
    kafka.delete(topic)
    with pytest.raises(TopicNotFound, match=topic):
        reader.backlog(after)
    kafka.create(topic)
    kafka.produce(topic, numbers(*range(9)))
    for ask in (lambda: reader.backlog(after), lambda: reader.verify(span)):
        with pytest.raises(TopicReplaced, match=topic):
            ask()


@pytest.mark.fault("F34")
def test_a_topic_that_is_made_again_while_tasks_read_is_found_before_the_commit(kafka: Any, topic: str) -> None:
    """Their records have the offsets of the span; the driver asks for the topic's id when the tasks have ended."""
    kafka.create(topic)
    kafka.produce(topic, numbers(*range(5)))
    reader = reader_of(kafka, topic)
    span = reader.span(None, end_of_batch(reader, None))
    kafka.delete(topic)
    kafka.create(topic)
    kafka.produce(topic, numbers(*range(100, 109)))
    assert read(reader, span)["k"].to_pylist() == [100, 101, 102, 103, 104]
    with pytest.raises(TopicReplaced, match=topic):
        reader.rows(span)


@pytest.mark.fault("F34")
def test_a_topic_of_a_pattern_that_was_made_again_is_another_one(kafka: Any, topic: str) -> None:
    """Whether a batch was read while it was gone or not; the job goes on where its pattern leaves the topic out."""
    first, second = f"{topic}-a", f"{topic}-b"
    for name in (first, second):
        kafka.create(name)
        kafka.produce(name, numbers(0))
    reader = reader_of(kafka, pattern=f"{topic}-[a-z]")
    before = end_of_batch(reader, None)
    kafka.delete(second)
    kafka.produce(first, numbers(1))
    without = end_of_batch(reader, before)
    assert read(reader, reader.span(before, without))["k"].to_pylist() == [1]
    kafka.create(second)
    kafka.produce(second, numbers(*range(5)))
    for after in (before, without):
        with pytest.raises(TopicReplaced, match=second):
            reader.backlog(after)
    kafka.produce(first, numbers(2))
    narrower = reader_of(kafka, pattern=f"{topic}-a")
    assert read(narrower, narrower.span(without, end_of_batch(narrower, without)))["k"].to_pylist() == [2]


def test_a_group_follows_though_a_topic_is_gone(kafka: Any, topic: str) -> None:
    """The brokers refuse offsets of what is not there; those of the others are written."""
    first, second = f"{topic}-a", f"{topic}-b"
    kafka.create(first)
    kafka.create(second)
    reader = reader_of(kafka, pattern=f"{topic}-[a-z]", group=f"group-{topic}")
    before = end_of_batch(reader, None)
    kafka.delete(second)
    kafka.produce(first, numbers(1))
    with capture_logs() as logs:
        reader.ack(end_of_batch(reader, before))
        until(lambda: committed(kafka, f"group-{topic}", first) == {0: 1}, "the group's offsets")
        reader.ack(end_of_batch(reader, before))
    assert logs == []


def test_a_partition_that_was_left_out_begins_at_its_earliest(kafka: Any, topic: str) -> None:
    """It is new to the job and not to the topic, so what it has lost before is no gap; what is lost after is one."""
    kafka.create(topic, 2)
    for partition in range(2):
        kafka.produce(topic, numbers(0, 1, 2), partition)
    some = reader_of(kafka, partitions={topic: [1]})
    after = end_of_batch(some, None)
    kafka.delete_before(topic, 0, 2)
    reader = reader_of(kafka, topic)
    every = end_of_batch(reader, after)
    span = reader.span(after, every)
    assert read(reader, span)["k"].to_pylist() == [2]
    assert span["skipped"] == []
    kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    until(lambda: f"{topic}-2" in reader.backlog(every), "the new partition")
    kafka.produce(topic, numbers(0, 1), 2)
    kafka.delete_before(topic, 2, 1)
    with pytest.raises(SourceGap, match=f"offset 0 of {topic}-2 is wanted"):
        reader.backlog(every)


@pytest.mark.fault("F35", "F36")
def test_new_partitions_and_topics_are_read_from_their_earliest(kafka: Any, topic: str) -> None:
    """SEMANTICS 9.2, also where the job began at the latest; topics by a pattern that is the whole name."""
    first, second = f"{topic}-a", f"{topic}-b"
    kafka.create(first)
    kafka.create(f"x{topic}-a")
    kafka.produce(first, numbers(0))
    reader = reader_of(kafka, pattern=f"{topic}-[a-z]", start=Start.LATEST)
    after = end_of_batch(reader, None)
    assert read(reader, reader.span(None, after)).num_rows == 0
    assert end_of_batch(reader, after) == after
    kafka.admin.create_partitions([NewPartitions(first, 2)])[first].result()
    kafka.create(second)
    kafka.produce(first, numbers(1), 0)
    until(lambda: f"{first}-1" in reader.backlog(after), "the new partition")
    kafka.produce(first, numbers(2), 1)
    kafka.produce(second, numbers(3))
    end = end_of_batch(reader, after)
    span = reader.span(after, end)
    assert reader.partitions(span) == (f"{first}-0", f"{first}-1", f"{second}-0")
    assert read(reader, span)["k"].to_pylist() == [1, 2, 3]
    kafka.delete(second)
    assert set(reader.backlog(end)) == {f"{first}-0", f"{first}-1"}
    assert end_of_batch(reader, end) == end


@pytest.mark.fault("F35")
def test_what_a_new_partition_has_lost_is_a_gap(kafka: Any, topic: str) -> None:
    """It was added to a topic that the job reads, so its first record was the job's to read."""
    kafka.create(topic)
    reader = reader_of(kafka, topic)
    after = end_of_batch(reader, None)
    kafka.admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    until(lambda: f"{topic}-1" in reader.backlog(after), "the new partition")
    kafka.produce(topic, numbers(0, 1, 2), 1)
    kafka.delete_before(topic, 1, 2)
    with pytest.raises(SourceGap, match=f"offset 0 of {topic}-1 is wanted, and the topic has 2 to 3: 2 are lost"):
        reader.backlog(after)
    skipping = reader_of(kafka, topic, on_gap=OnGap.SKIP)
    span = skipping.span(after, end_of_batch(skipping, after))
    assert (span["skipped"], read(skipping, span)["k"].to_pylist()) == ([[f"{topic}-1", 0, 2]], [2])


def test_a_job_begins_where_it_is_told(kafka: Any, topic: str) -> None:
    """At offsets, at a time, and in some partitions."""
    kafka.create(topic, 2, **FOR_EVER)
    for k in range(4):
        kafka.produce(topic, numbers(k), k % 2, timestamp=1_000_000 + k)
    moment = datetime.fromtimestamp(1_000.002, UTC)
    starts: dict[Any, list[int]] = {Start.EARLIEST: [0, 2, 1, 3], Start.LATEST: [], moment: [2, 3]}
    for start, expected in starts.items():
        assert all_rows(reader_of(kafka, topic, start=start))["k"].to_pylist() == expected
    assert all_rows(reader_of(kafka, topic, start={(topic, 1): 1}))["k"].to_pylist() == [0, 2, 3]
    assert all_rows(reader_of(kafka, topic, start=datetime(2100, 1, 1, tzinfo=UTC))).num_rows == 0
    assert all_rows(reader_of(kafka, partitions={topic: [1]}))["k"].to_pylist() == [1, 3]
    with pytest.raises(TopicNotFound, match="partition 7"):
        reader_of(kafka, partitions={topic: [7]})
    with pytest.raises(TopicNotFound, match=f"{topic}-9"):
        reader_of(kafka, topic, start={(topic, 9): 1}).backlog(None)


@pytest.mark.remedy("PEN-CNF-001")
def test_a_start_beyond_the_end_of_a_partition_is_a_mistake_of_the_settings(kafka: Any, topic: str) -> None:
    """Nothing was read, so nothing can have become shorter; the offset that the error names as the end is accepted."""
    kafka.create(topic)
    kafka.produce(topic, numbers(0, 1, 2))
    reader = reader_of(kafka, topic, start={(topic, 0): 7})
    with pytest.raises(ConfigError, match=rf"start= has offset 7 of {topic}-0, which ends at 3") as refused:
        reader.backlog(None)
    assert refused.value.where == kafka.address
    assert all_rows(reader_of(kafka, topic, start={(topic, 0): 3})).num_rows == 0


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "one of topics="),
    ({"topics": ["a"], "pattern": "b"}, "one of topics="),
    ({"topics": "orders"}, r"write topics=\['orders'\]"),
    ({"pattern": "("}, "no regular expression"),
    ({"topics": ["a"], "start": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is what is wrong
    ({"topics": ["a"], "options": {"group.id": "x"}}, "'group.id'"),
    ({"topics": ["a"], "with_columns": ["offset"]}, "_offset"),
    ({"topics": ["a"], "splits": 0}, "splits is 0"),
    ({"topics": ["a"], "max_record": 0}, "max_record is 0"),
    ({"topics": ["a", "a"]}, "one twice"),
    ({"topics": [""]}, "empty name"),
    ({"topics": ["a"], "start": "latest"}, "no Start"),
    ({"topics": ["a"], "start": {("a", 0): -1}}, "offset -1 .*from 0 on"),
    ({"topics": ["a"], "start": {"a-0": "5"}}, "offset '5' .*from 0 on"),
    ({"topics": ["a"], "start": datetime(1969, 1, 1, tzinfo=UTC)}, "before 1970"),
    ({"topics": ["a"], "options": {"isolation.level": "read_uncommitted"}}, "'isolation.level'"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_settings_that_cannot_be_meant_are_refused(arguments: dict[str, Any], words: str) -> None:
    """Where the job is written, before a broker is asked."""
    with pytest.raises(ConfigError, match=words):
        Kafka(servers="127.0.0.1:1", format=Text(), **arguments)
