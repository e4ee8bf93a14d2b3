"""Run P3 and P4 of DESIGN 12 on a standalone master with two workers, with the checkpoints of both sides on HDFS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch, show
from benchmarks.data import BENCH, Input
from benchmarks.duel import Duel, Turns
from benchmarks.engine_side import EngineSide
from benchmarks.jobs import grouped, keyed_job, processed
from benchmarks.keyed_state import MILLION, TOUCHED, keyed_duel
from benchmarks.report import Claim, Report, report
from benchmarks.spark_side import ROCKSDB
from penstock.checkpoint.mirror import root_of
from penstock.runtime.session import open_session
from tools.hdfs_server import SUPERUSER, HdfsServer
from tools.spark_cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_cluster"]

MIB = 2**20


def run_cluster(_spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P3 and P4 on a cluster and HDFS, in a process of its own; and what is fetched where nothing was kept."""
    with report("P3 and P4 on a cluster, on HDFS") as found, scratch() as root:
        server = HdfsServer(root.resolve() / "hdfs")
        (root / "hdfs").mkdir()
        (root / "cluster").mkdir()
        cluster: Cluster | None = None
        try:
            server.start()
            cluster = Cluster(root.resolve() / "cluster", workers=2, cores=1, memory="3g")
            said = root.resolve() / "claims.json"
            words = [cluster.url, server.url("ours"), f"{server.rpc}/checkpoints/peer", str(said), *(["quick"] * quick)]
            around = {**os.environ, "HADOOP_USER_NAME": SUPERUSER}  # the peer's; the engine says who it is in its URL
            subprocess.run([sys.executable, "-m", "benchmarks.cluster", *words], env=around, check=True)
            told = json.loads(said.read_text())
        finally:
            if cluster is not None:
                cluster.end()
            server.end()
        found.numbers.update(told["numbers"])
        found.claim(*(Claim(**one) for one in told["claims"]))
    return found.claims


def main(master: str, ours: str, peers: str, said: str, *, quick: bool) -> None:
    """Run both in a session on the cluster, and write down what was found."""
    settings = {
        **ROCKSDB,
        "spark.driver.memory": "2g",
        "spark.executor.memory": "2g",
        "spark.executorEnv.HADOOP_USER_NAME": SUPERUSER,
        "spark.hadoop.dfs.client.use.datanode.hostname": "true",
    }
    spark = open_session("penstock-bench", master=master, jars=Path(".jars"), settings=settings, modules=[Path.cwd()])
    found = Report("cluster")
    cache = Path(tempfile.mkdtemp(prefix="cache-", dir=BENCH)).resolve()
    try:
        for name, transform, turns, goal in _duels(quick=quick):
            root = root_of(f"{ours}-{name}", cache=str(cache))
            given = Input(rows=TOUCHED, keys=MILLION, step=MILLION)
            sides = keyed_duel(spark, given, transform, turns, checkpoints=root, peer_at=f"{peers}-{name}")
            show(found, f"{name} on two workers and HDFS, 100,000 touched of 1,000,000 keys", TOUCHED, sides)
            found.claim(Claim(f"{name.upper()} on two workers and HDFS, times the peer", sides.ratio, goal, "x"))
            _tell_fetched(found, sides, name)
        _cold(found, spark, ours, cache)
    finally:
        spark.stop()
        shutil.rmtree(cache, ignore_errors=True)
    claims = [{"name": c.name, "found": c.found, "goal": c.goal, "unit": c.unit} for c in found.claims]
    Path(said).write_text(json.dumps({"numbers": found.numbers, "claims": claims}, default=float))


def _duels(*, quick: bool) -> list[tuple[str, object, Turns, float]]:
    full = MILLION // TOUCHED
    p3 = Turns(warm_engine=full + 20, warm_peer=full + 4, rounds=2 if quick else 3, engine=11, peer=6)
    p4 = Turns(warm_engine=full + 20, warm_peer=1 if quick else full + 1, rounds=1, engine=21, peer=3)
    return [("p3", grouped, p3, 3), ("p4", processed, p4, 60)]


def _tell_fetched(found: Report, sides: Duel, name: str) -> None:
    """Say what the measured batches had to fetch: both workers keep their copies in one folder of this machine."""
    fetched = [batch.commit.written.get("fetched", 0) for batch in sides.batches]
    found.numbers[f"{name}: bytes fetched"] = fetched
    found.note(f"{name}: {sum(fetched) / MIB:.1f} MiB of state fetched in {len(fetched)} batches")


def _cold(found: Report, spark: SparkSession, ours: str, cache: Path) -> None:
    """Say what a batch takes, and fetches, where no copy was kept: each one as the first on a new machine."""
    given = Input(rows=TOUCHED, keys=MILLION, step=MILLION)
    root = root_of(f"{ours}-cold", cache=str(cache))
    with scratch() as place:
        given.prepare(40)
        engine = EngineSide(spark, given, keyed_job(place / "table"), root)
        engine.batches(20)
        times, fetched = [], []
        for _ in range(5):
            shutil.rmtree(root, ignore_errors=True)
            (batch,) = engine.batches(1)
            times.append(batch.whole)
            fetched.append(batch.commit.written.get("fetched", 0) / MIB)
        engine.close()
    rows = list(zip(range(1, 6), times, fetched, strict=True))
    found.table("batches without any copy kept", ("batch", "ms", "MiB fetched"), rows)


if __name__ == "__main__":
    main(*sys.argv[1:5], quick="quick" in sys.argv[5:])
