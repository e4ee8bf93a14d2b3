"""Publish into a topic: a transaction a batch, which also says which batch it is (FACTS 8), or plain records.

The order of one publication, exactly once::

    init_transactions          fences the driver before, and ends what it left open (a decided commit, or an abort)
    the group's offset         is the newest batch that the topic shows; this one, or a later one: done, or SinkAhead
                               (both lines only with a new producer: nobody publishes beside one without fencing it)
    begin, produce rows        nobody who reads committed records sees them
    the batch as the offset    in the same transaction
    commit                     rows and offset are visible together, or neither

A failure at any point is no evidence of anything. The next attempt begins at the first line, and asks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import SinkAhead, SinkBehind, SinkConflict, SinkNotFound, SinkUnavailable
from penstock.kafka.admin import Topic
from penstock.kafka.client import LIBRDKAFKA
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.kafka_brokers import Marker, SinkBrokers, sink_error
from penstock.sinks.kafka_records import Records, RowLayout
from penstock.sinks.kafka_tail import APP, BATCH, JOB, STEP, newest_in_tail
from penstock.sinks.kafka_transactions import Transactions
from penstock.sinks.staged_files import read_staged

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

__all__ = ["PlainPublisher", "Target", "TransactionalPublisher"]

log = structlog.get_logger()

_LEAST_LIMIT, _BATCH_SIZE = 1_000, 1_000_000
_POLL_EVERY = 10_000
"""Records between two looks at what became of earlier ones."""
_HEADERS = len(APP) + len(BATCH) + len(JOB) + len(STEP) + 346
"""The most bytes of the headers: 120 of an app id, 63 of a job's name and of a step's, 20 digits of a batch, and the
lengths."""
_APPS = 4
"""Producers that a publisher keeps; each release of held rows has an app of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The topic, how rows become its records, and librdkafka's settings.

    `patience` is how many seconds one answer may take, and a transaction as a whole.
    """

    topic: str
    layout: RowLayout
    config: Mapping[str, Any] = field(repr=False)  # may hold a password
    patience: float


class _KafkaPublisher(Publisher):
    """What both ways of publishing share: the records of staged rows, and what the topic takes."""

    def __init__(self, target: Target, staging: CheckpointFolder) -> None:
        self.target = target
        self.staging = staging
        self._refused: KafkaError | None = None
        self._encoded: tuple[tuple[str, ...], list[Records]] | None = None

    @cached_property
    def brokers(self) -> SinkBrokers:
        """Return the connection, made when it is first used."""
        return SinkBrokers(self.target.config)

    @cached_property
    def limit(self) -> int | None:
        """Return the most bytes of a batch of records that the topic takes, None where nobody may know."""
        return self.brokers.largest(self.target.topic)

    @cached_property
    def topic(self) -> Topic:
        """Return the topic as it was when it was first asked for; raises SinkNotFound."""
        topic = self.brokers.topic(self.target.topic)
        if topic is None:
            raise SinkNotFound(f"there is no topic {self.target.topic!r}", where=self.brokers.servers)
        return topic

    def refuse_values(self, files: Sequence[Staged]) -> None:
        """Raise SinkValueRefused for rows that have no record, and RecordTooLarge for those that the topic rejects."""
        if not files:
            return
        records = self._records(files)
        for piece in records:
            piece.refuse_partitions(len(self.topic.partitions), self.target.topic)
        limit = self.limit
        if limit is not None:
            for piece in records:
                piece.refuse_larger(limit, _HEADERS, self.target.topic)
        self._encoded = (_key(files), records)

    def _records(self, files: Sequence[Staged]) -> list[Records]:
        """Return the records of staged files: those that `refuse_values` has made, where they are the same."""
        encoded, self._encoded = self._encoded, None
        if encoded is not None and encoded[0] == _key(files):
            return encoded[1]
        return list(self.target.layout.records(read_staged(self.staging, files)))

    def _opened(self, **settings: Any) -> Producer:
        """Return a producer, which keeps the first error of a record."""
        from confluent_kafka import KafkaException, Producer

        limit = self.limit
        sizes = {} if limit is None else _sizes(limit)
        ours = {"delivery.report.only.error": True, "on_delivery": self._note, "acks": "all", **settings}
        try:
            return Producer({**_PRODUCING, **sizes, **self.target.config, **ours}, logger=LIBRDKAFKA)
        except KafkaException as why:
            raise sink_error(why.args[0], self.target.topic) from why

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._refused is None:
            self._refused = error

    def _produce(self, producer: Producer, publication: Publication, records: Sequence[Records]) -> None:
        self._refused = None
        job, app, batch = publication.origin.job, publication.app, publication.batch
        step = app.partition("/")[2].partition("/")[0]  # of held rows that were released, more follows
        named = ((JOB, job), (STEP, step), (APP, app), (BATCH, batch))
        headers = [(name, str(value).encode()) for name, value in named]
        topic, produced = self.target.topic, 0
        for piece in records:
            for key, value, partition in piece:
                where = {} if partition is None else {"partition": partition}
                self._queue(producer, topic, value, key=key, headers=headers, **where)
                produced += 1
                if produced % _POLL_EVERY == 0:
                    producer.poll(0)

    def _queue(self, producer: Producer, topic: str, value: bytes | None, **more: Any) -> None:
        """Hand a record to librdkafka, as soon as it has room; raises SinkUnavailable where it never has."""
        until = None
        while True:
            try:
                producer.produce(topic, value, **more)
            except BufferError:
                until = until or time.monotonic() + self.target.patience
                if time.monotonic() > until:
                    raise SinkUnavailable("the brokers take no records", where=topic) from None
                producer.poll(0.05)
            else:
                return

    def _raised(self, error: KafkaError) -> Exception:
        """Return what an error means; why a record was refused says more than that its transaction failed."""
        return sink_error(self._refused or error, self.target.topic)


class TransactionalPublisher(_KafkaPublisher):
    """Publish each batch once to those who read committed records."""

    def __init__(self, target: Target, staging: CheckpointFolder) -> None:
        super().__init__(target, staging)
        self._producers: dict[str, Transactions] = {}
        self._shown: dict[str, Marker] = {}

    def publish(self, publication: Publication) -> None:
        """Write the rows in one transaction, unless the topic shows the batch."""
        if not publication.files:
            return
        from confluent_kafka import KafkaException

        records = self._records(publication.files)
        for attempt in range(2):
            began = time.monotonic()
            try:
                self._publish(publication, records)
                # In here: whatever interrupts it keeps no producer, and with a kept one nobody asks what the topic has.
                self._shown[publication.app] = Marker(publication.batch, self.topic.id, publication.fingerprint)
            except KafkaException as why:
                self._producers.pop(publication.app, None)
                # The brokers forget a transactional id that nobody has used for a week; a new producer has it again.
                if attempt or not _is_forgotten(why.args[0]):
                    raise self._ended(why.args[0], time.monotonic() - began) from why
            except TimeoutError as why:
                self._producers.pop(publication.app, None)
                if attempt:
                    silent = "the coordinator of the consumer group does not answer"
                    raise SinkUnavailable(silent, where=self.target.topic) from why
                log.warning("sink.producer_replaced", topic=self.target.topic, batch=publication.batch)
            except BaseException:
                self._producers.pop(publication.app, None)
                raise
            else:
                return

    def _ended(self, error: KafkaError, took: float) -> Exception:
        """Return what an error of a publication means that took so many seconds.

        The brokers abort a transaction that takes too long, and then say no more than that its producer is fenced.
        """
        raised, most = self._raised(error), self.target.patience
        if not isinstance(raised, SinkConflict) or took < most:
            return raised
        return SinkConflict(
            f"the brokers aborted the transaction, which took {took:.0f} s of at most {most:g} s, or another producer "
            f"has the transactional id by now",
            where=self.target.topic,
        )

    def version(self, app: str) -> int | None:
        """Return the newest batch that the topic shows; neither fences a driver nor waits for one that is dead."""
        topic = self.brokers.topic(self.target.topic)
        newest = None if topic is None else self._newest(app, topic)
        return None if newest is None else newest.batch

    def _publish(self, publication: Publication, records: Sequence[Records]) -> None:
        app, batch = publication.app, publication.batch
        kept = app in self._producers
        transactions = self._open(app)
        seen = self._seen(app, kept=kept)
        if seen is not None and seen.batch == batch:
            publication.refuse_copy(seen.fingerprint, self.target.topic)
            return
        if seen is not None and seen.batch > batch:
            raise SinkAhead(
                f"the topic has batch {seen.batch} of this checkpoint and is asked to take {batch}",
                where=self.target.topic,
                seen=seen.batch,
                batch=batch,
            )
        with transactions.transaction(Marker(batch, self.topic.id, publication.fingerprint)) as producer:
            self._produce(producer, publication, records)

    def _open(self, app: str) -> Transactions:
        """Return what has the transactional id of an app, as the newest of those that are kept."""
        target, producer = self.target, self._producers.pop(app, None)
        if producer is None:
            producer = Transactions.begun(
                self._opened(**{"transactional.id": app}), app, target.topic, target.config, target.patience
            )
        self._producers[app] = producer
        while len(self._producers) > _APPS:
            del self._producers[next(iter(self._producers))]
        return producer

    def _seen(self, app: str, *, kept: bool) -> Marker | None:
        """Return the newest batch that the topic shows; raises SinkBehind where it does not show what it has shown.

        The topic is asked for each time. The brokers delete the markers of a topic that is gone, but not at once. The
        marker is not, as long as a producer is kept: another that publishes a batch has fenced it first.
        """
        known, topic = self._shown.get(app), self.brokers.topic(self.target.topic)
        if topic is None and known is None:
            raise SinkNotFound(f"there is no topic {self.target.topic!r}", where=self.brokers.servers)
        if topic is None or topic.id != self.topic.id:
            had = None if known is None else known.batch
            raise SinkBehind(
                f"topic {self.target.topic!r} was deleted, and had batch {had} of this checkpoint",
                where=self.brokers.servers,
                shown=-1,
                missing=[] if had is None else [had],
            )
        if kept and known is not None:
            return known
        shown = self._newest(app, topic)
        if known is not None and (shown is None or shown.batch < known.batch):
            log.warning("sink.marker_lost", topic=self.target.topic, group=app, batch=known.batch)
            return known
        return shown

    def _newest(self, app: str, topic: Topic) -> Marker | None:
        """Return the newest batch that the topic shows, also where its marker is lost."""
        marker = self.brokers.marker(app, self.target.topic)
        if marker is not None and marker.topic_id:  # of a topic of another id its batches are gone
            return marker if marker.topic_id == topic.id else None
        batch = newest_in_tail(self.brokers, self.target.config, self.target.topic, topic, app)
        return None if batch is None else Marker(batch, topic.id)


class PlainPublisher(_KafkaPublisher):
    """Publish without transactions: a batch that is published again is there again."""

    def __init__(self, target: Target, staging: CheckpointFolder) -> None:
        super().__init__(target, staging)
        self._producer: Producer | None = None

    def publish(self, publication: Publication) -> None:
        """Write the rows; returns when the brokers have acknowledged all."""
        if not publication.files:
            return
        from confluent_kafka import KafkaException

        records = self._records(publication.files)
        if self._producer is None:
            self._producer = self._opened(**{"enable.idempotence": True})
        try:
            self._produce(self._producer, publication, records)
            left = self._producer.flush(self.target.patience)
        except KafkaException as why:
            self._producer = None
            raise self._raised(why.args[0]) from why
        if left or self._refused is not None:
            self._producer, refused = None, self._refused
            if refused is not None:
                raise sink_error(refused, self.target.topic)
            raise SinkUnavailable(f"{left:,} records were not acknowledged", where=self.target.topic)

    def version(self, app: str) -> int | None:
        """Return None: nothing says how much of a batch a topic has."""
        return None


_PRODUCING: Mapping[str, Any] = {
    "linger.ms": 5,
    "partitioner": "murmur2_random",  # as clients in Java choose, so that their joins by partition meet
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 << 10,
}


def _sizes(limit: int) -> dict[str, int]:
    """Return settings by which no batch of records is larger than the topic takes, unless one record is."""
    return {"message.max.bytes": max(_LEAST_LIMIT, limit), "batch.size": max(1, min(_BATCH_SIZE, limit))}


def _is_forgotten(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError as Codes

    return error.code() in {Codes.INVALID_PRODUCER_ID_MAPPING, Codes.UNKNOWN_PRODUCER_ID}


def _key(files: Sequence[Staged]) -> tuple[str, ...]:
    return tuple(f"{file.path} {file.checksum}" for file in files)
