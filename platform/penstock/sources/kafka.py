"""Follow topics of Kafka by explicit ranges of offsets, which the log of the job holds (SEMANTICS 2.1, 9.2).

A partition of a topic is a partition of the source, so each has a watermark of its own. A place is an offset. The
position has each topic's id beside its offsets: a topic that was deleted and created again has another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal
from weakref import finalize

import pyarrow as pa
import structlog

from penstock.errors import ConfigError, FixedRangeGone, SourceGap, TopicNotFound, TopicReplaced
from penstock.graph.argument_types import refuse_empty, refuse_other_types
from penstock.graph.policies import BadRecord, OnGap
from penstock.sources.base import Ends, PartitionNames, Position, Source, Span, SplitReader, Waiting
from penstock.sources.formats import Format
from penstock.sources.kafka_brokers import Brokers, Offsets, Partition, Topic
from penstock.sources.kafka_group import GroupOffsets
from penstock.sources.kafka_sizes import RecordSizes
from penstock.sources.kafka_tasks import MAX_RECORD, METADATA, KafkaTaskReader, partition_name, partition_names
from penstock.sources.starts import Start

__all__ = ["Kafka"]

_log = structlog.get_logger(__name__)
_INTERNAL = "__"
"""Kafka's own topics begin so; no pattern means them."""
_OURS = frozenset(
    {"bootstrap.servers", "metadata.broker.list", "group.id", "enable.auto.commit", "enable.auto.offset.store"}
    | {"enable.partition.eof", "auto.offset.reset", "isolation.level"}
)
"""Settings that the source gives by itself, or that would change what a range means."""


@dataclass(frozen=True, kw_only=True)
class Kafka(Source):
    """Describe topics to read: those of a list, those whose whole names match a `pattern`, or some `partitions`.

    Topics that match the pattern later, and new partitions, are read from their earliest record.

    Args:
        topics: Names of topics.
        pattern: A regular expression, instead of names.
        partitions: By topic the partitions to read, instead of all.
        servers: The brokers to ask first, as "host:port,host:port".
        format: What makes columns of a record's value.
        start: Where a job without a position begins. It is a `Start`, or a datetime with a zone: then each partition
            begins at its first record of that time or later. Or it is a mapping to an offset of (topic, partition), or
            of the name of the partition as in `orders-0`. Then others begin at their earliest record.
        with_columns: Columns of the record, which follow those of the format: `_key` (binary), `_headers` (an array of
            structs of `key` and `value`), `_timestamp`, `_topic`, `_partition` (int), `_offset` (long). There is
            `_timestamp_type` as well, which is "create" or "append".
        on_gap: What becomes of a job whose next records are gone from the topic, as retention does it.
        on_bad_record: Whether a record that cannot be decoded goes to quarantine or fails the batch.
        max_record: The most bytes of a value that are decoded. A record that has more is one that cannot be decoded.
        group: The consumer group whose offsets follow the job's Commits, so that tools which show lag see the job.
            Nothing is ever read from it. By itself it is `penstock.JOB.SOURCE`; with False there is none.
        read_uncommitted: Whether to read records of transactions that are open or were aborted.
        splits: How many tasks read a batch; a partition may be read by several. By itself it is one up to 100,000
            records, and one a core beyond.
        options: Further settings of librdkafka by its names, such as `security.protocol` and `sasl.username`.

    Raises:
        ConfigError: Not exactly one of `topics`, `pattern` and `partitions` is given. An option is one that the source
            sets, or a column of the record is unknown.
    """

    topics: Sequence[str] | None = field(default=None, kw_only=False)
    servers: str
    format: Format
    pattern: str | None = None
    partitions: Mapping[str, Sequence[int]] | None = None
    start: Literal[Start.EARLIEST, Start.LATEST] | datetime | Mapping[tuple[str, int] | str, int] = Start.EARLIEST
    with_columns: Sequence[str] = ()
    on_gap: OnGap = OnGap.FAIL
    on_bad_record: BadRecord = BadRecord.QUARANTINE
    max_record: int = MAX_RECORD
    group: str | bool = True
    read_uncommitted: bool = False
    splits: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold a password

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.topics, self.pattern, self.partitions)) != 1:
            raise ConfigError("Kafka needs one of topics=, pattern= and partitions=")
        self._check_start()
        refuse_other_types(self)
        refuse_empty(self, "servers", "group")
        for name in ("topics", "partitions"):
            if (given := getattr(self, name)) is not None and not given:
                raise ConfigError(f"{name}={given!r} names nothing to read")
        listed = list(self.topics or ())
        if not all(listed) or len(set(listed)) < len(listed):
            raise ConfigError(f"topics={listed} has an empty name, or one twice")
        for option in self.options:
            if option in _OURS:
                raise ConfigError(f"options={{{option!r}: …}} is set by the source itself")
        for column in self.with_columns:
            if column not in METADATA:
                raise ConfigError(f"with_columns has {column!r}; a record has {', '.join(METADATA)}")
        for name in ("splits", "max_record"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name} is {value}, and is at least 1")
        try:
            re.compile(self.pattern or "")
        except re.error as why:
            raise ConfigError(f"pattern={self.pattern!r} is no regular expression: {why}") from why

    def _check_start(self) -> None:
        if not isinstance(self.start, Start | datetime | Mapping):
            raise ConfigError(f"start={self.start!r} is no Start, datetime or mapping of (topic, partition) to offset")
        if isinstance(self.start, Start) and self.start not in (Start.EARLIEST, Start.LATEST):
            raise ConfigError(f"start={self.start} is for tables; a topic begins at EARLIEST, LATEST, or a time")
        if isinstance(self.start, datetime) and (self.start.tzinfo is None or self.start.timestamp() < 0):
            raise ConfigError(f"start={self.start} has no time zone, or is before 1970")
        for at, offset in self.start.items() if isinstance(self.start, Mapping) else ():
            if isinstance(at, str) and not re.fullmatch(r".+-\d+", at):
                raise ConfigError(f"start= has {at!r}, which names no partition as in 'orders-0'")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                # Elsewhere -2 is the earliest record and -1 the end.
                problem = f"start= has offset {offset!r} for {at}; offsets are whole numbers from 0 on"
                raise ConfigError(f"{problem}, and a partition that is not named begins at its earliest")

    def open(self, spark: Any) -> KafkaReader:
        """Return the reader; raises TopicNotFound, SourceUnavailable and SourceRefused."""
        reader = KafkaReader(self)
        form = self.format.opened(sorted(reader.topics_now()))
        reader.decode_by(form, form.columns())
        return reader

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        if self.pattern is not None:
            return f"Kafka topics that match {self.pattern}"
        if self.partitions is not None:
            return f"Kafka partitions {', '.join(f'{name}-{n}' for name, ns in self.partitions.items() for n in ns)}"
        topics = self.topics or ()
        return f"Kafka {'topic' if len(topics) == 1 else 'topics'} {', '.join(topics)}"

    @property
    def config(self) -> dict[str, Any]:
        """Return the settings of a consumer."""
        isolation = "read_uncommitted" if self.read_uncommitted else "read_committed"
        return {"bootstrap.servers": self.servers, "isolation.level": isolation, **self.options}


class KafkaReader(SplitReader):
    """Follow the offsets of topics."""

    partition_names = PartitionNames("_topic_partition", partition_names)

    def __init__(self, spec: Kafka) -> None:
        self.spec = spec
        self.splits = spec.splits
        self.brokers = Brokers(spec.config, read_uncommitted=spec.read_uncommitted)
        self._group: GroupOffsets | None = None
        if isinstance(spec.group, str):
            self._tell(spec.group)
        self._sizes = RecordSizes(spec.config)
        self._topics: dict[str, Topic] = {}
        # Of the newest backlog: position and span of a batch are made from it.
        self._earliest: Offsets = {}
        self._begins: Offsets = {}

    def known_as(self, job: str, source: str) -> None:
        """Tell a group of this name how far the job has read, unless it is to be another one, or none."""
        if self.spec.group is True:
            self._tell(f"penstock.{job}.{source}")

    def _tell(self, group: str) -> None:
        self._group = GroupOffsets(self.spec.config, group)
        finalize(self, self._group.end)

    def decode_by(self, form: Format, columns: pa.Schema) -> None:
        """Note the format that tasks decode by, and its columns; raises ConfigError where the record has such a one."""
        taken = sorted(set(columns.names) & set(self.spec.with_columns))
        if taken:
            raise ConfigError(f"the format has a column {taken[0]!r} as well as with_columns")
        self.form, self.columns = form, columns
        self.schema = pa.schema([*columns, *((name, METADATA[name]) for name in self.spec.with_columns)])

    def topics_now(self) -> dict[str, Topic]:
        """Return the topics to read that there are now, and note them; raises TopicNotFound for one that is named."""
        spec = self.spec
        if spec.pattern is not None:
            names = [n for n in self.brokers.names() if re.fullmatch(spec.pattern, n) and not n.startswith(_INTERNAL)]
        else:
            names = list(spec.topics if spec.topics is not None else spec.partitions or ())
        self._topics = self.brokers.topics(names)
        for name in names if spec.pattern is None else ():
            if name not in self._topics:
                raise TopicNotFound(f"there is no topic {name!r}", where=spec.servers)
        for name, wanted in (spec.partitions or {}).items():
            lacking = sorted(set(wanted) - set(self._topics[name].partitions))
            if lacking:
                raise TopicNotFound(f"topic {name!r} has no partition {lacking[0]}", where=spec.servers)
            self._topics[name] = replace(self._topics[name], partitions=tuple(sorted(wanted)))
        return self._topics

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the offsets between a position and the last that may be read, of every partition.

        Raises TopicReplaced where a topic is another one, and SourceGap where records are gone, unless the job skips.
        """
        if self._group is not None:
            self._group.follow()
        known = _offsets_in(after)
        self._same_topics({} if after is None else _ids_in(after))
        partitions = [(name, i) for name, topic in self._topics.items() for i in topic.partitions]
        self._earliest = earliest = self.brokers.earliest(partitions)
        latest = self.brokers.latest(partitions)
        if after is None:
            self._begins = self._beginning(earliest, latest)
        else:  # of a partition that was added to a known topic, no record was there before
            whole = {name for name, topic in after["topics"].items() if not topic.get("some")}
            ids = whole if self.spec.partitions is None else set()
            self._begins = {at: 0 if at[0] in ids else offset for at, offset in earliest.items()}
        waiting = {}
        for at, last in sorted(latest.items()):
            first = known[at] if at in known else self._begins[at]
            if not earliest[at] <= first <= last:
                self._refuse_gap(at, first, skips=self.spec.on_gap is OnGap.SKIP)
            end = max(first, last)
            rows = end - min(max(first, earliest[at]), end)
            waiting[_name(at)] = Waiting(next=first, latest=end, rows=rows, batch_end=end)
        return waiting

    def weighed(self, backlog: Mapping[str, Waiting]) -> dict[str, Waiting]:
        """Return a backlog with bytes, as the records that come next have them: keys and values, uncompressed.

        Raises SourceUnavailable and SourceRefused.
        """
        lagging = {_partition(name): waiting for name, waiting in backlog.items() if waiting.rows}
        starts = {at: max(waiting.next, self._earliest.get(at, 0)) for at, waiting in lagging.items()}
        samples = self._sizes.samples(starts)
        sizes = {_name(at): sample.of(lagging[at].rows) for at, sample in samples.items()}
        return {name: replace(waiting, bytes=sizes.get(name, 0)) for name, waiting in backlog.items()}

    def _same_topics(self, ids: Mapping[str, str]) -> None:
        for name, topic in self.topics_now().items():
            if ids.get(name, topic.id) != topic.id:
                raise TopicReplaced(
                    f"topic {name!r} is another one: it was deleted and created again", where=self.spec.servers
                )

    def _beginning(self, earliest: Offsets, latest: Offsets) -> Offsets:
        """Return where a job without a position begins."""
        start = self.spec.start
        if isinstance(start, datetime):
            by_time = self.brokers.at_time(list(earliest), round(start.timestamp() * 1_000))
            return {at: latest[at] if by_time[at] < 0 else by_time[at] for at in earliest}
        if isinstance(start, Start):
            return latest if start is Start.LATEST else earliest
        named = {_partition(at) if isinstance(at, str) else at: offset for at, offset in start.items()}
        unknown = sorted(named.keys() - earliest.keys())
        if unknown:
            raise TopicNotFound(f"start= names {_name(unknown[0])}, which is not read", where=self.spec.servers)
        for at, offset in named.items():
            if offset > latest[at] and offset > (end := self.brokers.latest([at], uncommitted=True)[at]):
                problem = f"start= has offset {offset:,} of {_name(at)}, which ends at {end:,}"
                raise ConfigError(problem, where=self.spec.servers)
        return {**earliest, **named}

    def _refuse_gap(self, at: Partition, wanted: int, end: int | None = None, *, skips: bool = False) -> None:
        """Raise SourceGap where the record `wanted` is not there, or FixedRangeGone where not all up to `end` are.

        `skips` allows that early ones are gone. Where the log has become shorter, nothing does: other records come to
        have the offsets that were read.
        """
        earliest = self._earliest[at]
        newest = self.brokers.latest([at], uncommitted=True)[at]
        shown = f"offset {wanted:,} of {_name(at)} is wanted, and the topic has {earliest:,} to {newest:,}"
        named = {"partition": _name(at), "wanted": wanted, "earliest": earliest, "newest": newest}
        if (wanted if end is None else end) > newest:
            raise TopicReplaced(f"{shown}: it has become shorter", where=self.spec.servers, **named)
        if wanted < earliest and not skips:
            gap = SourceGap if end is None else FixedRangeGone
            raise gap(f"{shown}: {earliest - wanted:,} are lost", where=self.spec.servers, **named)

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return each topic's id and the offsets that are read next; of a new partition also where it begins.

        A topic of which some partitions are read says so: another one is new to the job without being new. A topic that
        is gone stays: one that is created by its name is then known to be another, however many batches later.
        """
        known = _offsets_in(after)
        new = {}
        for name, end in ends.items():
            at = _partition(name)
            # One batch passes over all that is skipped, whatever limit it has: there are no rows to read.
            new[at] = max(end, self._earliest.get(at, 0)) if end > known.get(at, self._begins.get(at, 0)) else end
        if after is not None and all(known.get(at) == end for at, end in new.items()):
            return after
        topics: dict[str, Any] = {}
        ids = {} if after is None else _ids_in(after)
        for at, end in sorted({**known, **new}.items()):
            topic = topics.setdefault(at[0], {"id": ids.get(at[0]) or self._topics[at[0]].id, "offsets": {}})
            topic["offsets"][str(at[1])] = end
            if self._reads_some_of(at[0], after):
                topic["some"] = True
            if at not in known:
                topic.setdefault("began", {})[str(at[1])] = self._begins[at]
        return {"topics": topics}

    def _reads_some_of(self, name: str, after: Position | None) -> bool:
        """Return whether partitions of a topic are left out, or were when it was last read."""
        if name in self._topics:
            return self.spec.partitions is not None
        return after is not None and bool(after["topics"].get(name, {}).get("some"))

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the ranges. `skipped` has each partition's first offset that is gone, and the first that is there."""
        starts = {**_offsets_in(end, "began"), **_offsets_in(start)}
        ranges, skipped = [], []
        for at, last in sorted(_offsets_in(end).items()):
            first = min(max(starts[at], self._earliest.get(at, 0)), last)
            ranges.append([*at, first, last])
            if first > starts[at]:
                skipped.append([_name(at), starts[at], first])
                _log.warning("source.gap", partition=_name(at), wanted=starts[at], earliest=first)
        return {"ids": _ids_in(end), "ranges": ranges, "skipped": skipped}

    def verify(self, span: Span) -> None:
        """Raise TopicReplaced or FixedRangeGone where a range of the span is not there any more."""
        self._same_topics(span["ids"])
        there = [(name, i, first, last) for name, i, first, last in span["ranges"] if first < last]
        for name, _, first, _ in there:
            if name not in self._topics:
                raise FixedRangeGone(
                    f"topic {name!r} is gone, of which offset {first:,} is wanted", where=self.spec.servers
                )
        self._earliest = self.brokers.earliest([(name, i) for name, i, *_ in there])
        for name, i, first, last in there:
            self._refuse_gap((name, i), first, last)

    def ended(self, position: Position | None) -> bool:
        """Return False: more may always come."""
        return False

    def rows(self, span: Span) -> int | None:
        """Return None: compaction and transactions leave offsets without a record.

        The tasks have read. Raises TopicReplaced where the topic has become another one meanwhile.
        """
        self._same_topics(span["ids"])
        return None

    def about_rows(self, span: Span) -> int:
        """Return the offsets of a span."""
        return sum(end - start for *_, start, end in span["ranges"])

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return topic and number of each, as `orders-0`."""
        return partition_names(span)

    def passed_over(self, start: Position | None, end: Position, span: Span) -> dict[str, list[list[int]]]:
        """Return the offsets before the beginning of each new partition, and those that are gone."""
        ranges = {_name(at): [[0, begun]] for at, begun in _offsets_in(end, "began").items() if begun}
        for name, wanted, first in span["skipped"]:
            ranges.setdefault(name, []).append([wanted, first])
        return ranges

    def task_reader(self) -> KafkaTaskReader:
        """Return what reads ranges in tasks."""
        spec = self.spec
        return KafkaTaskReader(
            spec.config, self.form, self.columns, tuple(spec.with_columns), spec.on_bad_record, spec.max_record
        )

    def ack(self, position: Position) -> None:
        """Tell the consumer group; nobody waits for the answer, which the next look for records takes."""
        if self._group is not None:  # the brokers refuse offsets of topics that are gone
            offsets = {at: offset for at, offset in _offsets_in(position).items() if at[0] in self._topics}
            self._group.note(offsets)


def _name(at: Partition) -> str:
    return partition_name(*at)


def _partition(name: str) -> Partition:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def _offsets_in(position: Position | None, member: str = "offsets") -> dict[Partition, int]:
    """Return the offsets in a position by topic and partition."""
    topics = {} if position is None else position["topics"]
    return {(name, int(i)): int(at) for name, topic in topics.items() for i, at in topic.get(member, {}).items()}


def _ids_in(position: Position) -> dict[str, str]:
    return {name: topic["id"] for name, topic in position["topics"].items()}
