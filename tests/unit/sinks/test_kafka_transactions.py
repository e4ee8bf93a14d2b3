"""Who takes the transactional id fences whoever had it, and a kill at any step doubles and loses nothing (FACTS 8)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from kafka_topics import numbers_in, records_in
from kafka_writing import APP, Writing

from penstock.errors import EXIT_RETRY, SinkAhead, SinkConflict, SinkUnavailable
from penstock.sinks import kafka_transactions
from penstock.sinks.kafka_brokers import Marker
from penstock.sinks.kafka_transactions import Transactions
from penstock.sources.kafka_brokers import Brokers
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


@pytest.mark.fault("F08", "F31")
@pytest.mark.parametrize(("missed", "batch"), [(1, 1), (2, 1), (1, 2)], ids=["its last", "an old one", "the next"])
def test_a_driver_that_was_replaced_is_fenced(writing: Writing, missed: int, batch: int) -> None:
    """FACTS 8: it cannot commit what it began, be it the batch that the other published last, the next, or an old one."""
    old, new = writing.publisher(), writing.publisher()
    old.publish(writing.batch(0, [0]))
    for each in range(1, 1 + missed):
        new.publish(writing.batch(each, [each]))
    with pytest.raises(SinkConflict, match="another producer"):
        old.publish(writing.batch(batch, [99]))
    new.publish(writing.batch(1 + missed, [1 + missed]))
    assert shown(writing) == [*range(2 + missed)]


@pytest.mark.fault("F31")
@pytest.mark.parametrize(("batch", "what"), [(1, "ahead"), (2, "there"), (3, "next")])
def test_a_driver_that_had_no_producer_asks_which_batch_the_topic_has(writing: Writing, batch: int, what: str) -> None:
    """Before it begins a transaction; also where it has published earlier batches itself."""
    old, new = writing.publisher(), writing.publisher()
    old.publish(writing.batch(0, [0]))
    for each in (1, 2):
        new.publish(writing.batch(each, [each]))
    old._producers.clear()  # as after an error
    if what == "ahead":
        with pytest.raises(SinkAhead, match=r"2.*1"):
            old.publish(writing.batch(batch, [99]))
    else:
        old.publish(writing.batch(batch, [batch]))
    assert shown(writing) == [0, 1, 2, *([3] if what == "next" else [])]


@pytest.mark.fault("F58")
def test_an_interrupt_right_after_a_commit_leaves_no_producer_that_is_not_asked_for(writing: Writing) -> None:
    """A producer is kept only if the batch is noted: else the batch would be there twice."""

    class Interrupted(dict[str, Marker]):
        def __setitem__(self, app: str, marker: Marker) -> None:
            if marker.batch == 1:
                raise KeyboardInterrupt
            super().__setitem__(app, marker)

    publisher = writing.publisher()
    publisher._shown = Interrupted()
    publisher.publish(writing.batch(0, [0]))
    with pytest.raises(KeyboardInterrupt):
        publisher.publish(writing.batch(1, [1]))
    publisher._shown = {**publisher._shown}
    publisher.publish(writing.batch(1, [1]))
    assert shown(writing) == [0, 1]


KILLS = [
    "init_transactions before", "init_transactions after", "begin_transaction after", "produce 3",
    "send_offsets_to_transaction before", "send_offsets_to_transaction after", "commit_transaction before",
    "commit_transaction during", "commit_transaction after",
]  # fmt: skip


@pytest.mark.fault("F01", "F54", "F58")
@pytest.mark.sample(2)
@pytest.mark.parametrize("kill", KILLS)
def test_a_kill_within_a_publication_doubles_and_loses_nothing(kill: str, writing: Writing) -> None:
    """A process dies by SIGKILL at each step of the protocol; the next one publishes the same batch."""
    writing.publisher().publish(writing.batch(0, [0, 1]))
    publication = writing.batch(1, range(2, 40))
    publication_facts = [publication.files[0].path, str(publication.files[0].size), publication.files[0].checksum]
    program = [sys.executable, str(Path(__file__).parents[2] / "crash" / "killed_publisher.py")]
    died = subprocess.run(
        [*program, writing.sink.servers, writing.sink.topic, str(writing.staging), *publication_facts, *kill.split()],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr
    next_run = writing.publisher()
    assert next_run.version(APP) in ((0, 1) if "commit" in kill else (0,))
    next_run.publish(publication)
    next_run.publish(writing.batch(2, [40]))
    assert shown(writing) == [*range(41)]
    assert writing.publisher().version(APP) == 2


@pytest.mark.fault("F58")
def test_an_open_transaction_of_a_dead_driver_is_no_batch(writing: Writing) -> None:
    """`version` neither fences nor waits for its end; publishing ends it, and readers never see it."""
    writing.publisher().publish(writing.batch(0, [0]))
    dead = writing.sink.open(writing.staging, None)
    producer = dead._open(APP).producer
    producer.begin_transaction()
    producer.produce(writing.sink.topic, b'{"k": 99}')
    assert producer.flush(30) == 0
    assert writing.publisher().version(APP) == 0
    alive = writing.publisher()
    alive.publish(writing.batch(1, [1]))
    with pytest.raises(KafkaException, match="_FENCED"):
        producer.commit_transaction(30)
    assert shown(writing) == [0, 1]


@pytest.mark.fault("F58")
@pytest.mark.parametrize("hangs", [1, 2], ids=["once", "again"])
def test_a_call_that_never_returns_is_given_up_with_its_producer(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, hangs: int
) -> None:
    """Of librdkafka, which ignores a time limit where a broker was restarted; a new producer has the batch once."""
    left, ended = [hangs], threading.Event()

    class Hanging(confluent_kafka.cimpl.Producer):
        def send_offsets_to_transaction(self, *args: Any) -> None:
            if left[0]:
                left[0] -= 1
                ended.wait()
            super().send_offsets_to_transaction(*args)

    publisher = writing.publisher()
    publisher.publish(writing.batch(0, [0]))
    publisher._producers.clear()
    monkeypatch.setattr(confluent_kafka, "Producer", Hanging)
    monkeypatch.setattr(kafka_transactions, "_SENDING", 0.5)
    try:
        if hangs > 1:
            with pytest.raises(SinkUnavailable, match="coordinator"):
                publisher.publish(writing.batch(1, [1]))
        publisher.publish(writing.batch(1, [1]))
        publisher.publish(writing.batch(2, [2]))
        assert shown(writing) == [0, 1, 2]
    finally:
        ended.set()
    until(lambda: "penstock-kafka-offset" not in {t.name for t in threading.enumerate()}, "the calls to end")
    assert shown(writing) == [0, 1, 2], "what hung is fenced"


@pytest.mark.fault("F58")
@pytest.mark.parametrize("when", ["with its offset", pytest.param("with its rows", marks=pytest.mark.soak)])
def test_a_transaction_that_runs_out_before_its_commit_is_no_batch(
    kafka: Any, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The brokers abort it by its timeout while its driver sleeps; the batch is redone, and readers see it once."""
    kafka.create(topic, 2)
    writing = Writing(tmp_path, topic, kafka, options={"transaction.timeout.ms": 3_000})
    brokers, partitions = (
        Brokers({"bootstrap.servers": kafka.address}, read_uncommitted=False),
        [(topic, 0), (topic, 1)],
    )
    send = Transactions._send

    def is_open() -> bool:
        return brokers.latest(partitions) != brokers.latest(partitions, uncommitted=True)

    def sleep(producer: Any) -> None:
        assert producer.flush(30) == 0
        assert is_open()
        until(lambda: not is_open(), "the brokers to abort the transaction")

    def late(self: Transactions, offset: Any) -> None:
        if when == "with its rows":
            sleep(self.producer)
        send(self, offset)
        if when == "with its offset":
            sleep(self.producer)

    publisher = writing.publisher()
    publisher.publish(writing.batch(0, [0]))
    publication = writing.batch(1, range(1, 40))
    with monkeypatch.context() as sleepy:
        sleepy.setattr(Transactions, "_send", late)
        with pytest.raises(
            SinkConflict, match=r"took \d+ s of at most 3 s, or another producer .* transaction.timeout.ms"
        ) as ended:
            publisher.publish(publication)
    assert ended.value.exit_code == EXIT_RETRY
    assert (shown(writing), writing.publisher().version(APP)) == ([0], 0)
    next_run = writing.publisher()
    next_run.publish(publication)
    next_run.publish(writing.batch(2, [40]))
    assert shown(writing) == [*range(41)]


def is_forgotten(servers: str, app: str) -> bool:
    """Return whether the broker has written that it knows the transactional id of an app no longer."""
    written = records_in(servers, "__transaction_state", isolation="read_uncommitted")
    return [record.value for record in written if app.encode() in (record.key or b"")][-1] is None


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Return a broker that forgets after a moment a producer that nobody uses, and not after a week."""
    server = KafkaServer(
        tmp_path_factory.mktemp("kafka"),
        settings={
            "transactional.id.expiration.ms": 1_000,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
            "producer.id.expiration.ms": 1_000,
            "producer.id.expiration.check.interval.ms": 100,
        },
    )
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.mark.parametrize("clean", [True, False], ids=["idle", "after a crash"])
def test_a_transactional_id_that_expired_is_taken_again(forgetful: KafkaServer, tmp_path: Path, *, clean: bool) -> None:
    """The brokers forget one that nobody uses."""
    topic = forgetful.new_name()
    forgetful.create(topic)
    writing = Writing(tmp_path, topic, forgetful)
    publisher = writing.publisher()
    app = f"{APP}-{topic}"
    publisher.publish(writing.batch(0, [0], app=app))
    until(lambda: is_forgotten(forgetful.address, app), "the transactional id to expire")
    before, publisher = publisher._producers[app], publisher if clean else writing.publisher()
    publisher.publish(writing.batch(0, [0], app=app))
    publisher.publish(writing.batch(1, [1], app=app))
    assert publisher._producers[app] is not before
    assert shown(writing) == [0, 1]
