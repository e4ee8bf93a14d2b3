"""Read ranges of Kafka's offsets inside tasks (SEMANTICS 9.2).

A consumer lives in the worker process from batch to batch, so only the first one pays for its connections. It reads
what the span says, and takes part in no consumer group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import (
    BadRecordFound,
    CertificateRefused,
    FixedRangeGone,
    SourceError,
    SourceGap,
    SourceRefused,
    SourceUnavailable,
)
from penstock.graph.policies import BadRecord
from penstock.kafka.client import LIBRDKAFKA, Trouble, text_of, trouble_of
from penstock.sources.base import Span, TaskReader, with_hidden
from penstock.sources.formats import Decoded, Format
from penstock.sources.formats.base import placed, shown

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

__all__ = [
    "MAX_RECORD",
    "METADATA",
    "KafkaTaskReader",
    "Range",
    "kafka_error",
    "partition_name",
    "partition_names",
    "ranges_of",
]

_ROWS_A_PIECE = 32_768
_ROWS_AT_ONCE = 200_000
_BYTES_A_PIECE = 16 << 20
_BYTES_AT_ONCE = 64 << 20
"""Bytes of records that wait while the ranges before them are read; above that one range is read at a time."""
MAX_RECORD = 16 << 20
"""Bytes of a value that are decoded, unless a job says otherwise: sixteen times what a broker takes by default."""
_MOST_SHOWN = 1 << 20
"""Bytes of a record that is too large that go to quarantine; the topic has the rest, at the record's offset."""
_WAIT = 0.05
"""Seconds that one call waits for as many records as may come: of offsets without a record, as markers, it must end."""
_PATIENCE = 60.0
"""Seconds without a record, or the end of a range, after which the broker counts as away."""
_ANSWER = 15.0
"""Seconds that a broker may take to say which offsets it has."""
_END = -191
"""librdkafka's _PARTITION_EOF; here, so that the package is loaded by those who read a topic only."""
_CONSUMING = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,  # tells the end of a range that ends in a transaction's marker
    "auto.offset.reset": "error",  # what is gone is a gap, and never passed over
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 5,  # else a range waits a second for what the one before had fetched in advance
    "fetch.message.max.bytes": 1 << 20,
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 64 << 10,
    "receive.message.max.bytes": (1 << 31) - 1,  # a record that is longer than an answer may be would hold up for ever
}
_LATEST = 253_402_300_799_999
"""Milliseconds to the end of the year 9999; any number can stand there, and what exceeds it is null."""
_UTC = pa.timestamp("us", tz="UTC")
METADATA: Mapping[str, pa.DataType] = {
    "_key": pa.binary(),
    "_headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "_timestamp": _UTC,
    "_timestamp_type": pa.string(),
    "_topic": pa.string(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
}
"""What a record has beside its value, by the names of `with_columns`."""
_CERTIFICATES = ("certificate", "alert")
"""Words in a failure of those who do not trust each other: librdkafka's codes are those of any failed connection."""
_TIMESTAMP_TYPES = {0: None, 1: "create", 2: "append"}


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition, `end` exclusive; `index` is that of the partition in the span."""

    index: int
    topic: str
    partition: int
    start: int
    end: int


def partition_name(topic: str, partition: int) -> str:
    """Return the name of a partition, as `orders-0`."""
    return f"{topic}-{partition}"


def partition_names(span: Span) -> tuple[str, ...]:
    """Return the names of a span's partitions, in the order of their indexes."""
    return tuple(partition_name(topic, partition) for topic, partition, *_ in span["ranges"])


def ranges_of(span: Span, split: int, splits: int) -> list[Range]:
    """Return what one of several splits reads: an even share of the offsets, in the order of the partitions.

    A partition may be in several splits.
    """
    ranges = [Range(i, *partition) for i, partition in enumerate(span["ranges"])]
    total = sum(r.end - r.start for r in ranges)
    first, last = total * split // splits, total * (split + 1) // splits
    own, passed = [], 0
    for r in ranges:
        start, end = max(r.start, r.start + first - passed), min(r.end, r.start + last - passed)
        if start < end:
            own.append(Range(r.index, r.topic, r.partition, start, end))
        passed += r.end - r.start
    return own


def _groups(ranges: Sequence[Range]) -> Iterator[list[Range]]:
    """Yield ranges to be read at once, in order: many short ones cost one round trip, and a long one is alone."""
    group: list[Range] = []
    for r in ranges:
        if group and sum(other.end - other.start for other in [*group, r]) > _ROWS_AT_ONCE:
            yield group
            group = []
        group.append(r)
    yield group


@dataclass(slots=True)
class _Reading:
    """A range that is being read: the records that have come, and whether the others have as well."""

    range: Range
    records: list[Message] = field(default_factory=list)
    is_done: bool = False
    bytes: int = 0
    next: int = 0

    def __post_init__(self) -> None:
        self.next = self.range.start

    @property
    def where(self) -> str:
        return f"{self.range.topic}-{self.range.partition} at {self.next:,}"

    @property
    def left(self) -> int:
        """The most records that may come."""
        return 0 if self.is_done else self.range.end - self.next

    def take(self, message: Message) -> bool:
        """Keep a record of the range, and return whether it was one, or says that all have come.

        That is what follows the range, and the end of the log.
        """
        is_record, offset, end = message.error() is None, message.offset(), self.range.end
        is_new = not self.is_done and offset >= self.next
        if is_new and is_record and offset < end:
            self.records.append(message)
            self.bytes += len(message)
            self.next = offset + 1
        self.is_done = self.is_done or offset >= (end - 1 if is_record else end)
        return is_new


def _taken(
    consumer: Consumer, reading: Mapping[tuple[str, int], _Reading], assigned: Sequence[_Reading], trouble: str
) -> tuple[bool, str]:
    """Take what the next call of the consumer returns; return whether that was anything, and the newest trouble."""
    came = again = False
    left = sum(at.left for at in assigned)
    for message in consumer.consume(min(left, _ROWS_A_PIECE), _WAIT):
        error, at = message.error(), reading.get((message.topic(), message.partition()))
        if at is not None and (error is None or error.code() == _END):
            came = at.take(message) or came
        elif error is not None and (at is None or not at.is_done):
            trouble, denied = _judged(error, consumer, at)
            again = again or denied
    if again:  # not before the records of this call are taken: they would come again
        _assign(consumer, assigned)
    return came, trouble


def _assign(consumer: Consumer, reading: Iterable[_Reading]) -> None:
    """Have the consumer read what is still missing of some ranges, each from its next offset."""
    from confluent_kafka import TopicPartition

    left = [at for at in reading if not at.is_done]
    consumer.assign([TopicPartition(at.range.topic, at.range.partition, at.next) for at in left])


def _opened(config: dict[str, Any]) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer({"group.id": "penstock", **config}, logger=LIBRDKAFKA)
    except KafkaException as why:
        raise kafka_error(why.args[0], str(config["bootstrap.servers"])) from why


def _judged(error: KafkaError, consumer: Consumer, at: _Reading | None) -> tuple[str, bool]:
    """Return in words what librdkafka mends by itself, and whether to ask again; raise for what it does not mend."""
    from confluent_kafka import KafkaException, TopicPartition

    text = text_of(error)
    if error.code() == error.GROUP_AUTHORIZATION_FAILED:
        return text, False  # the group has a name, and is not used
    raised = kafka_error(error, "the brokers" if at is None else at.where)
    if isinstance(raised, SourceRefused):
        raise raised
    if not isinstance(raised, SourceGap) or at is None:
        return text, False
    # A partition that is new, or has a new leader, may say so for a moment of offsets that are there.
    try:
        there = TopicPartition(at.range.topic, at.range.partition)
        earliest, newest = consumer.get_watermark_offsets(there, timeout=_ANSWER, cached=False)
    except KafkaException as why:
        raise kafka_error(why.args[0], at.where) from why
    if not earliest <= at.next <= newest:
        raise raised
    return text, True


_consumers: dict[tuple[tuple[str, Any], ...], Consumer] = {}


@dataclass(frozen=True)
class KafkaTaskReader(TaskReader):
    """Read and decode records inside a task.

    `config` are librdkafka's settings, `schema` the columns of the format without METADATA. A value of more than
    `max_record` bytes is a bad record, and the format does not see it.
    """

    config: Mapping[str, Any] = field(repr=False)  # may hold a password
    decoder: Format
    schema: pa.Schema
    metadata: Sequence[str]
    on_bad_record: BadRecord
    max_record: int = MAX_RECORD
    patience: float = field(default=_PATIENCE)

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield a table for each piece of records; raises FixedRangeGone for offsets that are gone."""
        ranges = ranges_of(span, split, splits)
        if not ranges:
            return
        key = tuple(sorted({**_CONSUMING, **self.config}.items()))
        # Taken out while it reads: another read in this process would move it.
        consumer = _consumers.pop(key, None) or _opened(dict(key))
        try:
            for group in _groups(ranges):
                yield from self._read(consumer, group)
            consumer.unassign()
        except BaseException:
            # It may hold records of this span, or an error: the next task begins with a new one.
            consumer.close()
            raise
        _consumers[key] = consumer

    def _read(self, consumer: Consumer, ranges: Sequence[Range]) -> Iterator[pa.Table]:
        """Yield the records of some ranges, one range after the other, each by its offsets."""
        reading = {(r.topic, r.partition): _Reading(r) for r in ranges}
        assigned = list(reading.values())
        _assign(consumer, assigned)
        last_sign, trouble = time.monotonic(), "no record has come"
        for at in reading.values():
            if not at.is_done and at not in assigned:
                assigned = [at]
                _assign(consumer, assigned)
            while not at.is_done:
                came, trouble = _taken(consumer, reading, assigned, trouble)
                last_sign = time.monotonic() if came else last_sign
                if at.bytes >= _BYTES_A_PIECE or len(at.records) >= _ROWS_A_PIECE:
                    yield self._table(at)
                    last_sign = time.monotonic()  # what reads the rows may be slow
                if time.monotonic() - last_sign > self.patience:
                    raise SourceUnavailable(f"{trouble} for {self.patience:.0f} s", where=at.where)
                if len(assigned) > 1 and sum(other.bytes for other in assigned) > _BYTES_AT_ONCE:
                    assigned = [at]  # the others wait their turn
                    _assign(consumer, assigned)
            if at.records:
                yield self._table(at)
                last_sign = time.monotonic()

    def _table(self, at: _Reading) -> pa.Table:
        """Return what has come of a range, and let it go."""
        messages, at.records, at.bytes = at.records, [], 0
        values = [message.value() for message in messages]
        offsets = pa.array([message.offset() for message in messages], pa.int64())
        decoded = self._decoded(values)
        table, raw = decoded.rows, None
        if decoded.errors is not None:
            errors = decoded.errors.to_pylist()
            if self.on_bad_record is BadRecord.FAIL:
                i, error = next((i, error) for i, error in enumerate(errors) if error is not None)
                raise BadRecordFound(error, where=f"{at.range.topic}-{at.range.partition} at {offsets[i]}")
            texts = list(map(self._shown, values, errors))
            raw = pa.array([text for text, _ in texts], pa.string())
            decoded = Decoded(table, pa.array([error for _, error in texts], pa.string()))
        for name in self.metadata:
            table = table.append_column(name, _METADATA_OF[name](messages, at.range))
        return with_hidden(table, at.range.index, offsets, decoded.errors, raw)

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]]:
        """Return the rows of values that are texts; what a record has beside its value is null."""
        made = self._decoded([text.encode() for text in texts])
        errors = [None] * len(texts) if made.errors is None else made.errors.to_pylist()
        beside = {name: pa.nulls(len(texts), METADATA[name]) for name in self.metadata}
        rows = made.rows
        for name, nulls in beside.items():
            rows = rows.append_column(name, nulls)
        return rows, errors

    def _decoded(self, values: Sequence[bytes | None]) -> Decoded:
        most = self.max_record
        too_large = [
            None if value is None or len(value) <= most else f"{len(value):,} bytes, and max_record is {most:,}"
            for value in values
        ]
        if not any(too_large):
            return self.decoder.decode(values, self.schema)
        fit = [value for value, error in zip(values, too_large, strict=True) if error is None]
        decoded = self.decoder.decode(fit, self.schema)
        return placed(decoded.rows, decoded.errors, too_large)

    def _shown(self, value: bytes | None, error: str | None) -> tuple[str | None, str | None]:
        """Return the text of a bad record and its error; of a good one neither."""
        if value is None or error is None:
            return None, error
        return shown(value, error, most=_MOST_SHOWN if len(value) > self.max_record else None)


def _headers(messages: list[Message], _: Range) -> pa.Array:
    return pa.array(list(map(_pairs, messages)), METADATA["_headers"])


def _pairs(message: Message) -> list[dict[str, Any]] | None:
    try:
        return [{"key": key, "value": value} for key, value in message.headers() or ()]
    except UnicodeDecodeError:  # a key that is no text; the record is none the worse
        return None


def _timestamps(messages: list[Message], _: Range) -> pa.Array:
    stamps = np.array([message.timestamp() for message in messages], dtype=np.int64).reshape(-1, 2)
    known = (stamps[:, 0] != 0) & (np.abs(stamps[:, 1]) <= _LATEST)
    return pa.array(np.where(known, stamps[:, 1], 0) * 1_000, mask=~known).cast(_UTC)


def _timestamp_types(messages: list[Message], _: Range) -> pa.Array:
    return pa.array([_TIMESTAMP_TYPES[message.timestamp()[0]] for message in messages], pa.string())


_METADATA_OF: Mapping[str, Callable[[list[Message], Range], pa.Array]] = {
    "_key": lambda messages, _: pa.array([message.key() for message in messages], pa.binary()),
    "_headers": _headers,
    "_timestamp": _timestamps,
    "_timestamp_type": _timestamp_types,
    "_topic": lambda messages, r: pa.repeat(pa.scalar(r.topic), len(messages)),
    "_partition": lambda messages, r: pa.repeat(pa.scalar(r.partition, pa.int32()), len(messages)),
    "_offset": lambda messages, _: pa.array([message.offset() for message in messages], pa.int64()),
}


def kafka_error(error: KafkaError, where: str) -> SourceError:
    """Return what an error of librdkafka means: records are gone, the user is refused, or the broker is away."""
    from confluent_kafka import KafkaError as Codes

    text = text_of(error)
    # The other end of a handshake may also just be going, and by TLS 1.3 it may refuse when the handshake is done.
    failed = error.code() in {Codes._SSL, Codes._TRANSPORT}  # noqa: SLF001 - librdkafka names its own so
    if failed and "SSL" in text and any(word in text for word in _CERTIFICATES):
        return CertificateRefused(text, where=where)
    match trouble_of(error):
        case Trouble.GONE:
            return FixedRangeGone(f"offsets are gone ({text})", where=where)
        case Trouble.REFUSED:
            return SourceRefused(text, where=where)
        case _:
            return SourceUnavailable(text, where=where)
