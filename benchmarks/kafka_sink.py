"""Run what a transaction costs: the same job into a topic exactly once and at least once, in turns on one broker."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch
from benchmarks.data import Input
from benchmarks.engine_side import EngineSide
from benchmarks.folder_source import NumberedFiles
from benchmarks.jobs import Build
from benchmarks.report import Claim, Report, report
from penstock import Job
from penstock.sinks import Delivery, Kafka, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_kafka_sink"]

_GOAL = 1.3
_TOPIC = {Delivery.EXACTLY_ONCE: "once", Delivery.AT_LEAST_ONCE: "again"}


def run_kafka_sink(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """A whole batch into a topic of two partitions, 1,000 and 100,000 rows, with transactions and without."""
    from tools.kafka_server import KafkaServer

    with report("kafka-sink") as results, scratch() as root:
        server = KafkaServer.as_shipped(root.resolve() / "kafka")
        server.start()
        try:
            # A new broker compiles its code for transactions during the first hundred, which take twice as long. Both
            # Java processes compile for minutes more, and a transaction suffers most: 1.4 times after 150 batches.
            for rows, warm in ((1_000, 150 if quick else 1_200), (100_000, 15)):
                place, rounds = root / str(rows), 2 if quick else 10 if rows == 1_000 else 5  # noqa: PLR2004
                _measure(spark, results, server.address, place, rows=rows, warm=warm, rounds=rounds)
        finally:
            server.end()
    return results.claims


def _measure(
    spark: SparkSession, results: Report, servers: str, root: Path, *, rows: int, warm: int, rounds: int
) -> None:
    given = Input(rows=rows, keys=1_000, step=1_000_000)
    turn = 9
    given.prepare(warm + rounds * turn)
    sides = {
        delivery: EngineSide(spark, given, _job(servers, rows, delivery), root / delivery.name) for delivery in Delivery
    }
    whole: dict[Delivery, list[float]] = {delivery: [] for delivery in Delivery}
    publishing: dict[Delivery, list[float]] = {delivery: [] for delivery in Delivery}
    for side in sides.values():
        side.batches(warm)
    for _ in range(rounds):
        for delivery, side in sides.items():
            batches = side.batches(turn)[1:]  # caches are the other side's
            whole[delivery] += [batch.whole for batch in batches]
            publishing[delivery] += [batch.stages["PublishSinks"] for batch in batches]
    for side in sides.values():
        side.close()
    medians = {delivery: statistics.median(times) for delivery, times in whole.items()}
    results.table(
        f"{rows:,} rows a batch into Kafka",
        ("delivery", "batch, ms", "of that publishing, ms"),
        [(d.value, medians[d], statistics.median(publishing[d])) for d in Delivery],
    )
    times = medians[Delivery.EXACTLY_ONCE] / medians[Delivery.AT_LEAST_ONCE]
    name = f"Kafka sink, {rows:,} rows, exactly once, times the batch without transactions"
    results.claim(Claim(name, times, _GOAL, "x", at_most=True))


def _job(servers: str, rows: int, delivery: Delivery) -> Build:
    def build(source: NumberedFiles) -> Job:
        job = Job(f"kafka_{_TOPIC[delivery]}", partitions=2)
        topic = f"{_TOPIC[delivery]}-{rows}"
        new = NewTopic(partitions=2)
        sink = Kafka(topic, servers=servers, key="k", delivery=delivery, new_topic=new)
        job.source("rows", source).write("out", sink)
        return job

    return build
