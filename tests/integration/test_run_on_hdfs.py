"""A job of a project whose checkpoint is on HDFS, run and looked at as people do, and what happens to HDFS meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster
from mounts import APART, mounted
from project_samples import expected_totals, make_project
from shells import PATIENCE, Shell
from yards import QUICK, Yard

import penstock.state
from penstock.checkpoint.entries import Takeover
from penstock.checkpoint.mirror import root_of
from penstock.supervise.stream import Phase
from tools.hdfs_server import HdfsServer
from tools.spark_cluster import QUICK_JAVA
from tools.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def url(tmp_path: Path, hdfs: HdfsServer) -> str:
    """Return a root on HDFS."""
    return hdfs.url(tmp_path.name)


def project(folder: Path, url: str, more: str = "", *, every: str = "2 batches", **named: int) -> Path:
    """Make a project with its checkpoints on HDFS, whose copies are kept in it; data checkpoints come `every` so often.

    They are made where the driver is, and tasks elsewhere fetch what becomes of them.
    """
    more += f'\n[checkpoint]\nroot = "{url}"\ncache = "machine/cache"\nevery = "{every}"\n'
    return make_project(folder, more=more, **named)


def test_a_run_on_hdfs_is_looked_at_gone_back_in_and_found_damaged(tmp_path: Path, hdfs: HdfsServer, url: str) -> None:
    """Nothing but copies is in the project, and on a machine without them all is the same."""
    shell = Shell(project(tmp_path, url, rows=400))
    assert shell.run("run", "orders", "--available-now")[0] == 0
    assert shell.totals() == expected_totals(400)
    assert not (tmp_path / "checkpoints").exists()

    shutil.rmtree(tmp_path / "machine")
    assert shell.json("status", "orders")["state"] == "finished"
    assert [one["trouble"] for one in shell.json("checkpoints", "orders")["checkpoints"]] == [None] * 5
    kept = penstock.state.read(url, "orders", "minutely", at=1)
    assert kept.num_rows > 0
    assert shell.run("save", "orders", "before")[0] == 0
    code, _, err = shell.run("run", "orders", "--available-now", "--from", "batch=1", "--partitions", "2")
    assert code == 0, err
    assert sorted(set(shell.totals())) == expected_totals(400)
    assert shell.run("fsck", url)[0] == 0

    client, place = hdfs.client(), "/" + url.split("/", 3)[3] + "/orders/state/minutely/0"
    segment = f"{place}/{next(name for name in client.list(place) if name.endswith('.arrow'))}"
    with client.read(segment) as file:
        whole = file.read()
    client.write(segment, whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:], overwrite=True)
    code, out, err = shell.run("fsck", url)
    assert (code, segment.rsplit("/", 1)[1] in out) == (78, True), out + err
    assert url in out


@pytest.fixture
def yard(tmp_path: Path, url: str) -> Iterator[Yard]:
    """Return a stream of that project with a supervisor."""
    root = project(tmp_path, url, QUICK, rows=600)
    found = Yard(root, root_of(url, project=root, cache="machine/cache"))
    yield found
    found.end()


@pytest.mark.fault("F25")
def test_a_stream_whose_hdfs_is_in_safe_mode_and_goes_is_paused_and_goes_on(yard: Yard, hdfs: HdfsServer) -> None:
    """Longer than a driver waits: it ends, no failure is counted, and when HDFS is back a driver starts by itself.

    Safe mode ends with a NameNode that dies and is started again, under the supervisor whose records are there too.
    """
    yard.supervise()
    yard.json("start", "orders")
    yard.until_commits(3)
    hdfs.admin("-safemode", "enter")
    try:
        until(lambda: not yard.drivers(), "the driver to give up", seconds=PATIENCE)
    finally:
        hdfs.kill_namenode()
        hdfs.start_namenode()
        hdfs.wait()
    yard.until(lambda s: s.generation == 2 and s.phase is Phase.RUNNING)
    [paused] = [stream for _, stream in yard.records.history() if stream.phase is Phase.PAUSED]
    assert "safe mode" in (paused.reason or "")
    assert yard.stream().failures == ()
    yard.json("limits", "orders", "--rows", "none")
    yard.until(lambda s: s.phase is Phase.FINISHED)
    assert yard.totals() == expected_totals(600)
    assert [t.generation for t in yard.entries(Takeover)] == [1, 2]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master and a worker."""
    (tmp_path / "cluster").mkdir()
    found = Cluster(tmp_path / "cluster")
    yield found
    found.end()


def on_cluster(cluster: Cluster) -> str:
    """Return the settings of a project whose jobs run on a cluster."""
    master = f'\n[spark]\nmaster = "{cluster.url}"\n[spark.conf]\nspark.executor.memory = "512m"\n'
    return master + f"spark.executor.extraJavaOptions = '{QUICK_JAVA}'\n"


def fetched(shell: Shell, *words: str) -> list[int]:
    """Run the job, and return how many bytes of state each batch had to bring from HDFS."""
    code, out, err = shell.run("run", "orders", "--json", *words)
    assert code == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    return [one["fetched_bytes"] for one in events if one["event"] == "batch.committed"]


def test_executors_on_other_machines_find_the_state_on_hdfs(
    tmp_path: Path, hdfs: HdfsServer, url: str, cluster: Cluster
) -> None:
    """Nothing is shared but the tables: what an executor has not written itself it fetches, and that is told."""
    root = project(tmp_path / "project", url, on_cluster(cluster), every="never", rows=400)
    shell = Shell(root)
    with cluster.worker_apart(root / "machine"):
        took = fetched(shell, "--available-now")
        assert sum(took) == 0  # the one worker had written all of it
        assert shell.totals() == expected_totals(400)
    with cluster.worker_apart(root / "machine"):
        took = fetched(shell, "--available-now", "--from", "batch=1")
        assert took[0] > 0
        assert sum(took[1:]) == 0
    assert sorted(set(shell.totals())) == expected_totals(400)


def test_a_partition_stays_on_its_machine(tmp_path: Path, hdfs: HdfsServer, url: str) -> None:
    """Of two machines that share nothing, neither fetches what the other wrote, unless it was too busy for its own.

    Left to chance, one batch in two would have its partitions the other way round.
    """
    machine = tmp_path / "project" / "machine"
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster", workers=2, cores=1, before=mounted(APART, machine))
    try:
        settings = on_cluster(cluster) + "[limits]\nrows = 10\n"
        shell = Shell(project(tmp_path / "project", url, settings, every="never", rows=400))
        took = fetched(shell, "--available-now")
        assert len(took) >= 40
        assert sum(one > 0 for one in took) <= 8, took
        kept = [list(own.glob("cache/*/orders/state/minutely/*")) for own in machine.parent.glob("machine.*")]
        assert sum(map(bool, kept)) == 2, kept  # both work
        assert shell.totals() == expected_totals(400)
    finally:
        cluster.end()
