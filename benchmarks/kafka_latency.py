"""Run P12 of DESIGN 12: from the broker's timestamp to visible in Delta and in a topic, beside Structured Streaming.

A producer in a process of its own writes a thousand records a second. Each side copies them into a Delta table and
into a topic. A row is visible in the table when the log entry that names its file is there, and in the topic when a
consumer with `isolation.level=read_committed`, in a process of its own as well, has it. The sides take turns, so both
see the same machine.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.beside_spark import scratch
from benchmarks.engine_side import StageClock
from benchmarks.report import Claim, report
from penstock import Job
from penstock.checkpoint.storage.locate import root_of
from penstock.runtime.driver.settings import DriverSettings
from penstock.runtime.process.collector_pauses import ShortPauses
from penstock.runtime.process.job_run import JobRun
from penstock.sinks import Delta
from penstock.sinks import Kafka as KafkaSink
from penstock.sources import Json, Kafka
from penstock.time.clock import SystemClock
from penstock.time.triggers import AsFastAsPossible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["run_p12"]

_COLUMNS = "n long, v double"
_A_SECOND = 1_000
_SHOWN = ("side", "rows", "p50 ms", "p99 ms", "worst ms", "p99 by turn")
_PARTS = ("part", "p50", "p99", "worst", "the slowest 1% beyond p50")
_WHOLE = "the whole batch"
_WARM = 240
"""Seconds that each side runs before the turns that count.

A stream runs for days. Java compiles 4,000 methods in the second half minute of such a job, 1,000 in the fifth, and
about 100 from the eighth on, which is after four minutes. On two cores its compilers take turns with the batches.
"""
_PATIENCE = 90.0
"""Seconds for a side to show all of its rows when the producer has ended."""

_APART = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The topics of one turn, where its files lie, and for how long records come: `warm` of it is not counted."""

    servers: str
    source: str
    target: str
    root: Path
    warm: int
    seconds: int
    batches: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """When each batch ended, milliseconds since 1970, and the milliseconds of its stages; of Penstock alone."""

    @property
    def table(self) -> Path:
        """Return the Delta table."""
        return self.root.resolve() / "table"

    @property
    def records(self) -> int:
        """Return how many records come."""
        return (self.warm + self.seconds) * _A_SECOND


@dataclass(slots=True)
class Seen:
    """The latencies of a side in its table and in its topic, of one turn, and the stages of its batches."""

    table: list[float] = field(default_factory=list)
    topic: list[float] = field(default_factory=list)
    batches: list[dict[str, float]] = field(default_factory=list)


def run_p12(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P12: a thousand records a second, a copy of each in Delta and in a topic.

    Quantiles are those of a turn, and the figure of a side is the median of its turns: a disk that stands still for
    half a second, twice in a turn, is beyond the 99th percentile of that one.
    """
    from tools.kafka_server import KafkaServer

    rounds, warm, counted = (1, 20, 20) if quick else (3, 10, 30)
    sides: Mapping[str, Callable[[SparkSession, Round], Any]] = {
        "Penstock": _penstock,
        "Structured Streaming, one query": _one_query,
        "Structured Streaming, two queries": _two_queries,
        "Structured Streaming, real-time mode": _real_time,
    }
    seen: dict[str, list[Seen]] = {side: [] for side in sides}
    with report("P12 from Kafka to Delta and Kafka") as results, scratch() as root:
        server = KafkaServer.as_shipped(root.resolve() / "kafka")
        server.start()
        try:
            # The first round is for the Java process: the peer's first batches into Delta take many seconds each.
            for number, (name, side) in enumerate(chain.from_iterable([sides.items()] * (1 + rounds))):
                source, target = f"in-{number}", f"out-{number}"
                # The time is the broker's: how long a producer gathers records is not for the sides to answer.
                server.create(source, partitions=2, **{"message.timestamp.type": "LogAppendTime"})
                server.create(target, partitions=2)
                place = root / str(number)
                place.mkdir()
                turn = Round(
                    servers=server.address,
                    source=source,
                    target=target,
                    root=place,
                    warm=warm,
                    seconds=_WARM if number < len(sides) and not quick else counted,
                )
                # The garbage of the side before is not for this one to collect.
                spark.sparkContext._jvm.System.gc()  # type: ignore[union-attr] # noqa: SLF001 - no public way
                seen[name].append(_take(spark, side, turn))
        finally:
            server.end()
        for what in ("table", "topic"):
            rows = [_row(side, turns[1:], what) for side, turns in seen.items() if getattr(turns[0], what)]
            rows.append(_row("Penstock, the turn before, not counted", seen["Penstock"][:1], what))
            results.table(f"milliseconds to visible in the {what}, {_A_SECOND:,} rows a second", _SHOWN, rows)
            p50, p99 = rows[0][2:4]
            peer = min(row[2] for row in rows if row[0].endswith(("one query", "two queries")))
            results.claim(
                Claim(f"P12, {what}: p50 of Structured Streaming to ours", peer / p50, 3, "x"),
                Claim(f"P12, {what}: p99 to p50 of ours", p99 / p50, 2, "x", at_most=True),
            )
        batches = [batch for turn in seen["Penstock"][1:] for batch in turn.batches]
        results.table("Penstock's batches, milliseconds", _PARTS, _parts(batches))
    return results.claims


def _row(side: str, turns: Sequence[Seen], what: str) -> tuple[str, int, float, float, float, str]:
    by_turn = [_quantiles(getattr(turn, what)) for turn in turns]
    p50, p99 = (median(quantiles[which] for quantiles in by_turn) for which in (0, 1))
    shown = ", ".join(f"{p99:.0f}" for _, p99, _ in by_turn)
    return side, sum(len(getattr(turn, what)) for turn in turns), p50, p99, max(worst for *_, worst in by_turn), shown


def _parts(batches: Sequence[Mapping[str, float]]) -> list[tuple[str, float, float, float, float]]:
    """Return by stage its median, its 99th percentile, its worst, and what the slowest batches took beyond the median.

    These are the hundredth part of all batches that took longest as a whole.
    """
    slowest = sorted(batches, key=lambda stages: stages[_WHOLE])[-max(1, len(batches) // 100) :]
    rows = []
    for stage in batches[0]:
        p50, p99, worst = _quantiles([stages.get(stage, 0.0) for stages in batches])
        rows.append((stage, p50, p99, worst, fmean(stages.get(stage, 0.0) for stages in slowest) - p50))
    return rows


def _quantiles(latencies: list[float]) -> tuple[float, float, float]:
    p50, p99 = np.quantile(latencies, [0.5, 0.99])
    return float(p50), float(p99), max(latencies)


def _take(spark: SparkSession, side: Callable[[SparkSession, Round], Any], turn: Round) -> Seen:
    """Run a side while records come, and return their latencies after the warm-up."""
    with _watching(turn) as arrived, side(spark, turn) as ended:
        producing = _APART.Process(target=_produce, args=(turn,))
        producing.start()
        producing.join()
        until = time.monotonic() + _PATIENCE
        while not _is_complete(turn, side, arrived) and time.monotonic() < until:
            time.sleep(0.1)
            ended()
    assert np.all(arrived), f"{np.count_nonzero(arrived):,} of {turn.records:,} records in the topic"
    sent = _timestamps(turn)
    counted = range(turn.warm * _A_SECOND, turn.records)
    seen = Seen(
        topic=[float(arrived[n]) - sent[n] for n in counted],
        batches=[stages for ended, stages in turn.batches if ended >= sent[counted[0]]],
    )
    if side is _real_time:
        return seen
    visible = _visible_in(turn.table)
    assert len(visible) == turn.records, f"{len(visible):,} of {turn.records:,} rows in the table"
    seen.table = [visible[n] - sent[n] for n in counted]
    return seen


def _is_complete(turn: Round, side: Callable[[SparkSession, Round], Any], arrived: np.ndarray[Any, Any]) -> bool:
    return bool(np.all(arrived)) and (side is _real_time or len(_visible_in(turn.table)) == turn.records)


def _produce(turn: Round) -> None:
    """Write the records, each when its time has come."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": turn.servers})
    began = time.monotonic()
    for n in range(turn.records):
        due = began + n / _A_SECOND
        # `poll` counts in whole milliseconds: it would not wait at all, and take a processor from those measured.
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        producer.poll(0)
        producer.produce(turn.source, json.dumps({"n": n, "v": n / 7}), partition=n % 2)
    producer.flush()


@contextmanager
def _watching(turn: Round) -> Iterator[np.ndarray[Any, Any]]:
    """Yield by number when a reader of committed records has each of the target, milliseconds since 1970; 0 before."""
    arrived = _APART.RawArray("d", turn.records)
    stopping = _APART.Event()
    # A thread here would take Python's lock from the driver, which runs in this process.
    watcher = _APART.Process(target=_watch, args=(turn, arrived, stopping))
    watcher.start()
    try:
        yield np.frombuffer(arrived)
    finally:
        stopping.set()
        watcher.join()


def _watch(turn: Round, arrived: Any, stopping: Any) -> None:
    for messages in _messages(turn.servers, turn.target, stopping.is_set):
        now = time.time() * 1_000
        for message in messages:
            arrived[json.loads(message.value())["n"]] = now


def _messages(servers: str, topic: str, ended: Callable[[], bool]) -> Iterator[list[Any]]:
    """Yield the committed records of a topic as they come."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "p12", "isolation.level": "read_committed"}
    reader = Consumer({**settings, "fetch.wait.max.ms": 10, "enable.auto.commit": False})
    try:
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        while not ended():
            # `consume` alone would wait for that many, or for its whole time.
            first = reader.poll(0.02)
            messages = [] if first is None else [first, *reader.consume(1_000, 0)]
            yield [message for message in messages if message.error() is None]
    finally:
        reader.close()


def _timestamps(turn: Round) -> dict[int, float]:
    """Return by number the time of each record of the source, milliseconds since 1970."""
    sent: dict[int, float] = {}
    for messages in _messages(turn.servers, turn.source, lambda: len(sent) == turn.records):
        sent.update({json.loads(message.value())["n"]: message.timestamp()[1] for message in messages})
    return sent


def _visible_in(table: Path) -> dict[int, float]:
    """Return by number the time of the log entry that names its file, milliseconds since 1970."""
    visible: dict[int, float] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        at = entry.stat().st_mtime_ns / 1e6
        for line in entry.read_text(encoding="utf-8").splitlines():
            if (added := json.loads(line).get("add")) is not None:
                numbers = pq.read_table(table / added["path"], columns=["n"])["n"].to_pylist()
                visible |= dict.fromkeys(numbers, at)
    return visible


@contextmanager
def _penstock(spark: SparkSession, turn: Round) -> Iterator[Callable[[], None]]:
    """Run the job on a thread; what is yielded raises where it has ended."""
    job = Job("p12", partitions=2)
    rows = job.source("rows", Kafka([turn.source], servers=turn.servers, format=Json(_COLUMNS)))
    rows.write("table", Delta(turn.table))
    rows.write("topic", KafkaSink(turn.target, servers=turn.servers))
    run = JobRun.open(
        job,
        spark,
        root=root_of(turn.root / "checkpoints"),
        clock=SystemClock(),
        trigger=AsFastAsPossible(),
        suites={},
        settings=DriverSettings(),
        listeners=(ShortPauses(),),
    )
    raised: list[Exception] = []

    def drive() -> None:
        clock = StageClock()
        try:
            for hook in run.driver.run():
                if hook.stage == "Wait":
                    clock.begin()
                elif (done := clock.passed(hook)) is not None:
                    turn.batches.append((time.time() * 1_000, {_WHOLE: done[0], **done[1]}))
        except Exception as why:  # noqa: BLE001 - shown by the one who waits
            raised.append(why)

    driving = threading.Thread(target=drive)
    driving.start()
    try:
        yield partial(_raise, raised)
    finally:
        run.driver.stop()
        driving.join()


@contextmanager
def _one_query(spark: SparkSession, turn: Round) -> Iterator[Callable[[], None]]:
    """Run a query that writes both, as its docs advise: a function of each batch, which keeps the batch's rows."""
    from pyspark.sql import functions as F

    def write(frame: DataFrame, batch: int) -> None:
        frame.persist()
        options = {"txnAppId": turn.source, "txnVersion": str(batch)}
        frame.write.format("delta").mode("append").options(**options).save(str(turn.table))
        values = frame.select(F.to_json(F.struct("n", "v")).alias("value"))
        values.write.format("kafka").option("kafka.bootstrap.servers", turn.servers).option("topic", turn.target).save()
        frame.unpersist()

    writer = _peer_rows(spark, turn).writeStream.foreachBatch(write)
    with _running(writer.option("checkpointLocation", str(turn.root.resolve() / "checkpoint")).start()) as ended:
        yield ended


@contextmanager
def _two_queries(spark: SparkSession, turn: Round) -> Iterator[Callable[[], None]]:
    """Run a query for each output: they read the topic twice, and neither waits for the other."""
    rows = _peer_rows(spark, turn)
    table = rows.writeStream.format("delta").option("checkpointLocation", str(turn.root.resolve() / "to-table"))
    with _running(table.start(str(turn.table)), _to_topic(rows, turn).start()) as ended:
        yield ended


@contextmanager
def _real_time(spark: SparkSession, turn: Round) -> Iterator[Callable[[], None]]:
    """Run a query in real-time mode, which has tasks that do not end and writes into Kafka, not into Delta."""
    # The overloads of pyspark 4.2 lack the argument that the method has.
    trigger: dict[str, Any] = {"realTime": "30 seconds"}
    query = _to_topic(_peer_rows(spark, turn), turn).outputMode("update").trigger(**trigger)
    with _running(query.start()) as ended:
        yield ended


def _peer_rows(spark: SparkSession, turn: Round) -> DataFrame:
    from pyspark.sql import functions as F

    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", turn.servers)
    values = reader.option("subscribe", turn.source).option("startingOffsets", "earliest").load()
    return values.select(F.from_json(F.col("value").cast("string"), _COLUMNS).alias("r")).select("r.*")


def _to_topic(rows: DataFrame, turn: Round) -> DataStreamWriter:
    from pyspark.sql import functions as F

    values = rows.select(F.to_json(F.struct("n", "v")).alias("value"))
    writer = values.writeStream.format("kafka").option("kafka.bootstrap.servers", turn.servers)
    return writer.option("topic", turn.target).option("checkpointLocation", str(turn.root.resolve() / "to-topic"))


@contextmanager
def _running(*queries: StreamingQuery) -> Iterator[Callable[[], None]]:
    def ended() -> None:
        for query in queries:
            if (why := query.exception()) is not None:
                raise why

    try:
        yield ended
    finally:
        for query in queries:
            query.stop()


def _raise(raised: list[Exception]) -> None:
    if raised:
        raise raised[0]
