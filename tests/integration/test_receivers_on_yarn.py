"""A stream with receivers, submitted to a real YARN with its files on a real HDFS (DESIGN 11, F10, F47)."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from cli_runner import PATIENCE
from deltalake import DeltaTable
from project_samples import JARS
from pushing_rows import LineServer, Poster
from supervised_project import Yard

from penstock.checkpoint.storage.locate import root_of
from penstock.errors.root import EXIT_RETRY
from penstock.runtime.process.os_processes import argv_of, session_members
from penstock.sinks import JsonLines, Parquet
from penstock.supervise.stream import Phase
from tools.hdfs_server import SUPERUSER, USER, HdfsServer
from tools.spark_cluster import QUICK_JAVA
from tools.waiting import free_port, until
from tools.yarn_cluster import YarnCluster

# YARN is fetched, and its servers take half a minute to start; each day receivers run on a standalone cluster.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_200)]

TOKEN = "kept-from-everybody-else"  # noqa: S105 - of this test
HIDDEN = "kept-from-the-pages-too"
JOB = """
from penstock import Job, agg, minutes
from penstock.sinks import Delta, JsonLines, Parquet
from penstock.windows import Tumbling


def build(conf):
    job = Job("orders", partitions=2)
    left, right, posted = (
        job.source(name, conf.source(name), event_time="at", max_out_of_order=minutes(60))
        for name in ("left", "right", "posted")
    )
    rows = left.union(right).union(posted)
    rows.write("archive", Parquet("{out}/archive"))
    rows.write("feed", JsonLines("{out}/feed"))
    counts = rows.key_by("sender").window("minutely", Tumbling(minutes(1)).drop_late()).aggregate(n=agg.count())
    counts.write("totals", Delta(conf.table("totals")))
    return job
"""
QUICK = """
[run]
trigger = "interval 1 seconds"

[supervise]
backoff = "1 seconds"
healthy_after = "1 seconds"
start_within = "10 minutes"
"""
SETTINGS = """
[checkpoint]
root = "{root}"
cache = "{cache}"
keep = 1000

[spark]
master = "yarn"

[spark.conf]
spark.executor.instances = "2"
spark.executor.cores = "{cores}"
spark.executor.memory = "512m"
spark.executor.memoryOverhead = "1g"
spark.yarn.am.memory = "256m"
spark.yarn.jars = "local:{pyspark}/jars/*"
spark.executor.extraJavaOptions = '{java}'
spark.hadoop.hidden = "${{env:HIDDEN}}"
"""
LINES = """
[sources.{name}]
kind = "socket"
host = "127.0.0.1"
port = {port}
format = {{ kind = "json", schema = "k long, at timestamp, sender string, text string" }}
"""
POSTED = """
[sources.posted]
kind = "http"
port = {port}
token = "${{env:PUSH_TOKEN}}"
schema = "k long, at timestamp, sender string, text string"

[tables]
totals = "tables/totals"
"""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory, hdfs: HdfsServer) -> Iterator[YarnCluster]:
    """Two nodes, each with room for one executor."""
    client = hdfs.client(SUPERUSER)
    client.makedirs(f"/user/{USER}")
    client.set_owner(f"/user/{USER}", owner=USER)
    started = YarnCluster(tmp_path_factory.mktemp("yarn"), hdfs, nodes=2, cores=4, memory=2304)
    yield started
    started.end()


class Receiving(Yard):
    """A project with two servers of lines, and one sender that posts."""

    def __init__(self, root: Path, url: str, *, cores: int) -> None:
        for folder in ("conf/jobs", "jobs"):
            (root / folder).mkdir(parents=True)
        (root / ".jars").symlink_to(JARS)
        self.out = url + "-out"
        (root / "jobs" / "orders.py").write_text(JOB.format(out=self.out))
        on_yarn = SETTINGS.format(
            root=url, cache=root / "cache", cores=cores, pyspark=Path(pyspark.__file__).parent, java=QUICK_JAVA
        )
        (root / "conf" / "penstock.toml").write_text(on_yarn)
        self.lines = {"left": LineServer(1_000_000), "right": LineServer(2_000_000)}
        self.port = free_port()
        sources = "".join(LINES.format(name=name, port=server.port) for name, server in self.lines.items())
        (root / "conf" / "jobs" / "orders.toml").write_text(sources + POSTED.format(port=self.port) + QUICK)
        super().__init__(root, root_of(url, project=root, cache=str(root / "cache")), every=1.0)
        # Each fortieth request is so large that a task writes a file of it.
        self.poster = Poster(3_000_000, self.port, TOKEN, rows=lambda n: 6_000 if n % 40 == 10 else 5, text="x" * 500)

    def more(self) -> None:
        """Wait until senders have sent more lines, and more rows were acknowledged, and until these are committed."""
        self.poster.until_more(6_100)
        for server in self.lines.values():
            server.until_more(20)
        self.until_commits(self.commits() + 2)

    def said(self) -> str:
        """Return what drivers have written."""
        return "".join(texts_below(self.root / "cache"))

    def end(self) -> None:
        """Send nothing more."""
        self.poster.stop()
        for server in self.lines.values():
            server.stop()
        super().end()


@pytest.fixture
def yard(tmp_path: Path, yarn: YarnCluster, hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiving]:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    monkeypatch.setenv("HADOOP_USER_NAME", USER)
    monkeypatch.setenv("PUSH_TOKEN", TOKEN)
    monkeypatch.setenv("HIDDEN", HIDDEN)
    begun = Receiving(tmp_path / "project", hdfs.url(tmp_path.name), cores=3)
    yield begun
    begun.end()


@pytest.mark.fault("F01", "F10", "F47")
def test_a_stream_on_yarn_goes_on_whatever_dies(yard: Receiving, yarn: YarnCluster, hdfs: HdfsServer) -> None:
    """An executor, the driver and a node are killed: what was acknowledged is on HDFS, once, and in the windows.

    TCP acknowledges nothing. Of the lines of each connection the first ones are there, in their order, without a gap.
    """
    yard.supervise()
    yard.run("start", "orders")
    disturbed(yard, yarn)
    yard.poster.stop()
    for server in yard.lines.values():
        server.stop()
    assert yard.json("drain", "orders", "--wait")["phase"] == "FINISHED"
    ended(yarn)
    compare(yard, hdfs)
    seen = json.dumps(yard.json("status", "orders")) + "".join(texts_below(yarn.folder)) + yard.said()
    assert TOKEN not in seen
    assert HIDDEN not in seen


def disturbed(yard: Receiving, yarn: YarnCluster) -> None:
    """Kill an executor, the driver and a node, and see rows acknowledged after each."""
    yard.more()
    assert sorted(yarn.executors().values()) == [1, 2]
    words = json.dumps([argv_of(pid) for pid in [*yarn.processes(""), *session_members(yard.pid())]])
    assert TOKEN not in words
    assert HIDDEN not in words
    node = receiving(yarn)[0]
    (executor,) = [pid for pid, its in yarn.executors().items() if its == node]
    os.kill(executor, signal.SIGKILL)
    yard.more()
    receiving(yarn)
    assert yard.stream().generation == 1

    (python,) = [pid for pid in session_members(yard.pid()) if argv_of(pid)[1].endswith("__main__.py")]
    os.kill(python, signal.SIGKILL)
    yard.until(lambda s: s.generation == 2 and s.phase is Phase.RUNNING)
    yard.more()

    # The application's own container dies as well, and with it YARN ends the other executor.
    (node,) = yarn.processes("org.apache.spark.deploy.yarn.ExecutorLauncher").values()
    yarn.kill_node(node)
    yarn.start_node(node)
    yard.more()
    receiving(yarn)


def receiving(yarn: YarnCluster) -> list[int]:
    """Return the node of each of the three receivers, when all run."""

    def nodes() -> list[int] | None:
        found = [*yarn.processes("penstock.receivers.process").values()]
        return found if len(found) == 3 else None

    return until(nodes, "three receivers", seconds=PATIENCE) or []


def ended(yarn: YarnCluster) -> None:
    """See no application left on the cluster."""
    until(lambda: not yarn.running() and not yarn.processes(""), "the containers to end", seconds=PATIENCE)


def texts_below(folder: Path) -> Iterator[str]:
    """Yield what logs say, and the scripts that containers were started by."""
    for path in folder.rglob("*"):
        if path.is_file() and (path.suffix in (".log", ".jsonl", ".sh") or path.name in ("stdout", "stderr")):
            yield path.read_text(errors="replace")


def compare(yard: Receiving, hdfs: HdfsServer) -> None:
    """See each row once in each sink, none missing that was acknowledged, and the windows of just these rows."""
    archive = [read_table(hdfs, file.path) for file in Parquet(f"{yard.out}/archive").files()]
    assert max(table.nbytes for table in archive) > 2 * 2**20  # no driver has written that
    times = {k: at for table in archive for k, at in zip(*(table[c].to_pylist() for c in ("k", "at")), strict=True)}
    assert sum(table.num_rows for table in archive) == len(times)
    feed = [
        json.loads(line)["k"]
        for file in JsonLines(f"{yard.out}/feed").files()
        for line in bytes_at(hdfs, file.path).splitlines()
    ]
    assert sorted(feed) == sorted(times)
    posted = {k for k in times if k >= 3_000_000}
    assert set(yard.poster.acknowledged) <= posted <= set(yard.poster.sent)
    for server in yard.lines.values():
        for sent in server.connections:
            there = [k in times for k in sent]
            assert there == sorted(there, reverse=True)
    lines = {k for server in yard.lines.values() for sent in server.connections for k in sent}
    assert times.keys() - posted <= lines
    windows = Counter((f"s{k // 1_000_000}", at.replace(second=0)) for k, at in times.items())
    totals = DeltaTable(str(yard.root / "tables" / "totals")).to_pyarrow_table().to_pylist()
    assert Counter({(row["sender"], row["window_start"]): row["n"] for row in totals}) == windows
    assert len(totals) == len(windows)


def read_table(hdfs: HdfsServer, url: str) -> pa.Table:
    """Return the rows of a Parquet file."""
    return pq.read_table(pa.BufferReader(bytes_at(hdfs, url)))


def bytes_at(hdfs: HdfsServer, url: str) -> bytes:
    """Return a file."""
    with hdfs.client().read("/" + url.split("/", 3)[3]) as file:
        data: bytes = file.read()
        return data


def test_receivers_that_would_take_every_core_of_yarn_are_refused(yard: Receiving, yarn: YarnCluster) -> None:
    """Two executors of one core for three receivers, started by hand: nothing stands in the log."""
    conf = yard.root / "conf" / "penstock.toml"
    conf.write_text(conf.read_text().replace('cores = "3"', 'cores = "1"'))
    code, _, err = yard.run("run", "orders", java=True)
    assert code == EXIT_RETRY, err  # executors may be late
    assert "receivers take 3 cores, and the executors have 2" in err
    assert yard.commits() == 0
    ended(yarn)
