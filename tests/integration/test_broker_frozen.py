"""A broker that is frozen for longer than anybody waits for it, and killed later: each record counts once all the same.

SEMANTICS 9.2 (a range replays), 9.4 (sinks that are exactly once) and 9.5 (a redo asks the sink first), with the
faults F25, F55, F57 and F58: storage that does not answer, two sinks of which one does, a sink that is away for long,
and a transaction of which nobody knows the end. `test_jobs_from_kafka` and `test_kafka_publisher` have the same with a
driver that waits for a second; here all settings are those that a user has.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_runner import PATIENCE
from kafka_topics import rows_in
from project_samples import make_project
from supervised_project import Yard

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.roots import job_log
from penstock.errors import EXIT_RETRY, SinkUnavailable, SourceUnavailable
from penstock.supervise.stream import Phase
from tools.kafka_server import KafkaServer

FROZEN = 70.0
"""Seconds: longer than a reader or a sink waits for an answer by default."""
UNAVAILABLE = {SourceUnavailable.code, SinkUnavailable.code}
"""Which of the two depends on the stage that the freeze meets."""
START = datetime(2024, 1, 1, tzinfo=UTC)
USERS = 6
"""An even number, so that each user is in one of the two partitions."""

JOB = """
from penstock import Job, agg, minutes, seconds
from penstock.sinks import Delta, Kafka
from penstock.windows import Tumbling


def build(conf):
    job = Job("orders", partitions=2)
    topic = conf.source("orders")
    orders = job.source("orders", topic, event_time="t", max_out_of_order=seconds(5))
    orders.write("copies", Kafka("copies", servers=topic.servers, key="user"))
    totals = (
        orders.key_by("user")
        .window("minutely", Tumbling(minutes(1)).drop_late())
        .aggregate(n=agg.count(), total=agg.sum("v"))
    )
    totals.write("totals", Delta(conf.table("totals")))
    totals.write("sums", Kafka("sums", servers=topic.servers, key="user"))
    return job
"""
SETTINGS = """
[sources.orders]
kind = "kafka"
topics = ["orders"]
servers = "{servers}"
format = {{ kind = "json", schema = "user string, t timestamp, v long" }}

[tables]
totals = "tables/totals"
"""


class Orders:
    """Writes an order each few milliseconds, until it is told to end; the brokers have each of them once."""

    def __init__(self, server: KafkaServer) -> None:
        self.written = 0
        self._ends = threading.Event()
        self._producer = server.producer(**{"enable.idempotence": True, "message.timeout.ms": 600_000})
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._ends.wait(0.01):
            at = START + timedelta(seconds=self.written)
            order = {"user": f"u{self.written % USERS}", "t": at.isoformat(), "v": self.written}
            self._producer.produce("orders", json.dumps(order).encode(), partition=self.written % 2)
            self.written += 1
            self._producer.poll(0)

    def end(self) -> int:
        """Write no more; returns how many orders the topic has."""
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        return self.written


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KafkaServer]:
    """Return a broker of its own, with three topics."""
    begun = KafkaServer(tmp_path / "kafka")
    try:
        begun.start()
        for name, partitions in (("orders", 2), ("copies", 3), ("sums", 1)):
            begun.create(name, partitions)
        yield begun
    finally:
        begun.end()


@pytest.fixture
def yard(tmp_path: Path, server: KafkaServer) -> Iterator[Yard]:
    """Return a stream with a supervisor, from one topic into two and a table."""
    root = make_project(tmp_path / "project", job=JOB)
    (root / "conf" / "jobs" / "orders.toml").write_text(SETTINGS.format(servers=server.address))
    begun = Yard(root, every=0.5)
    yield begun
    begun.end()


def newest(yard: Yard) -> Commit | None:
    """Return the newest Commit, None before the first one."""
    log = job_log(yard.checkpoints / "orders")
    entries = log.entries_back(log.find_tail()) if log is not None else ()
    return next((entry for _, entry in entries if isinstance(entry, Commit)), None)


def read_of(yard: Yard) -> int:
    """Return how many orders the committed batches have read."""
    commit = newest(yard)
    return 0 if commit is None else sum(commit.sources["orders"].position["topics"]["orders"]["offsets"].values())


def expected(orders: int) -> list[tuple[str, datetime, int, int]]:
    """Return user, window start, count and sum of each minute, sorted."""
    totals: dict[tuple[str, datetime], tuple[int, int]] = {}
    for v in range(orders):
        key = (f"u{v % USERS}", START + timedelta(minutes=v // 60))
        n, total = totals.get(key, (0, 0))
        totals[key] = (n + 1, total + v)
    return sorted((user, start, n, total) for (user, start), (n, total) in totals.items())


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.fault("F25", "F55", "F57", "F58")
def test_a_broker_frozen_for_longer_than_anybody_waits_and_then_killed_loses_and_doubles_nothing(
    yard: Yard, server: KafkaServer
) -> None:
    """SEMANTICS 9.4, 9.5: the stream pauses, says why, counts no failure, and goes on by itself."""
    yard.supervise()
    yard.json("start", "orders")
    orders = Orders(server)
    yard.until(lambda s: s.phase is Phase.RUNNING and read_of(yard) > 500)

    server.freeze()
    thawed_at, before = time.monotonic() + FROZEN, newest(yard)
    *alive, says = looks_until_failed(yard)
    assert {look["state"] for look in alive} == {"running"}
    assert says["error"]["code"] in UNAVAILABLE, says
    assert "Wait for the server" in says["error"]["remedy"]
    time.sleep(max(0.0, thawed_at - time.monotonic()))
    after = newest(yard)
    assert before is not None
    assert after is not None
    assert after.batch <= before.batch + 1, "only the one that had read its rows"
    written = orders.written
    server.thaw()
    yard.until(lambda _: read_of(yard) > written)

    server.kill()
    written = orders.written
    server.start_broker()
    server.wait()
    yard.until(lambda _: read_of(yard) > written + 500)

    written = orders.end()
    yard.until(lambda _: read_of(yard) == written)
    yard.json("drain", "orders")
    yard.until(lambda s: s.phase is Phase.FINISHED)
    shown = [row["v"] for row in rows_in(server.address, "copies")]
    assert sorted(shown) == list(range(written))
    sums = [
        (row["user"], datetime.fromisoformat(row["window_start"]), row["n"], row["total"])
        for row in rows_in(server.address, "sums")
    ]
    assert sorted(sums) == yard.totals() == expected(written)

    streams = [stream for _, stream in yard.records.history()]
    assert {s.phase for s in streams} <= {
        Phase.SUBMITTING, Phase.RUNNING, Phase.PAUSED, Phase.DRAINING, Phase.FINISHED,
    }  # fmt: skip
    assert {s.failures for s in streams} == {()}
    reasons = {s.reason for s in streams if s.phase is Phase.PAUSED}
    assert reasons
    for reason in reasons:
        assert any(f"the driver ended with {EXIT_RETRY}: {code} " in str(reason) for code in UNAVAILABLE), reason


def looks_until_failed(yard: Yard) -> list[dict[str, Any]]:
    """Return what `penstock status` says, again and again; at last that the driver failed, as the next may not."""
    looks: list[dict[str, Any]] = []
    ends = time.monotonic() + PATIENCE
    while not looks or looks[-1]["state"] != "failed":
        assert time.monotonic() < ends, looks[-1]
        looks.append(yard.json("status", "orders"))
    return looks
