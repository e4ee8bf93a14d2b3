"""Run P3 to P5 of DESIGN 12 on a standalone master with two workers, with the checkpoints of both sides on HDFS."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch, show
from benchmarks.data import Input
from benchmarks.duel import Turns
from benchmarks.engine_side import BatchTime, EngineSide
from benchmarks.jobs import grouped, keyed_job, processed
from benchmarks.keyed_state import MILLION, TOUCHED, keyed_duel, row_by_row, with_keys
from benchmarks.report import Claim, Report, report
from benchmarks.spark_side import ROCKSDB
from penstock.checkpoint.storage.locate import root_of
from penstock.runtime.spark.session import open_session
from tools.hdfs_server import SUPERUSER, HdfsServer
from tools.mounts import APART, words_to_mount
from tools.spark_cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run_cluster"]

MIB = 2**20


def run_cluster(_spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P3 to P5 on a cluster and HDFS, in a process of its own; and what is fetched where nothing was kept.

    Each worker has its copies of the state in a folder of its own, as on machines of their own.
    """
    with report("P3 to P5 on a cluster, on HDFS") as results, scratch() as root:
        server = HdfsServer(root.resolve() / "hdfs", java=("-Xmx512m",))  # it lives for half an hour
        cache = root.resolve() / "cache"
        apart = words_to_mount(APART, cache)
        if apart is None:
            results.note(
                "unshare(1) does not work here: both workers keep their copies in one folder, and fetch nothing"
            )
        (root / "hdfs").mkdir()
        (root / "cluster").mkdir()
        cluster: Cluster | None = None
        try:
            server.start()
            cluster = Cluster(root.resolve() / "cluster", workers=2, cores=1, memory="3g", before=apart or ())
            answer = root.resolve() / "claims.json"
            urls = [cluster.url, server.url("ours"), f"{server.rpc}/checkpoints/peer"]
            words = [*urls, str(cache), str(answer), *(["quick"] * quick)]
            around = {**os.environ, "HADOOP_USER_NAME": SUPERUSER}  # the peer's; the engine says who it is in its URL
            subprocess.run([sys.executable, "-m", "benchmarks.cluster", *words], env=around, check=True)
            measured = json.loads(answer.read_text())
        finally:
            if cluster is not None:
                cluster.end()
            server.end()
        results.numbers.update(measured["numbers"])
        results.claim(*(Claim(**claim) for claim in measured["claims"]))
    return results.claims


def main(master: str, ours: str, peers: str, kept: str, answer: str, *, quick: bool) -> None:
    """Run all in a session on the cluster, with copies of the state kept in a folder, and write down what was found."""
    settings = {
        **ROCKSDB,
        "spark.driver.memory": "2g",
        "spark.executor.memory": "2g",
        "spark.executorEnv.HADOOP_USER_NAME": SUPERUSER,
        "spark.hadoop.dfs.client.use.datanode.hostname": "true",
        "spark.locality.wait": "3s",  # Spark's own, as the peer has it everywhere; Penstock's is shorter
    }
    spark = open_session("penstock-bench", master=master, jars=Path(".jars"), settings=settings, modules=[Path.cwd()])
    results = Report("cluster")
    try:
        for name, keys, transform, turns, goal in _duels(quick=quick):
            given = Input(rows=TOUCHED, keys=keys, step=MILLION)
            place = f"{name}-{keys}"
            root = root_of(f"{ours}-{place}", cache=kept)
            sides = keyed_duel(spark, given, transform, turns, checkpoints=root, peer_at=f"{peers}-{place}")
            show(results, f"{name} on two workers and HDFS, 100,000 touched of {keys:,} keys", TOUCHED, sides)
            results.claim(
                Claim(f"{name} on two workers and HDFS, {keys:,} keys, times the peer", sides.ratio, goal, "x")
            )
            _tell_fetched(results, sides.batches, f"{name}, {keys:,} keys")
        # The peer of the last, P4, is that of the same function row by row as well.
        rows_root = root_of(f"{ours}-rows", cache=kept)
        batches = row_by_row(results, spark, given, warm=30, batches=21, checkpoints=rows_root)
        _tell_fetched(results, batches, "P4 row by row")
        results.claim(
            Claim("P4 row by row on two workers and HDFS, times the peer", sides.peer_ms / _ms(batches), 25, "x")
        )
        _sizes(results, spark, ours, kept, quick=quick)
        _cold(results, spark, ours, kept)
    finally:
        spark.stop()
    claims = [asdict(claim) for claim in results.claims]
    Path(answer).write_text(json.dumps({"numbers": results.numbers, "claims": claims}, default=float))


def _duels(*, quick: bool) -> list[tuple[str, int, Callable[[DataFrame], DataFrame], Turns, float]]:
    def p3(keys: int) -> Turns:
        full = keys // TOUCHED
        # HDFS is as new as the sessions are: it takes a hundred batches until its servers are compiled.
        return Turns(warm_engine=full + 90, warm_peer=full + 4, rounds=2 if quick else 3, engine=11, peer=6)

    full = MILLION // TOUCHED
    p4 = Turns(warm_engine=full + 20, warm_peer=1 if quick else full + 1, rounds=1, engine=21, peer=3)
    sizes = (MILLION,) if quick else (MILLION, 10 * MILLION)
    return [*(("P3", keys, grouped, p3(keys), 3.0) for keys in sizes), ("P4", MILLION, processed, p4, 60.0)]


def _ms(batches: list[BatchTime]) -> float:
    return statistics.median(batch.whole for batch in batches)


def _tell_fetched(results: Report, batches: list[BatchTime], what: str) -> None:
    """Say what the measured batches had to fetch: a partition is not always computed where it was the time before."""
    fetched = [batch.commit.written.get("fetched", 0) / MIB for batch in batches]
    results.numbers[f"{what}: MiB fetched"] = fetched
    often = sum(count > 0 for count in fetched)
    results.note(f"{what}: {sum(fetched):.1f} MiB of state fetched, in {often} of {len(fetched)} batches")


def _sizes(results: Report, spark: SparkSession, ours: str, kept: str, *, quick: bool) -> None:
    """Compare the time of a batch at 50M keys with that at 1M."""
    few, many = MILLION, (5 if quick else 50) * MILLION
    medians = []
    for keys in (few, many):
        with scratch() as place:
            root = root_of(f"{ours}-p5-{keys}", cache=kept)
            batches = with_keys(results, spark, keys, place / "table", root)
        _tell_fetched(results, batches, f"P5, {keys:,} keys")
        medians.append(_ms(batches))
        results.note(f"P5, {keys:,} keys: {medians[-1]:,.0f} ms a batch")
    name = f"P5 on two workers and HDFS, {many:,} keys against {few:,}"
    results.claim(Claim(name, medians[1] / medians[0], 1.3, "x", at_most=True))


def _cold(results: Report, spark: SparkSession, ours: str, kept: str) -> None:
    """Say what a batch takes, and fetches, where no copy was kept: each one as the first on a new machine."""
    given = Input(rows=TOUCHED, keys=MILLION, step=MILLION)
    root = root_of(f"{ours}-cold", cache=kept)
    with scratch() as place:
        given.prepare(40)
        engine = EngineSide(spark, given, keyed_job(place / "table"), root)
        engine.batches(20)
        times, fetched = [], []
        for _ in range(5):
            for copies in Path(kept).parent.glob(f"{Path(kept).name}*"):  # those of the driver, and of each worker
                shutil.rmtree(copies / root.here.name, ignore_errors=True)
            (batch,) = engine.batches(1)
            times.append(batch.whole)
            fetched.append(batch.commit.written.get("fetched", 0) / MIB)
        engine.close()
    rows = list(zip(range(1, 6), times, fetched, strict=True))
    results.table("batches without any copy kept", ("batch", "ms", "MiB fetched"), rows)


if __name__ == "__main__":
    main(*sys.argv[1:6], quick="quick" in sys.argv[6:])
